"""Search and questions over one tenant's documents."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from roadworthy.adapters.library import refusals
from roadworthy.adapters.library.caller import CallersModel
from roadworthy.adapters.longdoc_library import Reranked, StoreLibrary
from roadworthy.adapters.longdoc_store import DocumentStore
from roadworthy.core.errors import ProbeError, Refused, SpecError
from roadworthy.longdoc.converse import Claim, Conversation, RoundName, TooLong
from roadworthy.longdoc.prompt import Budget, budget_within
from roadworthy.longdoc.shown import answer_json, claim_json, hit_json
from roadworthy.longdoc.tokens import count_tokens

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from roadworthy.adapters.library.records import DocumentRecord
    from roadworthy.adapters.library.shelf import Shelf
    from roadworthy.longdoc.converse import Library

Tell = Callable[[str, Mapping[str, Any]], None]
"""Hears of what happens while a question is answered: the kind of event, and what it says."""


def wanted_of(shelf: Shelf, documents: Sequence[str]) -> list[DocumentRecord]:
    """Those that are named, or all that can be searched. Raises Refused for one that is not there, or not yet."""
    if not documents:
        return [one for one in tuple(shelf.documents.values()) if one.status == "ready"]
    found = [shelf.document(one) for one in dict.fromkeys(documents)]
    for one in found:
        if one.status != "ready":
            raise refusals.not_ready(one.name, one.status)
    return found


def search(shelf: Shelf, queries: Sequence[str], limit: int, documents: Sequence[str]) -> list[dict[str, Any]]:
    """``{query, results}`` for each of ``queries``, as `doc search --json` has it, with each document's id beside."""
    if not wanted_of(shelf, documents):
        return [{"query": one, "results": []} for one in queries]
    with _library(shelf, documents) as library:
        return [
            {"query": one, "results": [named(hit_json(hit)) for hit in library.search(one, limit=limit)]}
            for one in queries
        ]


def ask(
    shelf: Shelf, asked: Mapping[str, Any], *, url: str, key: str | None, stop: threading.Event, tell: Tell
) -> dict[str, Any]:
    """The answer to ``asked["question"]``, as `doc ask --json` has it, with each document's id beside.

    Raises:
        Refused: as the gateway did, or no document is there to answer from.
        Temporary, ProbeError: the gateway does not answer.
    """
    if not wanted_of(shelf, asked["documents"]):
        raise Refused(
            "no document is ready", code="document_not_ready", status=409, hint="POST /v1/documents, and wait for it"
        )
    session = f"doc-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        model = stack.enter_context(CallersModel(url, key=key, model=asked["model"], session=session, stop=stop))
        found = stack.enter_context(_library(shelf, asked["documents"]))
        library: Library = found
        if asked["reranker"] is not None:
            reranker = stack.enter_context(
                CallersModel(url, key=key, model=asked["reranker"], session=session, stop=stop)
            )
            library = Reranked(found, reranker.rerank, lambda words: tell("note", {"note": words}))
        try:
            answer = Conversation(
                library=library, model=model, budget=budget_for(model, asked), count=count_tokens, now_s=time.monotonic,
                listener=_Listener(tell), quick=asked["quick"],
            ).ask(asked["question"])  # fmt: skip
        except (SpecError, TooLong) as error:
            raise Refused(str(error), code="invalid_question", status=400, hint=error.hint) from None
        told: dict[str, Any] = named(answer_json(answer, model.model))
    return told


def budget_for(model: CallersModel, asked: Mapping[str, Any]) -> Budget:
    """Raises Refused where the answer would take over half of it."""
    try:
        return budget_within(asked["budget_tokens"], model.window_tokens, asked["answer_tokens"])
    except ValueError as error:
        raise Refused(f"answer_tokens: {error}", code="invalid_fields", status=400) from None


@contextmanager
def _library(shelf: Shelf, documents: Sequence[str]) -> Iterator[StoreLibrary]:
    # "ready" is told only of what is in the store, and what is being deleted is in no collection any more
    names = [one.stored_name for one in wanted_of(shelf, documents)]
    every = len(names) == len(shelf.documents)
    with ExitStack() as stack:
        try:
            store = stack.enter_context(DocumentStore(shelf.store))
            library = StoreLibrary(store, shelf.store, () if every else names)
        except SpecError:  # deleted meanwhile
            raise Refused("a document was deleted meanwhile", code="document_not_found", status=404) from None
        except ProbeError as error:
            raise refusals.StoreError(str(error)) from None
        yield library


class _Listener:
    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def round(self, name: RoundName) -> None:
        self._tell("round", {"round": name})

    def claim(self, claim: Claim) -> None:
        self._tell("claim", named(claim_json(claim)))


def named(value: Any) -> Any:
    """``value`` with every ``document`` as it was uploaded, and its id beside; dataclasses as plain values."""
    if isinstance(value, Mapping):
        told = {key: named(one) for key, one in value.items()}
        document = told.get("document")
        if isinstance(document, str) and document.startswith("doc_") and "/" in document:
            told["document_id"], _, told["document"] = document.partition("/")
        return told
    if isinstance(value, (list, tuple)):
        return [named(one) for one in value]
    slots = getattr(type(value), "__dataclass_fields__", None)
    return {name: named(getattr(value, name)) for name in slots} if slots is not None else value
