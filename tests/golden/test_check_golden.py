"""What `roadworthy check --from` prints of kept captures, whole: a fabric with one slow port and two NICs that do not
reach each other, and two hosts of which one has a NIC down. Refresh with UPDATE_GOLDEN=1."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roadworthy.cli import check

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
GOLDEN = Path(__file__).parent / "check"


@pytest.mark.parametrize("name", ["slow-port", "one-nic-down"])
def test_the_report_is_as_recorded(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.command.main(["--from", str(CAPTURES / name)], standalone_mode=False) == 1
    lines = capsys.readouterr().out.splitlines(keepends=True)
    printed = "".join(line for line in lines if not line.startswith("   Remedy: "))  # those belong to the causes' pages
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(printed, encoding="utf-8")
    assert printed == file.read_text(encoding="utf-8")
