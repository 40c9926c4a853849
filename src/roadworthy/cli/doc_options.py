"""What the `doc` commands that ask a model have in common: where it answers, and how much it is shown."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roadworthy.longdoc.prompt import ANSWER_TOKENS

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from roadworthy.adapters.longdoc_embedder import Served, ServedModel
    from roadworthy.adapters.longdoc_model import ModelClient
    from roadworthy.adapters.longdoc_read.ocr import Recogniser
    from roadworthy.adapters.longdoc_store import DocumentStore
    from roadworthy.longdoc.prompt import Budget

EMBEDDING_TIMEOUT_S = 120.0

home_option = click.option(
    "--home", type=click.Path(path_type=Path), envvar="ROADWORTHY_HOME", help="Folder of the store (~/.roadworthy)."
)


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that :func:`client_of` and :func:`budget_of` take."""
    for option in reversed(
        (
            click.option("--url", required=True, envvar="ROADWORTHY_URL", help="Gateway data port, or OpenAI API."),
            click.option("--key", envvar="ROADWORTHY_KEY", help="The tenant's key; better in ROADWORTHY_KEY."),
            click.option("--model", help="Model to ask; the first that the gateway lists otherwise."),
            click.option(
                "--budget", type=click.IntRange(256), metavar="TOKENS",
                help="Prompt and answer of one request together; otherwise what the plan or the gateway says.",
            ),
            click.option("--spec", type=click.Path(path_type=Path), help="Document whose plan gives the budget."),
            click.option(
                "--answer-tokens", type=click.IntRange(16, 131_072), metavar="TOKENS",
                help=f"Longest reply of a round ({ANSWER_TOKENS}, or a quarter of the budget).",
            ),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def client_of(url: str, key: str | None, model: str | None) -> ModelClient:
    """The endpoint, with a session of its own."""
    from roadworthy.adapters.longdoc_model import ModelClient

    return ModelClient(url, key=key, model=model, session=f"doc-{secrets.token_hex(8)}")


def budget_of(client: ModelClient, budget: int | None, spec: Path | None, answer_tokens: int | None) -> Budget:
    """Tokens of one request: as told, else as the plan of ``spec`` serves them, else as the endpoint does."""
    from roadworthy.core.errors import SpecError
    from roadworthy.longdoc.prompt import MOST_PROMPT_TOKENS, budget_within

    window = budget
    if window is None and spec is not None:
        window = min(_planned_window(spec), MOST_PROMPT_TOKENS)
    try:
        return budget_within(window, client.window_tokens, answer_tokens)
    except ValueError as error:
        raise SpecError(f"--answer-tokens: {error}", hint="give more with --budget") from None


def _planned_window(spec: Path) -> int:
    from roadworthy.cli.wiring import load_planned

    return int(str(load_planned(str(spec)).best().settings["max_model_len"].value))


tokenizer_option = click.option(
    "--tokenizer", default="", metavar="NAME|FILE",
    help="Count tokens exactly: deepseek, qwen, or a tokenizer.json; estimated otherwise.",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingChoice:
    """Which embedding behind an endpoint the options name, and what else of them says where models answer."""

    url: str | None
    model: str | None
    query_prefix: str
    passage_prefix: str
    spec: Path | None
    key: str | None = field(repr=False)


def embedding_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which embedding; the command gets ``embedding`` in their place."""

    @click.option(
        "--embeddings",
        envvar="ROADWORTHY_EMBEDDINGS",
        metavar="URL",
        help="OpenAI API whose /v1/embeddings makes vectors, beside the bundled embedding's.",
    )
    @click.option("--embedding-model", metavar="NAME", help="Model there; the library's when it has one.")
    @click.option("--query-prefix", default="", metavar="TEXT", help="Before each question, such as 'query: '.")
    @click.option("--passage-prefix", default="", metavar="TEXT", help="Before every text that is stored.")
    @click.option(
        "--spec",
        type=click.Path(path_type=Path),
        help="Document: its endpoints instead of a URL, its plan for what the engine takes.",
    )
    @click.option("--key", envvar="ROADWORTHY_KEY", help="The tenant's key; better in ROADWORTHY_KEY.")
    @wraps(function)
    def choosing(
        embeddings: str | None,
        embedding_model: str | None,
        query_prefix: str,
        passage_prefix: str,
        spec: Path | None,
        key: str | None,
        **more: Any,
    ) -> Any:
        choice = EmbeddingChoice(
            url=embeddings, model=embedding_model, query_prefix=query_prefix, passage_prefix=passage_prefix, spec=spec,
            key=key,
        )  # fmt: skip
        return function(embedding=choice, **more)

    return choosing


def served_of(chosen: EmbeddingChoice, *, known: ServedModel | None = None) -> Served | None:
    """The embedding behind an endpoint that the options name, or the one that made the library's vectors; None where
    there is neither.

    Args:
        known: the library's. A name or prefixes that are not given are its own.

    Raises:
        SpecError: a model without a place where it answers, or another one than the library's.
    """
    from roadworthy.adapters.longdoc_embedder import REEMBED, Served, ServedModel
    from roadworthy.adapters.longdoc_model import ModelClient
    from roadworthy.core.errors import SpecError

    url, key = chosen.url, chosen.key
    if url is None and chosen.model is not None:
        url = _endpoint_with(chosen.model, chosen.spec, key) or (known.url if known is not None else None)
        if url is None:
            raise SpecError(
                f"where does {chosen.model} answer?", hint="--embeddings URL, or --spec FILE with endpoints"
            )
    if known is not None:
        ours = known
    elif url is not None:
        ours = ServedModel(model=chosen.model or ModelClient(url, key=key).model)
    else:
        return None
    wanted = replace(
        ours, model=chosen.model or ours.model, url=url or ours.url,
        query_prefix=chosen.query_prefix or ours.query_prefix,
        passage_prefix=chosen.passage_prefix or ours.passage_prefix,
    )  # fmt: skip
    if known is not None and known.identity != wanted.identity:
        raise SpecError(
            f"the library's vectors are of {known.model} ({known.dimension} numbers), not of {wanted.model}",
            hint=f"{REEMBED}; or choose another library with --home",
        )
    return Served(ModelClient(wanted.url, model=wanted.model, key=key, timeout_s=EMBEDDING_TIMEOUT_S), wanted)


def reranker_of(model: str, url: str | None, chosen: EmbeddingChoice) -> ModelClient:
    """The reranker ``model``, at ``url`` or at the endpoint of the document that serves it."""
    from roadworthy.adapters.longdoc_model import ModelClient
    from roadworthy.core.errors import SpecError

    place = url or _endpoint_with(model, chosen.spec, chosen.key)
    if place is None:
        raise SpecError(f"where does {model} answer?", hint="--reranker-url URL, or --spec FILE with endpoints")
    return ModelClient(place, model=model, key=chosen.key, timeout_s=EMBEDDING_TIMEOUT_S)


def _endpoint_with(model: str, spec: Path | None, key: str | None) -> str | None:
    """The first endpoint of a document that lists ``model``; None without a document."""
    if spec is None:
        return None
    from roadworthy.adapters.documents import load_document
    from roadworthy.adapters.longdoc_model import ModelClient
    from roadworthy.core.errors import ProbeError, RoadworthyError

    endpoints = [endpoint.url for endpoint in load_document(str(spec)).engine.endpoints]
    reasons = []
    for url in endpoints:
        try:
            listed = ModelClient(url, key=key, timeout_s=10.0).listed()
        except RoadworthyError as error:
            reasons.append(str(error))
        else:
            if model in listed:
                return url
            reasons.append(f"{url} serves {', '.join(listed) or 'nothing'}")
    raise ProbeError(
        f"no endpoint of {spec} serves {model}: {'; '.join(reasons) or 'it names none'}",
        hint="engine.endpoints in the document, or give the URL",
    )


def home_or_default(home: Path | None) -> Path:
    return home or Path.home() / ".roadworthy"


def open_store(home: Path | None) -> DocumentStore:
    """The store in ``home``. Raises Unsupported without the extra that reads documents."""
    import importlib.util

    from roadworthy.adapters.embeddings import numpy_on_one_core
    from roadworthy.core.errors import Unsupported

    numpy_on_one_core()
    if importlib.util.find_spec("numpy") is None:
        raise Unsupported("long documents need numpy", hint="pip install 'roadworthy[longdoc]'")
    from roadworthy.adapters.longdoc_store import DocumentStore

    return DocumentStore(home_or_default(home))


def open_recogniser(home: Path) -> AbstractContextManager[Recogniser | None]:
    """OCR, where there is some."""
    from roadworthy.adapters.longdoc_read import ocr

    return ocr.open_recogniser(home / ocr.OCR_CACHE)
