"""A closed loop: so many sessions are under way, and another starts when one has ended."""

from __future__ import annotations

import pytest

from roadworthy.advise.arrivals import AFTER_FAILURE_S, Arrivals
from roadworthy.spec.values import Quantiles, RequestProfile, Sessions
from roadworthy.spec.workload_values import ArrivalPattern

USERS = RequestProfile(
    prompt_tokens=Quantiles(p50=60, p90=80, p99=100), arrivals=ArrivalPattern(pattern="closed", users=3)
)


def test_every_user_starts_at_once_and_asks_again_when_answered() -> None:
    arrivals = Arrivals(USERS, seed=1, requests=10)
    firsts = list(arrivals.first_turns())
    assert [one.t_sched_s for one in firsts] == [0.0, 0.0, 0.0]
    following = arrivals.follow_up(firsts[1], finished_s=4.5, output_tokens=5)
    assert following is not None
    assert (following.t_sched_s, following.turn, following.session) == (4.5, 0, 3)


def test_the_number_of_requests_is_kept_to_the_last() -> None:
    arrivals = Arrivals(USERS, seed=1, requests=10)
    under_way = list(arrivals.first_turns())
    sent = 0
    while under_way:
        sent += 1
        following = arrivals.follow_up(under_way.pop(0), finished_s=float(sent), output_tokens=5)
        if following is not None:
            under_way.append(following)
    assert sent == 10


def test_nobody_starts_after_the_duration() -> None:
    arrivals = Arrivals(USERS, seed=1, duration_s=5)
    first = next(iter(arrivals.first_turns()))
    assert arrivals.follow_up(first, finished_s=5.1, output_tokens=1) is None


def test_a_user_goes_on_after_a_failure_but_not_in_a_spin() -> None:
    arrivals = Arrivals(USERS, seed=1, requests=10)
    first = next(iter(arrivals.first_turns()))
    following = arrivals.after_failure(first, finished_s=1.0)
    assert following is not None
    assert following.t_sched_s == pytest.approx(1.0 + AFTER_FAILURE_S)
    assert following.session != first.session


def test_an_open_loop_sends_nothing_in_place_of_a_failed_request() -> None:
    arrivals = Arrivals(RequestProfile(sessions=Sessions(turns=5)), seed=1, requests=100)
    first = next(one for one in arrivals.first_turns() if one.turns > 1)
    assert arrivals.after_failure(first, finished_s=1.0) is None
    assert arrivals.follow_up(first, finished_s=2.0, output_tokens=1) is None, "its conversation is over"


def test_a_schedule_starts_anew_on_each_call() -> None:
    arrivals = Arrivals(USERS, seed=1, requests=10)
    assert list(arrivals.first_turns()) == list(arrivals.first_turns())


def test_the_asked_rate_is_nobodys_in_a_closed_loop_and_the_mean_on_a_ramp() -> None:
    ramp = RequestProfile(rate_per_s=2.0, arrivals=ArrivalPattern(pattern="ramp", to_rate_per_s=6.0))
    assert Arrivals(USERS, seed=1, requests=10).asked_rate_per_s is None
    assert Arrivals(ramp, seed=1, requests=10).asked_rate_per_s == 4.0
    assert Arrivals(RequestProfile(rate_per_s=2.0), seed=1, requests=10).asked_rate_per_s == 2.0
