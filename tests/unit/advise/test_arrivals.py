from __future__ import annotations

import random
from itertools import pairwise
from statistics import fmean

import pytest

from roadworthy.advise.arrivals import SHARED_SEGMENT, Arrivals, PlannedRequest, draw_tokens
from roadworthy.spec.values import Quantiles, RequestProfile, Sessions, Tenant
from roadworthy.twin.prompt import segment_tokens

PROFILE = RequestProfile(
    prompt_tokens=Quantiles(p50=200, p90=400, p99=650),
    output_tokens=Quantiles(p50=180, p90=330, p99=520),
    rate_per_s=16.0,
)
CHATS = RequestProfile(rate_per_s=10.0, shared_prefix_ratio=0.3, sessions=Sessions(turns=4.0, think_time_s=2.0))


def first_turns(profile: RequestProfile = PROFILE, seed: int = 1, **more: object) -> list[PlannedRequest]:
    return list(Arrivals(profile, seed=seed, **more).first_turns())  # type: ignore[arg-type]


def conversation(arrivals: Arrivals, first: PlannedRequest, *, output_tokens: int = 7) -> list[PlannedRequest]:
    turns = [first]
    while later := arrivals.follow_up(turns[-1], finished_s=turns[-1].t_sched_s + 1, output_tokens=output_tokens):
        turns.append(later)
    return turns


def test_drawn_lengths_have_the_asked_quantiles() -> None:
    rng = random.Random(7)
    drawn = sorted(draw_tokens(PROFILE.prompt_tokens, rng) for _ in range(20_000))
    assert drawn[10_000] == pytest.approx(200, rel=0.03)
    assert drawn[18_000] == pytest.approx(400, rel=0.03)
    assert drawn[19_800] == pytest.approx(650, rel=0.05)


def test_equal_quantiles_give_one_length() -> None:
    rng = random.Random(0)
    assert {draw_tokens(Quantiles(p50=32, p90=32, p99=32), rng) for _ in range(100)} == {32}


def test_arrivals_are_poisson_at_the_asked_rate() -> None:
    times_s = [request.t_sched_s for request in first_turns(requests=4000)]
    gaps = [after - before for before, after in pairwise(times_s)]
    assert fmean(gaps) == pytest.approx(1 / 16, rel=0.06)
    # the exponential's standard deviation is its mean
    deviation = fmean((gap - 1 / 16) ** 2 for gap in gaps) ** 0.5
    assert deviation == pytest.approx(1 / 16, rel=0.1)


def test_the_rate_counts_every_turn() -> None:
    """Four turns a session: sessions start at a quarter of the rate."""
    firsts = first_turns(CHATS, requests=4000)
    assert len(firsts) / firsts[-1].t_sched_s == pytest.approx(2.5, rel=0.1)
    assert sum(request.turns for request in firsts) == 4000


def test_the_same_seed_plans_the_same_load_and_another_seed_does_not() -> None:
    assert first_turns(CHATS, requests=50) == first_turns(CHATS, requests=50)
    assert first_turns(CHATS, requests=50) != first_turns(CHATS, requests=50, seed=2)


def test_a_session_says_the_same_whatever_the_others_do() -> None:
    """Turns finish in any order; what a session sends next depends on its own draws alone."""

    def turns_of(order: int) -> dict[int, list[int]]:
        arrivals = Arrivals(CHATS, seed=3, requests=60)
        firsts = list(arrivals.first_turns())
        return {
            first.session: [turn.prompt_tokens for turn in conversation(arrivals, first)] for first in firsts[::order]
        }

    assert turns_of(1) == turns_of(-1)


def test_the_number_of_requests_is_exact() -> None:
    arrivals = Arrivals(CHATS, seed=5, requests=101)
    assert sum(len(conversation(arrivals, first)) for first in arrivals.first_turns()) == 101


def test_a_later_turn_carries_the_whole_conversation() -> None:
    arrivals = Arrivals(CHATS, seed=5, requests=400)
    turns = next(
        turns for first in arrivals.first_turns() if len(turns := conversation(arrivals, first, output_tokens=9)) >= 3
    )
    for before, after in pairwise(turns):
        assert after.segments[: len(before.segments)] == before.segments
        answer = after.segments[len(before.segments)]
        assert (answer.id, answer.tokens) == (before.answer_id, 9)
        assert after.prompt_tokens == segment_tokens(after.segments) > before.prompt_tokens + 9
        assert after.t_sched_s >= before.t_sched_s + 1


def test_think_time_is_exponential_around_its_mean() -> None:
    arrivals = Arrivals(CHATS, seed=9, requests=8000)
    pauses = [
        after.t_sched_s - before.t_sched_s - 1
        for first in arrivals.first_turns()
        for before, after in pairwise(conversation(arrivals, first))
    ]
    assert fmean(pauses) == pytest.approx(2.0, rel=0.06)


def test_the_shared_prefix_is_one_text_of_the_asked_share() -> None:
    for request in first_turns(CHATS, requests=100):
        system = request.segments[0]
        assert system.id == SHARED_SEGMENT
        assert system.tokens == pytest.approx(0.3 * request.prompt_tokens, abs=1)


def test_without_a_shared_prefix_nothing_is_shared() -> None:
    assert all(len(request.segments) == 1 for request in first_turns(requests=20))


def test_a_fully_shared_prompt_still_asks_something() -> None:
    profile = RequestProfile(rate_per_s=1.0, shared_prefix_ratio=1.0)
    assert all(request.segments[-1].tokens == 1 for request in first_turns(profile, requests=20))


def test_tenants_share_by_weight() -> None:
    tenants = (Tenant(id="big", weight=3.0), Tenant(id="small", weight=1.0))
    names = [request.tenant for request in first_turns(requests=2000, tenants=tenants)]
    assert names.count("big") / len(names) == pytest.approx(0.75, abs=0.03)


def test_no_session_starts_after_the_duration() -> None:
    times_s = [request.t_sched_s for request in first_turns(duration_s=10.0)]
    assert times_s == sorted(times_s)
    assert 9 < times_s[-1] <= 10


def test_no_request_outgrows_the_context() -> None:
    arrivals = Arrivals(CHATS, seed=1, requests=300, max_context_tokens=900)
    for first in arrivals.first_turns():
        for turn in conversation(arrivals, first, output_tokens=first.output_tokens):
            assert turn.prompt_tokens + turn.output_tokens <= 900
            assert min(turn.prompt_tokens, turn.output_tokens) >= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "needs an end"),
        ({"requests": 0}, "must be positive"),
        ({"duration_s": 0.0}, "must be positive"),
        ({"requests": 1, "max_context_tokens": 1}, "no room"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Arrivals(PROFILE, seed=0, **change)  # type: ignore[arg-type]


def test_a_session_of_one_turn_draws_what_a_generator_of_its_own_would() -> None:
    """Its numbers are taken at half the price, and are the same."""
    tenants = (Tenant(id="a", weight=2.0), Tenant(id="b", weight=1.0))
    for planned in Arrivals(PROFILE, seed=7, requests=300, tenants=tenants).first_turns():
        rng = random.Random(f"7:{planned.session}")
        assert planned.tenant == ("a" if rng.random() * 3 < 2 else "b")
        assert planned.prompt_tokens == draw_tokens(PROFILE.prompt_tokens, rng)
        assert planned.output_tokens == draw_tokens(PROFILE.output_tokens, rng)
