"""`roadworthy doc batch`: every clause of a contract against a playbook, as a job that can be taken up again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roadworthy.cli.doc_options import budget_of, client_of, home_option, home_or_default, model_options, open_store

if TYPE_CHECKING:
    from roadworthy.longdoc.playbook import Playbook


@click.command()
@click.argument("playbook", type=click.Path(path_type=Path))
@home_option
@model_options
@click.option("--document", required=True, help="The contract, as `doc list` names it.")
@click.option(
    "--job", "job_file", type=click.Path(path_type=Path), help="Where results are kept (in the store's folder)."
)
@click.option("--parallel", default=4, show_default=True, type=click.IntRange(1, 64), help="Requests at a time.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the risk table as a page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def batch(
    playbook: Path,
    home: Path | None,
    url: str,
    key: str | None,
    model: str | None,
    budget: int | None,
    spec: Path | None,
    answer_tokens: int | None,
    document: str,
    job_file: Path | None,
    parallel: int,
    html: Path | None,
    as_json: bool,
) -> int:
    """Compare every clause of a contract with a playbook; a risk table, each finding with its words in the text.

    Interrupted, the same command goes on where it stopped. Exit code 1 with a risk, 3 when clauses could not be read.
    """
    from roadworthy.adapters.longdoc_compare import Comparison
    from roadworthy.adapters.longdoc_job import JobFile, job_path
    from roadworthy.adapters.longdoc_library import StoreLibrary
    from roadworthy.adapters.report_files import require_writable
    from roadworthy.cli.doc_risk import risk_page, risk_text
    from roadworthy.cli.output import print_json, say
    from roadworthy.longdoc.shown import risk_json

    book = _playbook(playbook)
    if html is not None:
        require_writable(html)
    client = client_of(url, key, model)
    with open_store(home) as store:
        library = StoreLibrary(store, home_or_default(home), [document])
        (name,) = library.documents
        clauses = library.of_document(name)
    tokens = budget_of(client, budget, spec, answer_tokens).answer_tokens
    with JobFile(job_file or job_path(home_or_default(home), name, book.digest, client.model)) as job:
        say(f"job {job.path}")
        run = Comparison(book=book, clauses=clauses, client=client, job=job, max_tokens=tokens, progress=_progress)
        run.all(parallel)
    rows = run.rows()
    if html is not None:
        from roadworthy.adapters.files import write_atomically

        write_atomically(html, risk_page(book, name, rows, run.unread, len(clauses)))
    if as_json:
        print_json(risk_json(book, name, client.model, rows, run.unread, len(clauses), run.resumed))
    else:
        risk_text(book, name, rows, run.unread, len(clauses))
    if run.unread:
        say(f"{len(run.unread)} of {len(clauses)} clauses were not compared; the same command tries them again")
        return 3
    return 1 if any(row.risk for row in rows) else 0


def _playbook(path: Path) -> Playbook:
    import yaml

    from roadworthy.adapters.files import read_text
    from roadworthy.core.errors import SpecError
    from roadworthy.longdoc.playbook import parse_playbook

    text = read_text(path, what="playbook")
    try:
        data = yaml.safe_load(text)  # JSON is YAML
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SpecError(
            f"{path}: neither YAML nor JSON: {str(error)[:200]}", hint="see docs/guides/documents.md"
        ) from None
    return parse_playbook(data, str(path))


def _progress(done: int, of: int, end: bool) -> None:
    if os.isatty(2):
        click.echo(f"\r{done:,} of {of:,} clauses", err=True, nl=end)
