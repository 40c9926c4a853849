"""How each tenant fared, and how even it was."""

from __future__ import annotations

import math

import pytest

from roadworthy.advise.arrivals import PlannedRequest
from roadworthy.simulate.log import RunLog
from roadworthy.simulate.standing import jain_index, served_tokens, standings


def planned(tenant: str, prompt_tokens: int = 10) -> PlannedRequest:
    return PlannedRequest(
        t_sched_s=0.0, session=0, turn=0, turns=1, prompt_tokens=prompt_tokens, output_tokens=5, segments=(),
        tenant=tenant,
    )  # fmt: skip


def log_of() -> RunLog:
    log = RunLog()
    log.ended(planned("a", 100), first_s=1.0, last_s=3.0, output_tokens=50, cached_tokens=0, engine="e", waited_s=0.5)
    log.ended(planned("b", 20), first_s=2.0, last_s=2.0, output_tokens=1, cached_tokens=0, engine="e")
    log.failed(planned("b"), "rate_limited", 0.0)
    log.failed(planned("b"), "rate_limited", 0.0)
    log.failed(planned("b"), "queue_full", 9.0, waited_s=9.0)
    return log


def test_work_counts_an_output_token_twice() -> None:
    a, b = standings(log_of())
    assert (a.id, a.requests, a.completed, a.tokens) == ("a", 1, 1, 150)
    assert a.work_ratio == pytest.approx(200 / 222)
    assert b.work_ratio == pytest.approx(22 / 222)


def test_refusals_are_counted_by_code_and_waits_only_where_there_was_one() -> None:
    a, b = standings(log_of())
    assert b.refused == (("rate_limited", 2), ("queue_full", 1))
    assert (b.waited, b.waited_p99_s) == (1, 9.0)
    assert (a.waited, a.waited_p50_s) == (1, 0.5)
    assert b.completed_ratio == 0.25


def test_requests_without_a_tenant_have_no_standing() -> None:
    log = RunLog()
    log.failed(planned(""), "x", 0.0)
    assert standings(log) == ()


def test_an_index_of_one_is_even_and_one_nth_is_all_for_one() -> None:
    assert jain_index([2.0, 2.0, 2.0]) == pytest.approx(1.0)
    assert jain_index([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert math.isnan(jain_index([]))
    assert math.isnan(jain_index([0.0]))


def test_served_tokens_are_those_of_the_window() -> None:
    log = log_of()
    everything = served_tokens(log, from_s=0.0, to_s=10.0)
    assert everything == {"a": (100, 50), "b": (20, 1)}
    half = served_tokens(log, from_s=2.0, to_s=2.5)
    assert half["a"] == (0, pytest.approx(12.5))
    assert half["b"] == (20, 1)
    assert served_tokens(log, from_s=3.5, to_s=9.0) == {"a": (0, 0), "b": (0, 0)}
