"""Messages as other versions and tools print them, beyond the labelled cases: each leads to its cause, or to none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from roadworthy.diagnose.examine import examine

WORDINGS = yaml.safe_load((Path(__file__).parents[2] / "data" / "doctor" / "wordings.yaml").read_text())


@pytest.mark.parametrize("entry", WORDINGS, ids=[f"{n}-{entry['wanted']}" for n, entry in enumerate(WORDINGS)])
def test_a_wording_leads_to_its_cause(entry: dict[str, Any]) -> None:
    _, judged = examine(entry["inputs"])
    assert [one.code for one in judged.findings[:1]] == ([entry["wanted"]] if entry["wanted"] else [])
