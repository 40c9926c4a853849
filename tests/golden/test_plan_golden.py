"""The whole report of two plans, word for word. `UPDATE_GOLDEN=1 pytest tests/golden` rewrites them after a change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from roadworthy.cli.plan import command

GOLDEN = Path(__file__).resolve().parent / "plan"


@pytest.mark.parametrize("name", ["deepseek-v4-pro-32xh100", "kimi-k3-fp8-32xh100", "laptop"])
def test_the_report_is_as_recorded(name: str, examples: Path) -> None:
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    result = runner.invoke(command, [str(examples / f"{name}.yaml")], standalone_mode=False)
    ours = "\n".join(line.rstrip() for line in result.stdout.splitlines()) + f"\nexit code {result.return_value}\n"
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(ours, encoding="utf-8")
    assert ours == file.read_text(encoding="utf-8")
