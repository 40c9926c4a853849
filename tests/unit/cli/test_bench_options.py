"""Options of `bench`: quantities with units, refused in words that say what is wanted."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from roadworthy.cli.bench import command


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("--rate", "16x", "a rate with a unit, such as 16/s"),
        ("--rate", "0/s", "more than zero"),
        ("--duration", "20", "a duration with a unit, such as 250ms"),
        ("--duration", "soon", "a duration with a unit"),
        ("--success", "120%", "a share between 0 and 1"),
        ("--requests", "0", "x>=1"),
        ("--max-concurrency", "-1", "x>=1"),
        ("--timeout", "0s", "more than zero"),
    ],
)
def test_a_quantity_that_cannot_be_right_is_refused(option: str, value: str, wanted: str) -> None:
    result = CliRunner().invoke(command, ["http://127.0.0.1:1", option, value])
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.output
    assert wanted in result.output


def test_a_warm_up_that_leaves_nothing_is_refused() -> None:
    result = CliRunner().invoke(command, ["http://127.0.0.1:1", "--warmup", "20s", "--duration", "10s"])
    assert "leaves nothing" in str(result.exception)


def test_help_names_every_exit_code() -> None:
    text = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    for meaning in ("0: every objective met", "1: one missed", "2: wrong input", "3: the target"):
        assert meaning in text
