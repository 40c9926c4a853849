"""How full the fullest expert rank is: against balls thrown into bins, and against exact sums over Zipf's law."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from roadworthy.plan.expert_load import balanced_ratio, expected_largest, expert_load, pick_ratios
from support.twin import step_time

if TYPE_CHECKING:
    from roadworthy.plan.timing import RooflineStepTime

SHAPES = [(128, 8, 8), (256, 8, 32), (384, 6, 8), (384, 6, 32), (896, 16, 16)]


def _reading(experts: int, per_token: int, skew: float, ranks: int = 1) -> RooflineStepTime:
    """A step whose seconds are the share of its experts that a rank reads."""
    load = expert_load(experts=experts, per_token=per_token, ranks=ranks, skew=skew)
    return replace(
        step_time(step_s=0.0), expert_weight_bytes=1, expert_pick_ratio=per_token / experts, expert_floor=load.floor,
        expert_spread=load.spread, expert_read_noise=load.read_noise,
    )  # fmt: skip


@pytest.mark.parametrize(("experts", "per_token", "ranks"), SHAPES)
def test_a_batch_falls_on_the_ranks_like_balls_into_bins(experts: int, per_token: int, ranks: int) -> None:
    rng, tokens, fullest = random.Random(7), 64, []
    for _ in range(120):
        loads = [0] * ranks
        for _ in range(tokens):
            for expert in rng.sample(range(experts), per_token):
                loads[expert * ranks // experts] += 1
        fullest.append(max(loads) * ranks / (tokens * per_token))
    load = expert_load(experts=experts, per_token=per_token, ranks=ranks)
    assert load.fullest_ratio(tokens) == pytest.approx(statistics.mean(fullest), rel=0.06)


@pytest.mark.parametrize(("experts", "per_token", "ranks"), SHAPES)
@pytest.mark.parametrize("skew", [0.3, 0.5, 1.0])
def test_popular_experts_meet_on_a_rank_as_chance_places_them(
    experts: int, per_token: int, ranks: int, skew: float
) -> None:
    rng, picked, fullest = random.Random(3), list(pick_ratios(experts, per_token, skew)), []
    size = experts // ranks
    for _ in range(400):
        rng.shuffle(picked)
        fullest.append(max(sum(picked[start : start + size]) for start in range(0, experts, size)) * ranks / per_token)
    load = expert_load(experts=experts, per_token=per_token, ranks=ranks, skew=skew)
    assert 1 + load.excess_ratio == pytest.approx(statistics.mean(fullest), rel=0.08)


@pytest.mark.parametrize("skew", [0.0, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("tokens", [1, 8, 64, 512])
def test_experts_read_are_those_that_some_token_picked(skew: float, tokens: int) -> None:
    for experts, per_token in ((128, 8), (256, 8), (384, 6), (896, 16), (32, 4)):
        exact = 1 - sum((1 - ratio) ** tokens for ratio in pick_ratios(experts, per_token, skew)) / experts
        ours = _reading(experts, per_token, skew).seconds(tokens, 0, 0, 0)
        assert ours == pytest.approx(exact, abs=0.005 if skew == 0 else 0.03 if skew <= 0.5 else 0.1)


def test_the_rank_that_reads_most_reads_more_than_the_mean_and_never_more_than_all() -> None:
    mean, fullest = _reading(384, 6, 0.0), _reading(384, 6, 0.0, ranks=32)
    for tokens in (1, 16, 64, 256, 4096):
        assert mean.seconds(tokens, 0, 0, 0) <= fullest.seconds(tokens, 0, 0, 0) <= 1


@pytest.mark.parametrize(("experts", "per_token", "ranks"), SHAPES)
def test_the_balancer_takes_most_of_the_unevenness_away(experts: int, per_token: int, ranks: int) -> None:
    plain = expert_load(experts=experts, per_token=per_token, ranks=ranks, skew=0.5)
    balanced = expert_load(experts=experts, per_token=per_token, ranks=ranks, skew=0.5, redundant=ranks)
    assert balanced.excess_ratio < 0.3 * plain.excess_ratio
    assert balanced.noise == plain.noise  # a batch stays a sample


def test_a_packing_by_hand() -> None:
    """4, 2, 1, 1 on two ranks: 4 alone with the lightest is 5 to 3; with two copies of the first it is 2+1+1 twice."""
    assert balanced_ratio((0.8, 0.4, 0.2, 0.2), 2, 0) == pytest.approx(1.25)
    assert balanced_ratio((0.8, 0.4, 0.2, 0.2), 2, 2) == pytest.approx(1.0)


def test_what_the_most_popular_cannot_take_falls_to_the_others() -> None:
    picked = pick_ratios(8, 4, 2.0)
    assert picked[0] == 1.0
    assert sum(picked) == pytest.approx(4)
    assert list(picked) == sorted(picked, reverse=True)
    assert pick_ratios(8, 8, 1.0) == (1.0,) * 8


def test_one_rank_has_no_fullest_and_uniform_routing_no_spread() -> None:
    load = expert_load(experts=128, per_token=8, ranks=1)
    assert (load.floor, load.spread, load.excess_ratio, load.noise, load.read_noise) == (1.0, 0.0, 0.0, 0.0, 0.0)
    assert load.fullest_ratio(1) == 1.0


def test_the_largest_of_normal_values_is_as_tabulated() -> None:
    """Order statistics of the normal distribution: 0.5642, 1.4236, 2.0697."""
    assert [round(expected_largest(count), 4) for count in (1, 2, 8, 32)] == [0.0, 0.5642, 1.4236, 2.0697]
