"""`roadworthy doc search`: the units that answer a question, best first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roadworthy.cli.doc_options import (
    embedding_options,
    home_option,
    home_or_default,
    open_store,
    reranker_of,
    served_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roadworthy.cli.doc_options import EmbeddingChoice
    from roadworthy.longdoc.search import Hit


@click.command()
@click.argument("question", required=False)
@home_option
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1, 1000), help="Results for each question.")
@click.option(
    "--batch", type=click.Path(path_type=Path), help="A file with a question on each line (or JSON with `question`)."
)
@click.option("--document", "documents", multiple=True, help="Only this document; may be repeated.")
@click.option("--reranker", metavar="MODEL", help="Reranker that orders what is found (/v1/rerank, else /v1/score).")
@click.option("--reranker-url", envvar="ROADWORTHY_URL", metavar="URL", help="Where it answers: the gateway, or vLLM.")
@embedding_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --batch one line for each question.")
def search(
    question: str | None,
    home: Path | None,
    limit: int,
    batch: Path | None,
    documents: tuple[str, ...],
    reranker: str | None,
    reranker_url: str | None,
    embedding: EmbeddingChoice,
    as_json: bool,
) -> int:
    """Find the units that answer a question."""
    from roadworthy.adapters.longdoc_library import Reranked, StoreLibrary
    from roadworthy.cli.output import plain, print_json, say
    from roadworthy.core.errors import SpecError
    from roadworthy.longdoc.shown import hit_json

    if (question is None) == (batch is None):
        raise click.UsageError("give a question, or --batch FILE")
    if batch is None and not (question and question.strip()):
        raise SpecError("an empty question finds nothing", hint='such as: roadworthy doc search "第1024条"')
    with open_store(home) as store:
        served = served_of(embedding, known=store.served.model())
        if not store.documents():
            return _nothing(question, batch, as_json=as_json)
        library: StoreLibrary | Reranked = StoreLibrary(store, home_or_default(home), documents, served=served, say=say)
        if reranker is not None:
            library = Reranked(library, reranker_of(reranker, reranker_url, embedding).rerank, say)
        if batch is not None:
            for line in _questions(batch):
                hits = library.search(line, limit=limit)
                if as_json:
                    found = plain({"query": line, "results": [hit_json(hit) for hit in hits]})
                    click.echo(json.dumps(found, ensure_ascii=False))
                else:
                    click.echo("\n".join([line, *_lines(hits), ""]))
            return 0
        assert question is not None
        hits = library.search(question, limit=limit)
    if as_json:
        print_json({"query": question, "results": [hit_json(hit) for hit in hits]})
    else:
        click.echo("\n".join(_lines(hits)))
    return 0


def _nothing(question: str | None, batch: Path | None, *, as_json: bool) -> int:
    """A store without documents finds nothing, and says so."""
    from roadworthy.cli.output import print_json

    if batch is not None:
        for line in _questions(batch):
            click.echo(json.dumps({"query": line, "results": []}, ensure_ascii=False) if as_json else line)
    elif as_json:
        print_json({"query": question, "results": []})
    else:
        click.echo("nothing is stored yet: roadworthy doc ingest FILE")
    return 0


def _questions(path: Path) -> Iterator[str]:
    from roadworthy.core.errors import ProbeError

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ProbeError(f"{path}: {error}", hint="one question a line, in UTF-8") from error
    for line in lines:
        if not line.strip():
            continue
        try:
            record = json.loads(line) if line.lstrip().startswith("{") else None
        except ValueError:
            record = None
        asked = (record.get("question") or record.get("query")) if isinstance(record, dict) else line.strip()
        yield str(asked)


def _lines(hits: Sequence[Hit]) -> list[str]:
    from roadworthy.cli.doc_ask import clean

    lines = []
    for number, hit in enumerate(hits, 1):
        unit = hit.stored.unit
        where = " > ".join((*unit.path, unit.label))
        place = f"({hit.stored.document}, {unit.char_start}-{unit.char_end})"
        lines.append(f"{number}. {clean(where)}  {clean(unit.title)}  {place}")
        lines.append(f"   {clean(unit.text)[:160]}")
    return lines
