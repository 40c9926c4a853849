"""The verdict: gates in their order, objectives by percentile, and nothing passed that was not seen."""

from __future__ import annotations

import pytest

from roadworthy.advise.objectives import DEFAULT_ACCEPTANCE
from roadworthy.advise.verdict import SlaReport, judge
from roadworthy.core.latency import LatencySummary
from roadworthy.spec.values import Sla
from support.records import record, steady

STRICT = Sla(ttft_p99_s=0.25, tpot_p99_s=0.04, success_ratio=1.0)


def met(report: SlaReport) -> dict[str, bool | None]:
    return {item.name: item.met for item in report.objectives}


def gate(report: SlaReport, name: str) -> tuple[bool | None, str]:
    return next((item.passed, item.why) for item in report.gates if item.name == name)


def test_a_steady_run_within_its_limits_is_met_with_exit_0() -> None:
    report = judge(steady(1000), STRICT, asked_rate_per_s=16)
    assert (report.verdict, report.exit_code) == ("met", 0)
    assert met(report) == {"ttft_p99": True, "tpot_p99": True, "success": True}


def test_the_numbers_of_the_sla_table_add_up_once_the_drain_is_counted() -> None:
    """1,000 requests at 16/s: the last arrives after 62.4 s and then runs for 3.65 s (facts, S1)."""
    report = judge(steady(1000, ttft_s=0.0482, tpot_s=0.0184, n_out=197, n_in=238), STRICT, asked_rate_per_s=16)
    assert report.duration_s == pytest.approx(999 / 16 + 0.0482 + 196 * 0.0184)
    assert report.request_rate_per_s == pytest.approx(15.13, abs=0.02)
    assert report.output_tokens_per_s == pytest.approx(197 * report.request_rate_per_s)
    assert report.total_tokens_per_s == pytest.approx(435 * report.request_rate_per_s)


def test_a_p99_over_its_limit_is_missed_with_exit_1() -> None:
    slow = [record(index / 16, ttft_s=0.3 if index % 50 == 0 else 0.1) for index in range(1000)]
    report = judge(slow, STRICT, asked_rate_per_s=16)
    assert (report.verdict, report.exit_code) == ("missed", 1)
    assert met(report) == {"ttft_p99": False, "tpot_p99": True, "success": True}
    assert report.reason.startswith("ttft_p99: P99 is 50 ms over the limit")


def test_a_small_sample_is_neither_a_pass_nor_a_miss_and_says_how_many_are_needed() -> None:
    report = judge(steady(999), STRICT, asked_rate_per_s=16)
    assert (report.verdict, report.exit_code) == ("undecided", 1)
    assert met(report)["ttft_p99"] is None
    (objective,) = [item for item in report.objectives if item.name == "ttft_p99"]
    assert objective.measured == pytest.approx(0.1)
    assert "needs 1,000" in objective.why
    assert "has 999" in objective.why


def test_when_everything_failed_every_latency_is_open_and_success_is_missed() -> None:
    report = judge([record(index / 16, ok=False) for index in range(2000)], STRICT, asked_rate_per_s=16)
    assert report.verdict == "missed"
    assert report.reason == "failed share: 2,000 of 2,000 requests failed"
    assert met(report) == {"ttft_p99": None, "tpot_p99": None, "success": False}
    assert report.goodput_rps == 0
    assert report.errors == (("HTTP 503: full", 2000),)


def test_nothing_sent_is_undecided() -> None:
    report = judge([], STRICT, asked_rate_per_s=16)
    assert report.verdict == "undecided"
    assert met(report) == {"ttft_p99": None, "tpot_p99": None, "success": None}


def test_a_failure_is_tolerated_only_where_the_document_says_so() -> None:
    run = [*steady(1999), record(10.0, ok=False)]
    assert judge(run, Sla(ttft_p99_s=0.25), asked_rate_per_s=16).verdict == "missed"
    assert judge(run, Sla(ttft_p99_s=0.25, success_ratio=0.999), asked_rate_per_s=16).verdict == "met"


def test_without_any_objective_the_default_acceptance_applies_and_is_said() -> None:
    report = judge(steady(1000), Sla(), asked_rate_per_s=16)
    assert report.default_limits
    assert {item.name: item.limit for item in report.objectives} == {
        "ttft_p99": DEFAULT_ACCEPTANCE.ttft_p99_s,
        "tpot_p99": DEFAULT_ACCEPTANCE.tpot_p99_s,
        "success": 1.0,
    }


def test_objectives_are_judged_from_the_scheduled_arrival_and_not_from_the_send() -> None:
    """A concurrency cap hides its wait before the send; the user waits all the same."""
    report = judge(steady(1000, lag_s=0.2, ttft_s=0.1), STRICT, asked_rate_per_s=16, max_concurrency=8)
    assert report.ttft_s.p99 == pytest.approx(0.1)
    assert report.user_ttft_s.p99 == pytest.approx(0.3)
    assert met(report)["ttft_p99"] is False


def test_a_late_client_proves_nothing_about_the_service() -> None:
    report = judge(steady(1000, lag_s=0.06), STRICT, asked_rate_per_s=16)
    assert report.verdict == "undecided"
    assert report.reason.startswith("client healthy: requests left 60 ms after their time")


def test_a_busy_client_proves_nothing_about_the_service() -> None:
    report = judge(steady(1000), STRICT, asked_rate_per_s=16, client_cpu_ratio=0.9)
    assert report.verdict == "undecided"
    assert gate(report, "client healthy")[0] is False


def test_a_backlog_that_grows_misses_the_asked_rate_even_when_latency_is_not_promised() -> None:
    """Served at 12/s, asked for 16/s: request i waits i x (1/12 - 1/16) s."""
    falling_behind = [record(index / 16, ttft_s=0.1 + index * (1 / 12 - 1 / 16)) for index in range(1000)]
    report = judge(falling_behind, Sla(success_ratio=1.0), asked_rate_per_s=16)
    assert report.verdict == "missed"
    assert report.reason.startswith("asked rate:")
    assert report.achieved_ratio == pytest.approx(12 / 16, abs=0.02)


def test_a_run_too_short_to_show_a_steady_rate_is_undecided() -> None:
    report = judge(steady(16), Sla(success_ratio=1.0), asked_rate_per_s=16)
    assert report.verdict == "undecided"
    assert gate(report, "asked rate")[0] is None


def test_a_load_below_the_asked_rate_proves_no_pass_but_may_show_a_miss() -> None:
    """Conversations that still build up send less than asked; the service was never tried at 16/s."""
    assert judge(steady(1000, rate_per_s=12), STRICT, asked_rate_per_s=16).verdict == "undecided"
    assert judge(steady(1000, rate_per_s=12, ttft_s=1.0), STRICT, asked_rate_per_s=16).verdict == "missed"


def test_the_rate_of_a_random_schedule_may_come_out_a_little_low() -> None:
    """At 16/s for 12 s, 20 arrivals fewer than 192 are 1.4 standard deviations."""
    report = judge(steady(172, rate_per_s=172 / 12), Sla(success_ratio=1.0), asked_rate_per_s=16)
    assert gate(report, "asked rate")[0] is True


def test_an_earlier_gate_gives_the_reason() -> None:
    """Failures, a late client and a slow service at once: the failures are named."""
    run = [*steady(1000, lag_s=0.1, ttft_s=1.0), record(3.0, ok=False)]
    assert judge(run, STRICT, asked_rate_per_s=16).reason.startswith("failed share:")


def test_goodput_counts_requests_that_keep_every_limit() -> None:
    """Half break TTFT, another quarter TPOT; a quarter is good."""
    kinds = [{"ttft_s": 0.5}, {"ttft_s": 0.5}, {"tpot_s": 0.05}, {}]
    run = [record(index / 16, **kinds[index % 4]) for index in range(1000)]
    report = judge(run, Sla(ttft_p99_s=0.25, tpot_p99_s=0.04, goodput_ratio=0.5), asked_rate_per_s=16)
    assert report.attainment_ratio == pytest.approx(0.25)
    assert report.goodput_rps == pytest.approx(250 / report.duration_s)
    assert met(report)["goodput"] is False


def test_goodput_may_be_asked_as_a_rate() -> None:
    report = judge(steady(1000), Sla(goodput_per_s=15.0), asked_rate_per_s=16)
    assert met(report) == {"success": True, "goodput": True}


def test_one_token_answers_have_no_tpot_and_do_not_break_its_limit() -> None:
    report = judge(steady(1000, n_out=1), Sla(tpot_p99_s=0.04), asked_rate_per_s=16)
    assert report.tpot_s.count == 0
    assert report.attainment_ratio == 1.0
    assert met(report)["tpot_p99"] is None
    assert report.verdict == "undecided"


def test_an_early_end_can_show_a_miss_but_never_a_pass() -> None:
    assert judge(steady(1000), STRICT, asked_rate_per_s=16, partial=True).verdict == "undecided"
    assert judge(steady(1000, ttft_s=1.0), STRICT, asked_rate_per_s=16, partial=True).verdict == "missed"


def test_warm_up_is_left_out_of_every_number() -> None:
    cold = [record(index / 16, ttft_s=5.0) for index in range(16)]
    warm = [record(1 + index / 16) for index in range(1000)]
    report = judge([*cold, *warm], STRICT, asked_rate_per_s=16, warmup_s=1.0)
    assert (report.requests, report.warmup_requests) == (1000, 16)
    assert report.ttft_s.p99 == pytest.approx(0.1)


def test_each_tenant_has_its_own_line() -> None:
    run = [record(index / 16, tenant="ab"[index % 2], ttft_s=0.1 if index % 2 else 0.4) for index in range(1000)]
    report = judge(run, STRICT, asked_rate_per_s=16)
    assert [(tenant.id, tenant.requests, tenant.sla_misses) for tenant in report.tenants] == [
        ("a", 500, 500),
        ("b", 500, 0),
    ]
    assert report.tenants[0].tokens == 500 * 250


def test_a_load_generator_out_of_descriptors_is_no_fault_of_the_service() -> None:
    records = [record(i) for i in range(20)] + [
        record(20, ok=False, error="client: cannot connect: too many open files")
    ]
    report = judge(records, Sla(success_ratio=1.0))
    assert report.verdict == "undecided"
    assert report.reason.startswith("client healthy: 1 requests failed in the load generator itself")


def test_a_load_generator_that_read_late_decides_nothing() -> None:
    late = LatencySummary.of([0.001] * 90 + [0.2] * 10)
    report = judge(steady(1200), STRICT, asked_rate_per_s=16.0, client_lag=late)
    assert report.verdict == "undecided"
    assert report.reason.startswith("client healthy: the load generator's loop was 200 ms late")


def test_a_load_generator_that_stood_still_decides_nothing() -> None:
    report = judge(steady(1200), STRICT, asked_rate_per_s=16.0, stalls_s=(3.0, 7.5))
    assert report.verdict == "undecided"
    assert "stood still 2 times, for up to 7.50 s" in report.reason


def test_a_prompt_load_generator_says_how_late_it_was() -> None:
    report = judge(steady(1200), STRICT, asked_rate_per_s=16.0, client_lag=LatencySummary.of([0.002] * 100))
    passed, why = gate(report, "client healthy")
    assert passed is True
    assert "reads P99 2 ms" in why


def test_a_trace_that_ends_slowly_is_not_told_to_run_longer() -> None:
    """Half of the requests in the first half second: the mean rate is no rate of any moment."""
    uneven = [record(at / 1200) for at in range(600)] + [record(0.5 + at / 5) for at in range(600)]
    asked = 1200 / 120.5
    told = judge(uneven, STRICT, asked_rate_per_s=asked)
    assert gate(told, "asked rate")[0] is None
    assert gate(judge(uneven, STRICT, asked_rate_per_s=asked, even_rate=False), "asked rate")[0] is True


def test_a_backlog_is_seen_in_a_trace_too() -> None:
    falling_behind = [record(index / 16, ttft_s=0.1 + index * (1 / 12 - 1 / 16)) for index in range(1000)]
    report = judge(falling_behind, Sla(success_ratio=1.0), asked_rate_per_s=16, even_rate=False)
    assert gate(report, "asked rate")[0] is False
