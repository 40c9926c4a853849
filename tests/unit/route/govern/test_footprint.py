"""Tokens to blocks, and how long answers are."""

from __future__ import annotations

import random

import pytest

from roadworthy.plan.cache import CacheGroup, CacheLayout
from roadworthy.route.govern.footprint import BlockShape, OutputLengths
from roadworthy.route.govern.values import Limits
from roadworthy.spec.values import Tenant

LAYOUT = CacheLayout(
    groups=(
        CacheGroup(kind="full", block_tokens=16, layers=4),
        CacheGroup(kind="window", block_tokens=16, layers=4, window_tokens=127),
        CacheGroup(kind="state", block_tokens=16, layers=2, resident_blocks=3),
    ),
    bytes_per_block=(1_000, 600),
)


def test_a_planned_shape_holds_what_the_plans_function_says() -> None:
    shape = BlockShape.planned(LAYOUT)
    for tokens in (0, 1, 15, 16, 17, 1_000, 16, 100_000):
        assert shape.held(tokens) == LAYOUT.held_blocks(tokens)
    assert shape.block_bytes == 1_600


def test_without_a_plan_blocks_are_rounded_up() -> None:
    shape = BlockShape(block_tokens=16)
    assert [shape.held(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_what_is_remembered_of_lengths_is_bounded_and_never_wrong() -> None:
    shape = BlockShape.planned(LAYOUT)
    for tokens in range(40_000):
        assert shape.held(tokens) == LAYOUT.held_blocks(tokens)
    assert len(shape._known) <= 16_384


@pytest.mark.parametrize(("quota", "blocks"), [(1_599, 0), (1_600, 1), (3_199, 1), (10**9, 625_000), (None, None)])
def test_a_quota_in_bytes_is_whole_blocks(quota: int | None, blocks: int | None) -> None:
    tenant = Tenant(id="a", kv_quota_bytes=quota, concurrency=3, requests_per_minute=4, tokens_per_minute=5)
    limits = Limits.of(tenant, BlockShape.planned(LAYOUT))
    assert limits == Limits(concurrency=3, requests_per_minute=4, tokens_per_minute=5, kv_blocks=blocks)


def test_a_quota_is_not_enforced_where_nobody_knows_the_size_of_a_block() -> None:
    assert Limits.of(Tenant(id="a", kv_quota_bytes=1), BlockShape(block_tokens=16)).kv_blocks is None
    assert Limits.of(Tenant(id="a", kv_quota_bytes=1)).kv_blocks is None


def test_nothing_is_said_of_answers_before_enough_were_seen() -> None:
    lengths = OutputLengths()
    lengths.learn([100] * 19)
    assert lengths.p90 is None
    lengths.learn([100])
    assert lengths.p90 is not None


@pytest.mark.parametrize("spread", [(1, 10), (50, 2_000), (1, 100_000)])
def test_the_percentile_is_the_answers_own_within_one_step(spread: tuple[int, int]) -> None:
    rng = random.Random(1)
    seen = [rng.randint(*spread) for _ in range(1_000)]
    lengths = OutputLengths()
    lengths.learn(seen)
    exact, found = sorted(seen)[899], lengths.p90
    assert found is not None
    assert exact <= found <= exact * 1.13 + 1


def test_the_percentile_follows_answers_that_change() -> None:
    lengths = OutputLengths()
    lengths.learn([1_000] * 2_000)
    lengths.learn([10] * 6_000)
    assert lengths.p90 == 10
