"""Laws of the verdict that hold for every run."""

from __future__ import annotations

import random
import statistics
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.advise.verdict import judge
from roadworthy.spec.values import Sla
from support.records import record

if TYPE_CHECKING:
    from roadworthy.core.records import RequestRecord

RANK = {"missed": 0, "undecided": 1, "met": 2}
MET_RANK = {False: 0, None: 1, True: 2}

slas = st.builds(
    Sla,
    ttft_p99_s=st.none() | st.floats(0.05, 0.5),
    tpot_p99_s=st.none() | st.floats(0.01, 0.1),
    success_ratio=st.none() | st.floats(0.5, 1.0),
    goodput_ratio=st.none() | st.floats(0.1, 1.0),
)
times_s = st.floats(0, 100)


@st.composite
def runs(draw: st.DrawFn) -> list[RequestRecord]:
    """A few odd requests among very many alike, so that P99 verdicts are really given."""
    odd = draw(
        st.lists(
            st.builds(
                record,
                times_s,
                lag_s=st.floats(0, 0.2),
                ttft_s=st.floats(0.01, 2),
                tpot_s=st.floats(0.001, 0.2),
                n_out=st.integers(1, 40),
                ok=st.booleans(),
            ),
            max_size=30,
        )
    )
    alike = draw(st.sampled_from([0, 30, 1000]))
    return [record(index * 100 / max(1, alike), ttft_s=0.1) for index in range(alike)] + odd


@given(runs(), slas, times_s, st.floats(0, 5))
def test_adding_a_failure_never_improves_a_run(
    run: list[RequestRecord], sla: Sla, at_s: float, lasted_s: float
) -> None:
    before = judge(run, sla, asked_rate_per_s=10)
    after = judge([*run, record(at_s, ttft_s=lasted_s, ok=False)], sla, asked_rate_per_s=10)
    assert RANK[after.verdict] <= RANK[before.verdict]
    assert after.goodput_rps <= before.goodput_rps
    for old, new in zip(before.objectives, after.objectives, strict=True):
        assert MET_RANK[new.met] <= MET_RANK[old.met]


@given(runs(), slas, st.randoms(use_true_random=False))
def test_the_order_of_the_records_does_not_matter(run: list[RequestRecord], sla: Sla, rng: random.Random) -> None:
    shuffled = run.copy()
    rng.shuffle(shuffled)
    one, two = judge(run, sla, asked_rate_per_s=10), judge(shuffled, sla, asked_rate_per_s=10)
    assert (one.verdict, one.reason, one.objectives, one.tenants) == (
        two.verdict,
        two.reason,
        two.objectives,
        two.tenants,
    )
    assert one.errors == two.errors


@given(runs(), slas)
def test_met_means_that_every_objective_was_seen_to_hold(run: list[RequestRecord], sla: Sla) -> None:
    report = judge(run, sla, asked_rate_per_s=10)
    if report.verdict == "met":
        assert all(item.met for item in report.objectives)
    assert report.completed + report.failed == report.requests == len(run)


@given(runs())
def test_percentiles_are_those_of_the_standard_library(run: list[RequestRecord]) -> None:
    done = [item.e2e_s for item in run if item.ok]
    if len(done) < 2:
        return
    cuts = statistics.quantiles(done, n=100, method="inclusive")
    report = judge(run, Sla())
    assert (report.e2e_s.p50, report.e2e_s.p95, report.e2e_s.p99) == pytest.approx((cuts[49], cuts[94], cuts[98]))
