"""What start-up would stumble over, as lines of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan


def warnings_report(best: LayoutPlan) -> RenderableType:
    """The warnings of the layout to run, each with the setting that mends it; nothing where there is none."""
    if not best.warnings:
        return Text("")
    lines = [
        _item(Text.assemble((warning.message, ""), (f"; {warning.mend}" if warning.mend else "", "bold")))
        for warning in best.warnings
    ]
    return Group(Text("\nStart-up", style="bold yellow"), *lines)


def _item(text: Text) -> Padding:
    line = Table.grid(padding=(0, 1, 0, 0))
    line.add_row("-", text)
    return Padding(line, (0, 0, 0, 2))
