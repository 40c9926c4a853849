"""The front of latency against throughput."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from roadworthy.advise.pareto import Point, front_of, pareto
from roadworthy.cli.wiring import load_planned


@pytest.fixture(scope="module")
def points() -> tuple[Point, ...]:
    planned = load_planned(str(Path(__file__).resolve().parents[3] / "examples" / "deepseek-v4-pro-8xh200.yaml"))
    return pareto(planned.plan, planned.deployment.workload)


def test_nothing_beats_a_point_of_the_front(points: tuple[Point, ...]) -> None:
    front = front_of(points)
    assert front
    for point in front:
        assert not any(
            other.tpot_p50_s < point.tpot_p50_s and other.tokens_per_s_and_gpu > point.tokens_per_s_and_gpu
            for other in points
        )


def test_every_other_point_is_beaten_or_equalled(points: tuple[Point, ...]) -> None:
    front = front_of(points)
    for point in points:
        if not point.on_front:
            assert any(
                best.tpot_p50_s <= point.tpot_p50_s and best.tokens_per_s_and_gpu >= point.tokens_per_s_and_gpu
                for best in front
            )


def test_the_front_rises_in_both(points: tuple[Point, ...]) -> None:
    front = front_of(points)
    assert [point.tokens_per_s_and_gpu for point in front] == sorted(point.tokens_per_s_and_gpu for point in front)
    assert [point.tpot_p50_s for point in front] == sorted(point.tpot_p50_s for point in front)


def test_levels_of_a_layout_double_up_to_what_its_pool_holds(points: tuple[Point, ...]) -> None:
    first = [point.concurrency for point in points if point.label == points[0].label]
    assert all(after == 2 * before for before, after in pairwise(first[:-1]))
    assert first[-1] > first[-2]
