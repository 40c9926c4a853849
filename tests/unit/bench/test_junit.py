"""JUnit XML: well-formed whatever a target said, and nothing that could not be told counts as passed."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from roadworthy.advise.verdict import SlaReport, judge
from roadworthy.bench.junit import junit_xml
from roadworthy.spec.values import Sla
from support.records import steady

SLA = Sla(ttft_p99_s=0.25, tpot_p99_s=0.04, success_ratio=1.0)


def parsed(report: SlaReport, title: str = "run") -> ElementTree.Element:
    return ElementTree.fromstring(junit_xml(title, report, facts=(("target", "http://x"),)))


def cases(root: ElementTree.Element) -> dict[str, str]:
    """Name of each test and what became of it: the tag of its first child."""
    return {one.attrib["name"]: one[0].tag for one in root.iter("testcase")}


def test_a_run_that_meets_everything_has_only_passes() -> None:
    root = parsed(judge(steady(1200), SLA, asked_rate_per_s=16.0))
    assert set(cases(root).values()) == {"system-out"}
    assert (root.attrib["failures"], root.attrib["errors"]) == ("0", "0")
    assert {"ttft_p99", "tpot_p99", "success"} <= set(cases(root))


def test_a_missed_objective_is_a_failure_with_its_numbers() -> None:
    root = parsed(judge(steady(1200, ttft_s=0.5), SLA, asked_rate_per_s=16.0))
    assert cases(root)["ttft_p99"] == "failure"
    message = next(one[0].attrib["message"] for one in root.iter("testcase") if one.attrib["name"] == "ttft_p99")
    assert message.startswith("missed: limit 250 ms, measured 500 ms")


def test_an_objective_that_could_not_be_told_is_an_error_and_never_skipped() -> None:
    root = parsed(judge(steady(50), SLA, asked_rate_per_s=16.0))
    assert cases(root)["ttft_p99"] == "error"
    assert root.attrib["skipped"] == "0"
    assert not list(root.iter("skipped"))


def test_counts_are_those_of_the_tests() -> None:
    root = parsed(judge(steady(50, ttft_s=0.5), SLA, asked_rate_per_s=16.0, partial=True))
    found = list(cases(root).values())
    assert int(root.attrib["tests"]) == len(found)
    assert int(root.attrib["failures"]) == found.count("failure")
    assert int(root.attrib["errors"]) == found.count("error")


@given(st.text())
def test_any_title_makes_xml_that_parses(title: str) -> None:
    assert parsed(judge(steady(3), SLA), title).tag == "testsuites"
