"""The HTML report: one well-formed file that loads nothing, with every hostile text escaped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from roadworthy.advise.verdict import judge
from roadworthy.bench.report_html import render_html
from roadworthy.bench.sections import RunSection, TableSection
from roadworthy.spec.values import Sla
from support.records import record, steady

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> & http://evil.example/x.js"
SLA = Sla(ttft_p99_s=0.25, tpot_p99_s=0.04, success_ratio=0.99, goodput_ratio=0.9)


def run_section(count: int = 1000, **more: object) -> RunSection:
    records = [*steady(count, tenant="law"), record(count / 16, ok=False, error="HTTP 503: full")]
    return RunSection(
        title="Live", report=judge(records, SLA, asked_rate_per_s=16), records=tuple(records), **more
    )  # type: ignore[arg-type]  # fmt: skip


def parsed(page: str) -> ET.Element:
    """The page as XML: every tag closed, every attribute quoted."""
    return ET.fromstring(page.removeprefix("<!DOCTYPE html>\n"))


def words(page: str) -> str:
    return " ".join(text for element in parsed(page).iter() if element.tag != "style" for text in element.itertext())


def test_the_page_is_well_formed_and_holds_verdict_objectives_and_plots() -> None:
    page = render_html("A report", (run_section(),))
    root = parsed(page)
    text = words(page)
    for wanted in ("A report", "TTFT P99", "250 ms", "goodput", "every objective is met".capitalize()):
        assert wanted in text
    assert len(root.findall(".//figure")) == 6
    assert len(root.findall(".//svg")) == 6
    assert root.find(".//div[@class='banner met']") is not None


@pytest.mark.parametrize("count", [0, 1, 30, 1000])
def test_a_run_of_any_size_has_a_page(count: int) -> None:
    parsed(render_html("r", (run_section(count),)))


def test_a_run_without_any_request_has_a_page() -> None:
    section = RunSection(title="nothing", report=judge([], SLA))
    assert "undecided" in words(render_html("r", (section,))).lower()


def test_nothing_is_loaded_from_anywhere() -> None:
    page = render_html("r", (run_section(),))
    assert not re.findall(r"(?:src|href|action|data)\s*=|url\(|@import|<script|<link|<iframe|https?:", page)
    assert "default-src 'none'" in page


def test_hostile_text_is_shown_and_never_becomes_markup() -> None:
    report = judge([record(0, ok=False, error=HOSTILE, tenant=HOSTILE), record(1, tenant=HOSTILE)], SLA)
    run = RunSection(
        title=HOSTILE, report=report, facts=((HOSTILE, HOSTILE),), notes=(HOSTILE,),
        records=(record(0),), simulated=True,
    )  # fmt: skip
    table = TableSection(title=HOSTILE, columns=(HOSTILE,), rows=((HOSTILE,),), note=HOSTILE)
    page = render_html(HOSTILE, (run, table), subtitle=HOSTILE, generator=HOSTILE)
    root = parsed(page)
    assert root.findall(".//script") == []
    assert root.findall(".//img") == []
    assert not any(name.startswith("on") for element in root.iter() for name in element.attrib)
    assert words(page).count("alert(1)") >= 11


def test_a_simulated_engine_is_named_wherever_the_numbers_show() -> None:
    page = render_html("r", (run_section(simulated=True),))
    assert words(page).count("simulated engine") >= 1
    assert "simulated engine" not in words(render_html("r", (run_section(),)))


def test_a_small_sample_is_marked_and_explained() -> None:
    text = words(render_html("r", (run_section(300),)))
    assert "300 requests completed; a verdict wants more for P99 1,000." in text
    assert re.search(r"\d ms\*", text)
    assert not re.search(r"\d ms\*", words(render_html("r", (run_section(1000),))))


def test_several_runs_and_tables_stand_in_their_order_with_a_verdict_each_on_top() -> None:
    plan = TableSection(title="Plan", columns=("layout", "tokens"), rows=(("tp 8 x pp 4", "3,828,020"),), note="best")
    page = render_html("r", (plan, run_section(), run_section(300)))
    assert [heading.text for heading in parsed(page).findall(".//h2")] == ["Plan", "Live", "Live"]
    classes = [division.get("class", "") for division in parsed(page).findall(".//div")]
    assert [name for name in classes if name.startswith("banner")] == ["banner met", "banner undecided"]


def test_the_same_run_gives_the_same_bytes() -> None:
    assert render_html("r", (run_section(),)) == render_html("r", (run_section(),))
