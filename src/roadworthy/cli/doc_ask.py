"""`roadworthy doc ask`: a question, answered from the stored documents with citations that were checked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from roadworthy.cli.doc_options import (
    budget_of,
    client_of,
    home_option,
    home_or_default,
    model_options,
    open_store,
    tokenizer_option,
)

if TYPE_CHECKING:
    from pathlib import Path

    from roadworthy.longdoc.cite import Citation
    from roadworthy.longdoc.converse import Answer, Claim, Library, RoundName

TASKS = {
    "locate": "looking for passages", "extract": "copying out what bears on it", "answer": "answering",
    "verify": "checking the answer",
}  # fmt: skip
NOT_THERE = "The documents do not say."


@click.command()
@click.argument("question")
@home_option
@model_options
@click.option("--document", "documents", multiple=True, help="Only this document; may be repeated.")
@tokenizer_option
@click.option("--reranker", metavar="MODEL", help="Model behind the same URL whose /v1/rerank orders what is found.")
@click.option("--quick", is_flag=True, help="One request: no rounds before the answer, none after it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def ask(
    question: str,
    home: Path | None,
    url: str,
    key: str | None,
    model: str | None,
    budget: int | None,
    spec: Path | None,
    answer_tokens: int | None,
    documents: tuple[str, ...],
    tokenizer: str,
    reranker: str | None,
    quick: bool,
    as_json: bool,
) -> int:
    """Answer a question from the stored documents; every claim with its place in the text, checked word for word.

    Exit code 1 when the model gave no claim that its citations bear out; that the documents do not say is an answer.
    """
    from roadworthy.adapters.longdoc_library import Reranked, StoreLibrary
    from roadworthy.adapters.longdoc_tokens import counter, counter_for
    from roadworthy.cli.output import print_json, say
    from roadworthy.core.errors import SpecError
    from roadworthy.longdoc.converse import Conversation
    from roadworthy.longdoc.shown import answer_json

    if not question.strip():
        raise SpecError(
            "an empty question has no answer", hint='such as: roadworthy doc ask "隐私权是什么？" --url URL'
        )
    client = client_of(url, key, model)
    with open_store(home) as store:
        library: Library = StoreLibrary(store, home_or_default(home), documents, say=say)
        if reranker is not None:
            library = Reranked(library, client_of(url, key, reranker).rerank, say)
        show = _Shown(words=not as_json)
        answer = Conversation(
            library=library, model=client, budget=budget_of(client, budget, spec, answer_tokens),
            count=counter(tokenizer) if tokenizer else counter_for(client.model),
            now_s=time.monotonic, listener=show, quick=quick,
        ).ask(question)  # fmt: skip
    if as_json:
        print_json(answer_json(answer, client.model))
    else:
        show.end(answer)
    return 1 if answer.outcome == "unverified" else 0


class _Shown:
    """Claims on stdout as they come, rounds on stderr."""

    def __init__(self, *, words: bool) -> None:
        self._words = words
        self._cited: dict[Citation, int] = {}
        self._told: set[str] = set()

    def round(self, name: RoundName) -> None:
        from roadworthy.cli.output import say

        say(f"{TASKS[name]} ...")

    def claim(self, claim: Claim) -> None:
        if self._words and claim.verified and claim.text not in self._told:
            self._told.add(claim.text)
            click.echo(f"{clean(claim.text)} {' '.join(f'[{self._number(one)}]' for one in claim.citations)}")

    def _number(self, citation: Citation) -> int:
        return self._cited.setdefault(citation, len(self._cited) + 1)

    def end(self, answer: Answer) -> None:
        """What could only be known at the end: claims that the last round mended or withdrew, places, notes."""
        for claim in answer.claims:
            self.claim(claim)
        if answer.outcome == "not_in_document":
            click.echo(NOT_THERE)
        for claim in answer.unverified:
            what = "Withdrawn" if claim.text in self._told else "Not verified"
            click.echo(f"\n{what}: {clean(claim.text)[:500]}\n  because: {clean('; '.join(claim.problems))}")
        if self._cited:
            click.echo("")
        for citation, number in self._cited.items():
            click.echo(f"[{number}] {_place(citation)}\n    “{clean(citation.quote)}”")
        if answer.outcome == "unverified" and not answer.unverified:
            click.echo("No answer: the model said nothing that could be checked.")
        for note in answer.notes:
            click.echo(f"note: {note}", err=True)


def _place(citation: Citation) -> str:
    page = f", page {citation.page}" if citation.page is not None else ""
    where = " > ".join(filter(None, (*citation.path, citation.section)))
    return clean(", ".join(filter(None, (citation.document, where)))) + f"{page}, {citation.start}-{citation.end}"


def clean(text: str) -> str:
    """``text`` on one line, without what would steer a terminal or turn the direction of reading: models and documents
    are strangers."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())
