"""`roadworthy doc`: long documents in, answers with their place out."""

from __future__ import annotations

from pathlib import Path

import click

from roadworthy.cli.doc_ask import ask
from roadworthy.cli.doc_batch import batch
from roadworthy.cli.doc_ingest import embed, ingest
from roadworthy.cli.doc_options import home_option, home_or_default, open_store
from roadworthy.cli.doc_search import search


@click.group()
def command() -> None:
    """Read long documents and find the passage that answers, by number, words and meaning."""


command.add_command(ingest)
command.add_command(embed)
command.add_command(search)
command.add_command(ask)
command.add_command(batch)


@command.command("list")
@home_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_(home: Path | None, as_json: bool) -> int:
    """List the documents in the store."""
    from roadworthy.cli.output import print_json

    with open_store(home) as store:
        documents = store.documents()
    if as_json:
        print_json({"documents": documents})
    else:
        click.echo(
            "\n".join(f"{one.name}  {one.units:,} units, {one.characters:,} characters" for one in documents)
            or "nothing is stored"
        )
    return 0


@command.command()
@click.argument("name")
@home_option
def remove(name: str, home: Path | None) -> int:
    """Delete a document with its units, vectors and comparisons."""
    from roadworthy.adapters.library.erase import scrub
    from roadworthy.adapters.longdoc_index import drop_indexes
    from roadworthy.adapters.longdoc_job import drop_jobs
    from roadworthy.adapters.longdoc_read.ocr import drop_recognised
    from roadworthy.core.errors import SpecError

    with open_store(home) as store:
        if not store.remove(name):
            raise SpecError(f"{name!r} is not in the store", hint="`roadworthy doc list` shows what is")
        drop_indexes(home_or_default(home))
        drop_jobs(home_or_default(home), name)
    drop_recognised(home_or_default(home))
    scrub(home_or_default(home))
    click.echo(f"removed {name}", err=True)
    return 0
