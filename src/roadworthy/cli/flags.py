"""`roadworthy flags`: what an engine version takes, by its own parser, and what became of what it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from roadworthy.core.errors import SpecError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.cli.flags_text import Explained


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--engine", metavar="VERSION", help="Such as vllm==0.33.0; the newest that is known when left out.")
@click.option("--match", metavar="TEXT", help="List only names that contain TEXT.")
@click.option("--environment", is_flag=True, help="List environment variables instead of flags.")
@click.option("--diff", nargs=2, metavar="OLD NEW", help="Print what changed between two versions.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    names: tuple[str, ...],
    engine: str | None,
    match: str | None,
    environment: bool,
    diff: tuple[str, str] | None,
    as_json: bool,
) -> None:
    """List or explain flags of `vllm serve` and environment variables, by engine version.

    NAME is a flag in any spelling (--max-num-seqs, -tp, --eplb-config.window_size) or a variable (NCCL_IB_HCA). Without
    one, all flags are listed. Exit code 2: the version does not have it; the message says what to use instead.
    """
    if diff is not None:
        if names or engine or match or environment:
            raise SpecError("--diff: takes two versions and --json only", hint="roadworthy flags --diff 0.32.0 0.33.0")
        _diff(*diff, as_json=as_json)
        return
    version = engine_version(engine)
    if names:
        _explain(names, version, as_json=as_json)
    elif environment:
        _list_variables(version, match or "", as_json=as_json)
    else:
        _list_flags(version, match or "", as_json=as_json)


def engine_version(engine: str | None) -> str:
    """The version in ``vllm==0.33.0`` or ``0.33.0``; the newest known for None. Raises Unsupported."""
    from roadworthy.catalog.flags import FLAG_VERSIONS, flag_catalog

    if engine is None:
        return FLAG_VERSIONS[0]
    name, equals, version = engine.partition("==")
    if equals and name.strip().lower() != "vllm":
        raise Unsupported(f"--engine {engine}: flags of {name} are not known here", hint=f"vllm=={FLAG_VERSIONS[0]}")
    flag_catalog(version if equals else engine)
    return version if equals else engine


def _explain(names: Sequence[str], version: str, *, as_json: bool) -> None:
    """Every answer, then Unsupported when one of the names is not there."""
    from roadworthy.cli.flags_text import explained, explained_json, print_explained

    found = [explained(name, version) for name in names]
    if as_json:
        from roadworthy.cli.output import print_json

        print_json({"engine": "vllm", "version": found[0].version, "settings": [explained_json(one) for one in found]})
    else:
        for one in found:
            if one.answer.accepted:
                print_explained(one)
    missing = [one for one in found if not one.answer.accepted]
    if missing:
        raise _unsupported(missing)


def _unsupported(missing: Sequence[Explained]) -> Unsupported:
    first = missing[0]
    message = f"{first.answer.name}: {first.answer.status.replace('_', ' ')}: {first.answer.reason}"
    rest = "".join(f"\n{one.answer.name}: {one.answer.reason}; {one.answer.replacement}" for one in missing[1:])
    return Unsupported(message + rest, hint=first.answer.replacement)


def _list_flags(version: str, text: str, *, as_json: bool) -> None:
    from roadworthy.catalog.flags import flag_catalog
    from roadworthy.cli.flags_text import flag_json, print_flag_table

    catalog = flag_catalog(version)
    facts = [fact for fact in catalog.flags.values() if text.lower() in " ".join((*fact.spellings, *fact.negative))]
    if as_json:
        from roadworthy.cli.output import print_json

        shown = [flag_json(fact) for fact in facts]
        print_json({"engine": catalog.engine, "version": catalog.version, "flags": shown})
        return
    print_flag_table(facts)
    click.echo(f"{len(facts)} flags of {catalog.label}; `roadworthy flags NAME` explains one", err=True)


def _list_variables(version: str, text: str, *, as_json: bool) -> None:
    from roadworthy.catalog.environment import environment_catalog
    from roadworthy.cli.flags_text import print_variable_table

    catalog = environment_catalog(version)
    facts = [fact for name, fact in catalog.variables.items() if text.lower() in name.lower()]
    if as_json:
        from roadworthy.cli.output import print_json

        print_json({"engine": "vllm", "version": catalog.version, "variables": facts})
        return
    print_variable_table(facts)
    click.echo(f"{len(facts)} variables around vLLM {catalog.version}", err=True)


def _diff(old: str, new: str, *, as_json: bool) -> None:
    from roadworthy.catalog.flag_changes import flag_changes, variable_changes
    from roadworthy.catalog.flags import flag_catalog

    before, after = flag_catalog(engine_version(old)), flag_catalog(engine_version(new))
    flags, variables = flag_changes(before, after), variable_changes(before.version, after.version)
    if as_json:
        from roadworthy.cli.output import print_json

        versions = {"old": before.version, "new": after.version}
        print_json({"engine": "vllm", **versions, "flags": flags, "variables": variables})
        return
    from roadworthy.cli.flags_text import print_changes

    print_changes(before.label, after.label, flags, variables)
