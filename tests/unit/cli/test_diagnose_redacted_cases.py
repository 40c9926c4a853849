"""Labelled cases, redacted: no address and no name of a host or pod that the incident gave is left in the report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from roadworthy.cli.diagnose import Report, document_of
from roadworthy.cli.output import plain
from roadworthy.diagnose.examine import examine
from roadworthy.diagnose.redact import COMMON_NAMES, Redactor
from roadworthy.diagnose.timeline import reach, timeline
from roadworthy.diagnose.verdict import verdict_of

CASES = sorted((Path(__file__).parents[2] / "data" / "doctor").glob("*/*.yaml"))[::19]
LOCAL = ("127.", "0.0.0.0", "255.")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_nothing_that_names_a_machine_is_left(path: Path) -> None:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    inputs = case.get("inputs") if isinstance(case, dict) else None
    if not isinstance(inputs, dict):
        pytest.skip("no case")
    book, judged = examine(inputs)
    report = Report(
        verdict=verdict_of(book, judged), events=timeline(book, set()), reached=reach(book), skipped=(), files=1,
        bytes=1,
    )  # fmt: skip
    document = document_of(Redactor(hosts=book.hosts(), files=inputs).value(report))
    text = json.dumps(plain({key: document[key] for key in ("notes", "symptoms", "timeline", "reach")}))
    text += json.dumps(plain([(one.subject, one.diagnosis, one.evidence) for one in document["findings"]]))  # type: ignore[attr-defined]
    addresses = re.findall(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?!\d)", text)
    assert [one for one in addresses if not one.startswith(LOCAL)] == []
    hosts = [
        one for one in book.hosts() if len(one) > 2 and one.lower() not in COMMON_NAMES and not one.startswith("host-")
    ]
    assert [one for one in hosts if re.search(rf"(?<![A-Za-z0-9]){re.escape(one)}(?![A-Za-z0-9])", text)] == []
