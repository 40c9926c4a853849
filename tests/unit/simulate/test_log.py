"""Columns of a run, and the records made of them."""

from __future__ import annotations

import math
import pickle

import pytest

from roadworthy.advise.arrivals import PlannedRequest
from roadworthy.core.records import RequestRecord
from roadworthy.simulate.gaps import gap_summary, weighted_percentile_s
from roadworthy.simulate.log import RunLog
from roadworthy.twin.prompt import Segment
from roadworthy.twin.times import GapHistogram


def planned(session: int = 0, *, at_s: float = 1.0, tenant: str = "a") -> PlannedRequest:
    segments = (Segment(f"s{session}", 30),)
    return PlannedRequest(
        t_sched_s=at_s, session=session, turn=0, turns=1, prompt_tokens=30, output_tokens=5, segments=segments,
        tenant=tenant,
    )  # fmt: skip


def log_of(*, keep_gaps: bool = True) -> RunLog:
    log = RunLog(keep_gaps=keep_gaps)
    log.ended(
        planned(), first_s=2.0, last_s=3.0, output_tokens=3, cached_tokens=16, engine="engine-1", waited_s=0.5,
        gaps_s=(0.5, 0.5),
    )  # fmt: skip
    log.failed(planned(1, at_s=2.0, tenant="b"), "rate_limited", 2.0)
    log.failed(planned(2, at_s=2.5), "engine_lost", 4.0, first_s=3.5, output_tokens=2, engine="engine-0")
    return log


def test_records_are_what_was_told() -> None:
    done, refused, lost = log_of().records()
    assert done == RequestRecord(
        t_sched_s=1.0, t_send_s=1.0, t_first_s=2.0, t_last_s=3.0, n_in=30, n_out=3, ok=True, itl_s=(0.5, 0.5),
        tenant="a", engine="engine-1", session=0, turn=0, cached_tokens=16,
    )  # fmt: skip
    assert (refused.ok, refused.error, refused.engine, refused.t_first_s) == (False, "rate_limited", "", None)
    assert (lost.error, lost.engine, lost.t_first_s, lost.n_out) == ("engine_lost", "engine-0", 3.5, 2)


def test_a_log_that_keeps_no_gaps_has_the_same_records_without_them() -> None:
    kept, dropped = log_of(), log_of(keep_gaps=False)
    assert [record.itl_s for record in dropped.records()] == [()] * 3
    assert [record.e2e_s for record in kept.records()] == [record.e2e_s for record in dropped.records()]


def test_one_log_after_another_keeps_every_request_apart() -> None:
    log, other = log_of(), log_of()
    other.failed(planned(7, tenant="new"), "queue_full", 5.0)
    log.follow(other, later_s=100.0)
    records = list(log.records())
    assert len({(record.session, record.turn) for record in records}) == 7
    assert [record.t_sched_s for record in records[3:]] == [101.0, 102.0, 102.5, 101.0]
    assert [record.t_first_s for record in records[3:]] == [102.0, None, 103.5, None]
    assert [record.engine for record in records[3:]] == ["engine-1", "", "engine-0", ""]
    assert records[-1].tenant == "new"
    assert records[-1].error == "queue_full"
    assert log.lasted_s == pytest.approx(104.0)


def test_a_log_travels_between_processes() -> None:
    assert pickle.loads(pickle.dumps(log_of())) == log_of()


def test_an_empty_log_lasted_no_time() -> None:
    assert RunLog().lasted_s == 0.0
    assert list(RunLog().records()) == []


def test_counted_gaps_give_the_mean_exactly_and_percentiles_within_half_a_per_cent() -> None:
    gaps = GapHistogram()
    for number in range(1, 1001):
        gaps.add(number / 1000, 1)
    summary = gap_summary(gaps)
    assert summary.count == 1000
    assert summary.mean == pytest.approx(0.5005)
    assert (summary.p50, summary.p99) == (pytest.approx(0.5, rel=0.006), pytest.approx(0.99, rel=0.006))


def test_no_gaps_have_no_percentile() -> None:
    assert math.isnan(gap_summary(GapHistogram()).p99)
    assert math.isnan(weighted_percentile_s([], 99))


def test_a_weighted_percentile_is_that_of_the_gaps_written_out() -> None:
    gaps = [(0.3, 1), (0.1, 60), (0.2, 39)]
    assert weighted_percentile_s(gaps, 50) == 0.1
    assert weighted_percentile_s(gaps, 99) == 0.2
    assert weighted_percentile_s(gaps, 100) == 0.3
