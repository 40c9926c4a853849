"""The workload as the planner takes it: prompts of conversations, what a prefix cache saves, pieces of a prompt."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from roadworthy.advise.arrivals import Arrivals
from roadworthy.plan.workload import Prefixes, demand_of
from roadworthy.spec.values import Quantiles, RequestProfile, Sessions

PROFILE = RequestProfile(
    prompt_tokens=Quantiles(p50=1000, p90=2000, p99=4000), output_tokens=Quantiles(p50=200, p90=400, p99=600)
)


def test_single_requests_are_the_percentiles_of_the_document() -> None:
    demand = demand_of(PROFILE, prefixes=Prefixes(unit_tokens=16))
    assert (demand.prompt_p50, demand.prompt_p99, demand.output_p99) == (1000, 4000, 600)
    assert demand.cached_mean == demand.cached_p50 == 0
    assert demand.hit_ratio == 0


def test_a_shared_prefix_is_cached_in_whole_units() -> None:
    shared = replace(PROFILE, shared_prefix_ratio=0.4)
    assert demand_of(shared).cached_mean == 0
    fine = demand_of(shared, prefixes=Prefixes(unit_tokens=16))
    assert fine.cached_p50 == 400
    assert fine.computed_mean == pytest.approx(0.6 * fine.prompt_mean, rel=0.03)
    coarse = demand_of(shared, prefixes=Prefixes(unit_tokens=256))
    assert coarse.cached_p50 == 256
    assert demand_of(shared, prefixes=Prefixes(unit_tokens=4096)).cached_mean == 0


@pytest.mark.parametrize("turns", [1.0, 2.0, 6.0])
@pytest.mark.parametrize("shared", [0.0, 0.5])
def test_conversations_grow_as_those_that_are_drawn_for_the_twin(turns: float, shared: float) -> None:
    profile = replace(PROFILE, shared_prefix_ratio=shared, sessions=Sessions(turns=turns))
    arrivals = Arrivals(profile, seed=1, requests=6000, max_context_tokens=32_768)
    prompts, new = [], []
    for first in arrivals.first_turns():
        request, before = first, 0
        while request is not None:
            prompts.append(request.prompt_tokens)
            known = before or round(request.prompt_tokens * shared)
            new.append(request.prompt_tokens - known)
            before = request.prompt_tokens + request.output_tokens
            request = arrivals.follow_up(request, finished_s=request.t_sched_s, output_tokens=request.output_tokens)  # type: ignore[assignment]
    demand = demand_of(profile, prefixes=Prefixes(unit_tokens=1), max_model_len_tokens=32_768)
    assert demand.prompt_mean == pytest.approx(statistics.mean(prompts), rel=0.1)
    assert demand.computed_mean == pytest.approx(statistics.mean(new), rel=0.1)
    assert demand.prompt_p50 - demand.cached_p50 == pytest.approx(statistics.median(new), rel=0.12)


def test_conversations_that_left_the_pool_are_computed_again() -> None:
    profile = replace(PROFILE, shared_prefix_ratio=0.2, sessions=Sessions(turns=5))
    kept, half, none = (
        demand_of(profile, prefixes=Prefixes(unit_tokens=16, kept_ratio=ratio)) for ratio in (1.0, 0.5, 0.0)
    )
    assert kept.cached_mean > half.cached_mean > none.cached_mean > 0  # the shared beginning stays
    assert half.cached_mean == pytest.approx((kept.cached_mean + none.cached_mean) / 2, rel=0.01)
    assert kept.prompt_mean == none.prompt_mean


def test_a_conversation_ends_where_the_context_does() -> None:
    profile = replace(PROFILE, sessions=Sessions(turns=20))
    short, long = (demand_of(profile, max_model_len_tokens=length) for length in (4096, 65_536))
    assert short.prompt_mean < 4096 < long.prompt_mean


@pytest.mark.parametrize("tokens_max", [512, 1024, 4096, 65_536])
def test_the_mean_number_of_pieces_is_that_of_drawn_prompts(tokens_max: int) -> None:
    demand = demand_of(PROFILE)
    drawn = [
        -(-request.prompt_tokens // tokens_max) for request in Arrivals(PROFILE, seed=2, requests=4000).first_turns()
    ]
    assert demand.pieces_mean(tokens_max) == pytest.approx(statistics.mean(drawn), rel=0.06)


@pytest.mark.parametrize("tokens", [64, 512, 2048])
def test_the_share_of_long_prompts_is_that_of_the_drawn_load(tokens: int) -> None:
    demand = demand_of(PROFILE)
    drawn = [request.prompt_tokens > tokens for request in Arrivals(PROFILE, seed=2, requests=4000).first_turns()]
    assert demand.share_above(tokens) == pytest.approx(statistics.mean(drawn), abs=0.03)


def test_prompts_of_one_length_are_all_longer_or_none() -> None:
    demand = demand_of(RequestProfile(prompt_tokens=Quantiles(p50=600, p90=600, p99=600)))
    assert (demand.share_above(599), demand.share_above(601), demand.share_above(0)) == (1.0, 0.0, 1.0)
