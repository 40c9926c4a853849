"""The risk table of a comparison: for a terminal, as JSON, as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from roadworthy.cli.doc_ask import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.longdoc.playbook import Playbook, Row

MEANING = {
    "deviates": "deviates from the playbook", "missing": "no clause bears on it, and the playbook requires one",
    "unclear": "bears on it, not clear how", "unverified": "the model's quotations do not stand in the clauses",
    "unread": "not all clauses were compared", "meets": "meets the playbook",
    "absent": "no clause bears on it, and none is required",
}  # fmt: skip


def risk_text(book: Playbook, document: str, rows: Sequence[Row], unread: Mapping[str, str], clauses: int) -> None:
    """The table on stdout, then what each row with a risk rests on."""
    from rich.markup import escape
    from rich.table import Table

    from roadworthy.cli.output import console

    title = f"{document} against {book.name}: {clauses - len(unread)} of {clauses} clauses"
    table = Table(title=escape(title), box=None)
    for column in ("risk", "check", "severity", "status", "where"):
        table.add_column(column, justify="right" if column == "risk" else "left")
    for row in rows:
        table.add_row(str(row.risk), escape(row.check.topic), row.check.severity, row.status, escape(_sections(row)))
    console().print(table)
    for row in rows:
        if not row.risk:
            continue
        click.echo(f"\n{row.check.topic}: {MEANING[row.status]}\n  wanted: {row.check.wanted}")
        for one in row.judgements[:5]:
            mark = "" if one.verified else " (not verified)"
            click.echo(f"  {clean(one.section) or 'clause'}: {one.verdict}{mark}. {clean(one.why)}")
            for each in one.citations:
                click.echo(f"    “{clean(each.quote)}” ({each.start}-{each.end})")
    for clause, reason in list(unread.items())[:10]:
        click.echo(f"\nnot compared: {clean(clause)}: {clean(reason)}")


def _sections(row: Row) -> str:
    names = list(dict.fromkeys(clean(one.section) for one in row.judgements if one.section))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def risk_page(book: Playbook, document: str, rows: Sequence[Row], unread: Mapping[str, str], clauses: int) -> str:
    """One self-contained page."""
    from roadworthy.bench.report_page import page

    subtitle = f"{document} against {book.name}. {clauses - len(unread)} of {clauses} clauses were compared."
    return page("Risk table", _body(rows, unread), subtitle=subtitle)


def _body(rows: Sequence[Row], unread: Mapping[str, str]) -> Iterator[str]:
    from html import escape

    from roadworthy.bench.report_page import notes, paragraph, table

    yield table(
        ("risk", "check", "severity", "status", "where"),
        [(str(row.risk), row.check.topic, row.check.severity, row.status, _sections(row)) for row in rows],
    )
    for row in rows:
        if not row.risk:
            continue
        yield f"<h2>{escape(row.check.topic)}</h2>"
        yield paragraph(f"{MEANING[row.status].capitalize()}. Wanted: {row.check.wanted}", "note")
        yield notes(
            f"{one.section}: {one.verdict}{'' if one.verified else ' (not verified)'}. {one.why} "
            + " ".join(f"“{each.quote}” ({each.start}-{each.end})" for each in one.citations)
            for one in row.judgements
        )
    if unread:
        yield "<h2>Not compared</h2>"
        yield notes(f"{clause}: {reason}" for clause, reason in unread.items())
