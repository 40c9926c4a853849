"""Reports on a narrow terminal, and without blanks at the ends of lines in a pipe."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.table import Table
from rich.text import Text

from roadworthy.cli.cost import command as cost_command
from roadworthy.cli.narrow import Fitting, Stretching, Trimmed
from roadworthy.cli.plan import command as plan_command


def printed(renderable: object, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False).print(renderable)
    return stream.getvalue()


def numbers() -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("layout", "TTFT\nP99", "SLA"):
        table.add_column(name, no_wrap=True)
    table.add_row("2 x TP8 PP2", "175 ms", Text("missed"))
    table.add_row("TP8 PP4", "", Text("met"))
    return table


def test_a_table_that_fits_is_a_table() -> None:
    assert printed(Fitting(numbers()), 40) == printed(numbers(), 40)


def test_one_that_does_not_is_told_row_by_row_and_nothing_is_cut() -> None:
    text = printed(Fitting(numbers()), 20)
    assert text.splitlines() == ["2 x TP8 PP2", "  TTFT P99: 175 ms", "  SLA: missed", "TP8 PP4", "  SLA: met"]


def test_a_bar_takes_the_columns_there_are() -> None:
    bar = Stretching(lambda columns: Text("#" * columns), most=30)
    assert printed(bar, 50).strip() == "#" * 30
    assert printed(bar, 12).strip() == "#" * 12


@pytest.mark.parametrize("width", [40, 50, 80])
def test_a_plan_on_few_columns_is_within_them_and_cuts_no_number(width: int, examples: Path) -> None:
    runner = CliRunner(env={"COLUMNS": str(width), "NO_COLOR": "1"})
    result = runner.invoke(
        plan_command, ["--no-queueing", str(examples / "deepseek-v4-pro-32xh100.yaml")], standalone_mode=False
    )
    assert result.exception is None
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in result.stdout
    assert not any(line != line.rstrip() for line in lines)


def test_blanks_before_a_line_end_are_dropped_however_they_are_written() -> None:
    stream = io.StringIO()
    trimmed = Trimmed(stream)
    for piece in ("one  ", "  \n", "two ", "three\t\n\n", "  four"):
        trimmed.write(piece)
    trimmed.flush()
    assert stream.getvalue() == "one\ntwo three\n\n  four"
    assert trimmed.getvalue() == stream.getvalue()  # everything else is the stream's


def test_cost_is_without_them_too(examples: Path) -> None:
    result = CliRunner().invoke(cost_command, [str(examples / "deepseek-v4-pro-32xh100.yaml")], standalone_mode=False)
    assert not any(line != line.rstrip() for line in result.stdout.splitlines())
