"""`bench URL` is `bench run URL`, and a subcommand's name is a subcommand."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from roadworthy.cli.bench import command
from roadworthy.cli.default_group import DefaultGroup


@click.group(cls=DefaultGroup)
def group() -> None:
    """A group with a default."""


@group.command()
@click.argument("what", required=False)
@click.option("--loud", is_flag=True)
def run(what: str | None, loud: bool) -> None:
    """The default."""
    click.echo(f"run {what} {loud}")


@group.command()
@click.argument("what")
def other(what: str) -> None:
    """The other one."""
    click.echo(f"other {what}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["http://x"], "run http://x False"),
        (["--loud", "x"], "run x True"),
        ([], "run None False"),
        (["run", "x"], "run x False"),
        (["other", "x"], "other x"),
        (["./other"], "run ./other False"),
    ],
)
def test_what_is_no_subcommand_goes_to_the_default(arguments: list[str], said: str) -> None:
    assert CliRunner().invoke(group, arguments).output.strip() == said


def test_help_shows_the_defaults_options_and_the_other_subcommands() -> None:
    text = CliRunner().invoke(group, ["--help"]).output
    assert "--loud" in text
    assert "The other one." in text
    assert "{other}" in text


def test_bench_has_its_five_ways() -> None:
    assert set(command.commands) == {"run", "sweep", "compare", "probe", "verify"}
    text = CliRunner().invoke(command, ["--help"]).output
    for name in ("sweep", "compare", "probe", "--requests", "--trace"):
        assert name in text


def test_a_bare_rate_is_a_seconds() -> None:
    from roadworthy.cli.bench_options import RATE

    assert RATE.convert("16", None, None) == RATE.convert("16/s", None, None) == 16.0
    assert RATE.convert("90/min", None, None) == 1.5
