"""The report on a terminal: 80 columns, verdict first, understood without colour."""

from __future__ import annotations

from roadworthy.advise.verdict import judge
from roadworthy.bench.report_text import WIDTH, render_text
from roadworthy.bench.sections import RunSection
from roadworthy.spec.values import Sla
from support.records import record, steady

SLA = Sla(ttft_p99_s=0.25, tpot_p99_s=0.04, success_ratio=1.0)


def text(records: list, **more: object) -> str:  # type: ignore[type-arg]
    return render_text(RunSection(title="m at http://h:1", report=judge(records, SLA, asked_rate_per_s=16), **more))  # type: ignore[arg-type]


def test_the_verdict_comes_first_with_its_reason() -> None:
    first, second, *_ = text(steady(300)).splitlines()
    assert first == "m at http://h:1: UNDECIDED"
    assert second.strip().startswith("ttft_p99: P99 needs 1,000")


def test_each_objective_has_its_word() -> None:
    lines = text([record(index / 16, ttft_s=0.4) for index in range(1000)]).splitlines()
    assert any(line.split() == ["TTFT", "P99", "250", "ms", "400", "ms", "missed"] for line in lines)
    assert any(line.split() == ["TPOT", "P99", "40", "ms", "20", "ms", "met"] for line in lines)
    assert any(line.split() == ["success", "100.00%", "100.00%", "met"] for line in lines)


def test_no_line_is_wider_than_a_terminal() -> None:
    run = [
        *steady(300, tenant="a-tenant-with-a-very-long-name-indeed"),
        record(3, ok=False, error="HTTP 503: " + "x y " * 60),
    ]
    shown = text(run, notes=("a long note " * 30,), simulated=True)
    assert max(len(line) for line in shown.splitlines()) <= WIDTH


def test_a_simulated_engine_is_named_in_the_first_line() -> None:
    assert "(simulated engine)" in text(steady(10), simulated=True).splitlines()[0]


def test_a_run_without_an_answer_shows_dashes_and_what_failed() -> None:
    shown = text([record(1, ok=False, error="HTTP 503: full")] * 7)
    assert "7 × HTTP 503: full" in shown
    assert [line.split()[1:] for line in shown.splitlines() if line.startswith("TPOT  ")] == [["–"] * 5]


def test_only_the_verdicts_are_painted() -> None:
    painted: list[str] = []

    def paint(verdict: str, word: str) -> str:
        painted.append(f"{verdict}={word}")
        return word

    report = judge(steady(1000), SLA, asked_rate_per_s=16)
    render_text(RunSection(title="t", report=report), paint=paint)
    assert painted == ["met=MET", "met=met", "met=met", "met=met"]
