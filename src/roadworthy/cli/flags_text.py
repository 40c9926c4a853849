"""What `roadworthy flags` prints: one name explained, tables of many, the difference of two versions."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from roadworthy.catalog.environment import VariableAnswer, VariableFact, environment_catalog, owner_of
from roadworthy.catalog.flag_changes import Change, flag_changes
from roadworthy.catalog.flags import FLAG_VERSIONS, FlagAnswer, FlagFact, FlagMatch, KeyFact, flag_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WIDTH = 100
"""Columns of an explanation; tables take the terminal's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One name as asked, with everything that is known of it.

    Args:
        versions: the versions known here that take it, oldest first.
        changes: what became different between neighbouring versions, in words.
    """

    version: str
    answer: FlagAnswer | VariableAnswer
    flag: FlagMatch | None = None
    variable: VariableFact | None = None
    versions: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


def explained(name: str, version: str) -> Explained:
    """``name`` as a flag or a variable of that version; a flag may be written without its dashes."""
    environment = environment_catalog(version)
    if not name.startswith("-") and (environment.find(name.upper()) or owner_of(name) or name.isupper()):
        takes = tuple(one for one in reversed(FLAG_VERSIONS) if environment_catalog(one).find(name))
        return Explained(
            version=environment.version,
            answer=environment.explain(name),
            variable=environment.find(name),
            versions=takes,
        )
    catalog = flag_catalog(version)
    spelt = name if name.startswith("-") else f"--{name}"
    answer = catalog.explain(spelt)
    full = catalog.abbreviates(spelt)
    match = catalog.match(full[0] if answer.accepted and len(full) == 1 else spelt)
    takes = tuple(one for one in reversed(FLAG_VERSIONS) if flag_catalog(one).match(spelt))
    changes = tuple(_changes(match.flag.name)) if match else ()
    return Explained(version=catalog.version, answer=answer, flag=match, versions=takes, changes=changes)


def _changes(name: str) -> Iterator[str]:
    oldest_first = tuple(reversed(FLAG_VERSIONS))
    for old, new in pairwise(oldest_first):
        for change in flag_changes(flag_catalog(old), flag_catalog(new)):
            if change.name == name:
                yield f"{new}: {'; '.join(change.details) if change.details else change.what}"


def print_explained(one: Explained) -> None:
    """The explanation of one name, each line with its label."""
    click.echo(f"{one.answer.name}: {one.answer.status.replace('_', ' ')}")
    for label, text in _lines(one):
        if text:
            body = textwrap.wrap(text, WIDTH - 14, break_long_words=False, break_on_hyphens=False)
            click.echo(f"  {label:<12}" + ("\n" + " " * 14).join(body))


def _lines(one: Explained) -> Iterator[tuple[str, str]]:
    if one.flag is not None:
        yield from _flag_lines(one.flag)
    if one.variable is not None:
        fact = one.variable
        yield "owner", fact.owner
        yield "values", fact.values
        yield "choices", ", ".join(fact.choices)
        yield "default", fact.default
        yield "since", fact.since
    yield "known by", ", ".join(f"vLLM {version}" for version in one.versions) if one.flag else ""
    for change in one.changes:
        yield "changed", change
    yield "why", one.answer.reason
    yield "instead", one.answer.replacement
    yield "source", one.answer.source
    yield "row", one.answer.row_id


def _flag_lines(match: FlagMatch) -> Iterator[tuple[str, str]]:
    fact = match.flag
    if match.key_path:
        yield "key of", fact.name
        if match.key is not None:
            yield from _key_lines(match.key)
        return
    yield "means", f"{fact.name} turned off" if match.negated else ""
    yield "spellings", ", ".join(fact.spellings)
    yield "off", ", ".join(fact.negative)
    yield "kind", _kind(fact)
    yield "choices", ", ".join(fact.choices) + (", and others" if fact.choices and fact.open_choices else "")
    yield "keys", ", ".join(fact.keys) + (", and any other" if fact.keys and fact.open_keys else "")
    yield "default", _value(fact.default)


def _key_lines(key: KeyFact) -> Iterator[tuple[str, str]]:
    yield "kind", key.kind
    yield "choices", ", ".join(key.choices)
    yield "keys", ", ".join(key.keys)
    yield "default", _value(key.default)


def _kind(fact: FlagFact) -> str:
    words: list[str] = [fact.kind]
    if fact.kind == "list":
        words.append(f"of {fact.nargs} values" if isinstance(fact.nargs, int) else "of values, each a word of its own")
    if fact.nargs == "?":
        words.append("or nothing")
    if fact.suffixes:
        words.append("(8k is 8000, 8K is 8192)")
    if fact.words:
        words.append("or " + ", ".join(fact.words))
    if fact.text_too:
        words.append("or text")
    if fact.repeated:
        words.append("may be repeated")
    if fact.deprecated:
        words.append("announced to go away")
    return " ".join(words)


def _value(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def explained_json(one: Explained) -> Mapping[str, Any]:
    """One name for ``--json``: the answer, then what is known of the flag or variable."""
    answer = one.answer
    document: dict[str, Any] = {
        "name": answer.name,
        "type": "variable" if isinstance(answer, VariableAnswer) else "flag",
        "status": answer.status,
        "accepted": answer.accepted,
        "reason": answer.reason,
        "replacement": answer.replacement,
        "renamed_to": answer.renamed_to,
        "source": answer.source,
        "row": answer.row_id,
        "versions": one.versions,
        "changes": one.changes,
    }
    if one.flag is not None:
        document["flag"] = flag_json(one.flag.flag)
        document["negated"] = one.flag.negated
        document["key_path"] = one.flag.key_path
    if one.variable is not None:
        document["variable"] = one.variable
    return document


def flag_json(fact: FlagFact) -> Mapping[str, Any]:
    """One flag for ``--json``."""
    return {
        "name": fact.name,
        "setting": fact.setting,
        "kind": fact.kind,
        "spellings": fact.spellings,
        "negative": fact.negative,
        "choices": fact.choices,
        "open_choices": fact.open_choices,
        "nargs": fact.nargs,
        "keys": tuple(fact.keys),
        "open_keys": fact.open_keys,
        "deprecated": fact.deprecated,
        "default": fact.default,
    }


def print_flag_table(facts: Sequence[FlagFact]) -> None:
    """Name, kind, default and choices of each flag."""
    rows = []
    for fact in facts:
        short = [one for one in fact.spellings if not one.startswith("--")]
        taken = ", ".join(fact.choices) if fact.choices else f"{len(fact.keys)} keys" if fact.keys else ""
        rows.append((", ".join([fact.name, *short]), fact.kind, _value(fact.default), taken))
    _print_table(("flag", "kind", "default", "takes"), rows)


def print_variable_table(facts: Sequence[VariableFact]) -> None:
    """Name, owner, default and values of each variable."""
    rows = [(fact.name, fact.owner, fact.default, ", ".join(fact.choices) or fact.values) for fact in facts]
    _print_table(("variable", "owner", "default", "takes"), rows)


def _print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from roadworthy.cli.output import console

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for index, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", no_wrap=index < 2, max_width=None if index != 2 else 24)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console().print(table)


def print_changes(old: str, new: str, flags: Sequence[Change], variables: Sequence[Change]) -> None:
    """Flags and variables that came, went, or take something else from ``old`` to ``new``."""
    click.echo(f"{old} -> {new}")
    for title, changes in (("flags", flags), ("variables", variables)):
        for what in ("added", "removed", "changed"):
            these = [change for change in changes if change.what == what]
            if not these:
                continue
            click.echo(f"\n{title} {what}: {len(these)}")
            for change in these:
                click.echo(f"  {change.name}" + (f"  {'; '.join(change.details)}" if change.details else ""))
    if not flags and not variables:
        click.echo("no difference")
