"""Which part of a run is steady."""

from __future__ import annotations

import random

import pytest

from roadworthy.advise.steady import BATCH, mser_cut, steady_state
from roadworthy.core.records import RequestRecord


def records(waits_s: list[float], *, per_s: float = 10.0) -> list[RequestRecord]:
    return [
        RequestRecord(
            t_sched_s=at / per_s, t_send_s=at / per_s, t_first_s=at / per_s + wait_s, n_in=10, n_out=11, ok=True,
            t_last_s=at / per_s + wait_s + 1.0,
        )
        for at, wait_s in enumerate(waits_s)
    ]  # fmt: skip


def noise(count: int, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [0.1 + 0.02 * rng.random() for _ in range(count)]


def test_a_slow_start_is_cut_where_it_ends() -> None:
    slow = [1.0 - 0.0075 * at for at in range(120)]
    found = steady_state(records([*slow, *noise(880)]))
    assert 100 <= found.requests <= 130
    assert found.from_s == pytest.approx(found.requests / 10)
    assert found.steady is True


def test_a_level_run_loses_almost_nothing() -> None:
    cut = [mser_cut(noise(1000, seed)) for seed in range(20)]
    assert sorted(cut)[10] <= 100


def test_a_run_that_climbs_to_its_end_is_not_steady_and_says_by_how_much() -> None:
    found = steady_state(records([0.1 + 0.001 * at + one for at, one in enumerate(noise(1000))]))
    assert found.steady is False
    assert found.drift_ratio is not None
    assert found.drift_ratio > 0.2


@pytest.mark.parametrize("seed", range(4))
def test_a_level_run_is_steady(seed: int) -> None:
    assert steady_state(records(noise(600, seed))).steady is True


def test_of_few_requests_nothing_is_said() -> None:
    found = steady_state(records(noise(BATCH * 15)))
    assert (found.requests, found.steady, found.drift_ratio) == (0, None, None)
    assert steady_state([]).steady is None


def test_at_most_half_of_a_run_is_called_warm_up() -> None:
    assert mser_cut([10.0 - 0.01 * at for at in range(1000)]) <= 500
