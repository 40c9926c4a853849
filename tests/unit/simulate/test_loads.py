"""Loads side by side, and loads that swell and ebb."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from roadworthy.advise.arrivals import Arrivals
from roadworthy.simulate.loads import Mix, Phase, Phased
from roadworthy.spec.values import Quantiles, RequestProfile, Sessions

SHORT = RequestProfile(
    prompt_tokens=Quantiles(p50=40, p90=60, p99=80), output_tokens=Quantiles(p50=10, p90=20, p99=30), rate_per_s=20.0
)
CHATS = replace(SHORT, sessions=Sessions(turns=3.0, think_time_s=0.5), rate_per_s=6.0)


def test_a_mix_sends_what_each_would_send_in_order_of_time() -> None:
    mix = Mix({"a": Arrivals(SHORT, seed=1, requests=50), "b": Arrivals(CHATS, seed=2, requests=30)})
    sent = list(mix.first_turns())
    assert all(before.t_sched_s <= after.t_sched_s for before, after in pairwise(sent))
    alone = list(Arrivals(SHORT, seed=1, requests=50).first_turns())
    assert [one.t_sched_s for one in sent if one.tenant == "a"] == [one.t_sched_s for one in alone]
    assert mix.asked_rate_per_s == 26.0
    assert mix.has_sessions


def test_a_later_turn_of_a_mix_comes_from_its_own_schedule() -> None:
    mix = Mix({"a": Arrivals(SHORT, seed=1, requests=50), "b": Arrivals(CHATS, seed=2, requests=30)})
    first = next(one for one in mix.first_turns() if one.tenant == "b" and one.turns > 1)
    later = mix.follow_up(first, finished_s=9.0, output_tokens=4)
    assert later is not None
    assert (later.tenant, later.session, later.turn) == ("b", first.session, 1)
    assert mix.after_failure(later, finished_s=9.0) is None


def test_phases_move_starts_and_lose_none() -> None:
    plain = [one.t_sched_s for one in Arrivals(SHORT, seed=1, requests=600).first_turns()]
    phases = (Phase(lasts_s=5.0, factor=0.0), Phase(lasts_s=5.0, factor=2.0))
    moved = [one.t_sched_s for one in Phased(Arrivals(SHORT, seed=1, requests=600), phases).first_turns()]
    assert len(moved) == len(plain)
    assert all(time_s % 10.0 >= 5.0 for time_s in moved)
    for before_s, after_s in zip(plain, moved, strict=True):
        assert abs(before_s - after_s) <= 5.0


def test_a_phase_of_one_leaves_times_as_they_are() -> None:
    plain = [one.t_sched_s for one in Arrivals(SHORT, seed=1, requests=60).first_turns()]
    even = Phased(Arrivals(SHORT, seed=1, requests=60), [Phase(lasts_s=1.0, factor=1.0)])
    assert [one.t_sched_s for one in even.first_turns()] == pytest.approx(plain)
    assert even.asked_rate_per_s == SHORT.rate_per_s


def test_a_cycle_can_begin_in_the_middle() -> None:
    phases = (Phase(lasts_s=5.0, factor=0.0), Phase(lasts_s=5.0, factor=2.0))
    load = Phased(Arrivals(SHORT, seed=1, requests=200), phases, starts_s=7.0)
    times_s = [one.t_sched_s for one in load.first_turns()]
    assert times_s[0] < 3.0
    assert not any(3.0 < time_s < 8.0 for time_s in times_s)


def test_the_mean_rate_of_phases_is_told() -> None:
    load = Phased(Arrivals(SHORT, seed=1, requests=2), [Phase(lasts_s=1, factor=4.0), Phase(lasts_s=3, factor=0.0)])
    assert load.asked_rate_per_s == SHORT.rate_per_s


def test_a_load_without_any_request_is_refused() -> None:
    with pytest.raises(ValueError, match="phase in which requests come"):
        Phased(Arrivals(SHORT, seed=1, requests=2), [Phase(lasts_s=1, factor=0.0)])
    with pytest.raises(ValueError, match="cannot be"):
        Phase(lasts_s=0, factor=1.0)
