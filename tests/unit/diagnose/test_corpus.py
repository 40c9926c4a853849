"""The labelled development cases, as they are: nothing that was right may be lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from roadworthy.diagnose.causes import CAUSES
from roadworthy.diagnose.examine import examine

DOCTOR = Path(__file__).parents[2] / "data" / "doctor"
CASES = sorted([*DOCTOR.glob("cases/*.yaml"), *DOCTOR.glob("reports/*.yaml")])


def case_of(path: Path) -> dict[str, Any]:
    case = yaml.safe_load(path.read_text())
    assert isinstance(case, dict)
    return case


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_cause_comes_first_and_a_benign_case_raises_no_alarm(path: Path) -> None:
    case = case_of(path)
    _, judged = examine(case["inputs"])
    codes = [one.code for one in judged.findings]
    if case["label"] == "benign":
        assert codes == []
    elif case["label"] == "confirmed":
        assert codes[:1] == [case["expected"]["root_cause"]]
    for finding in judged.findings:
        assert finding.evidence, "a finding quotes what was seen"
        for quoted in finding.evidence:
            line = case["inputs"][quoted.file].splitlines()[quoted.line - 1]
            assert quoted.text[:80] in line, "file and line lead to the text"


def test_every_cause_of_the_taxonomy_is_known() -> None:
    taxonomy = yaml.safe_load((DOCTOR / "taxonomy.yaml").read_text())
    wanted = {entry["id"] for entry in taxonomy["root_causes"]} - {"healthy"}
    assert {cause.code for cause in CAUSES} == wanted
