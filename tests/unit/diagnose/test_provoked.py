"""Logs of faults that were provoked for real (scripts/provoke_faults.py --keep): each names its cause."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from roadworthy.diagnose.examine import examine

ROOT = Path(__file__).parents[3]
LOGS = ROOT / "tests" / "data" / "doctor" / "provoked"
FAULTS = {fault.name: fault for fault in runpy.run_path(str(ROOT / "scripts" / "provoke_faults.py"))["FAULTS"]}


def test_every_fault_that_can_be_provoked_has_its_log() -> None:
    assert {path.name for path in LOGS.iterdir()} == FAULTS.keys()


@pytest.mark.parametrize("name", FAULTS)
def test_a_captured_fault_names_its_cause(name: str) -> None:
    _, judged = examine({"engine.log": (LOGS / name / "engine.log").read_text()})
    wanted = FAULTS[name].wanted
    assert [one.code for one in judged.findings[:1]] == ([wanted] if wanted else [])
