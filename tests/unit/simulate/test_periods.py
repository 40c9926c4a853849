"""A long run in periods, and several runs as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roadworthy.advise.arrivals import Arrivals
from roadworthy.simulate.periods import PERIOD_REQUESTS, periods_of, pooled
from roadworthy.simulate.run import simulate
from roadworthy.spec.values import Quantiles, RequestProfile
from support.twin import config

if TYPE_CHECKING:
    from roadworthy.simulate.result import SimulatedRun

LOAD = RequestProfile(
    prompt_tokens=Quantiles(p50=40, p90=60, p99=80), output_tokens=Quantiles(p50=10, p90=20, p99=30), rate_per_s=20.0
)


def run(seed: int, requests: int = 100) -> SimulatedRun:
    return simulate([config(max_num_seqs=64)] * 2, Arrivals(LOAD, seed=seed, requests=requests))


@pytest.mark.parametrize("requests", [1, PERIOD_REQUESTS, PERIOD_REQUESTS + 1, 1_000_000])
def test_periods_add_up_and_are_even(requests: int) -> None:
    periods = periods_of(requests, 5)
    assert sum(period.requests for period in periods) == requests
    assert max(period.requests for period in periods) <= PERIOD_REQUESTS
    assert max(period.requests for period in periods) - min(period.requests for period in periods) <= 1
    assert len({period.seed for period in periods}) == len(periods)
    assert periods[0].seed == 5


def test_one_run_stays_as_it_is() -> None:
    assert pooled([run(1)]) == run(1)


def test_runs_follow_each_other_in_time_and_lose_nothing() -> None:
    one, other = run(1), run(2)
    together = pooled([run(1), run(2)])
    assert len(together.records) == 200
    assert together.records[:100] == one.records
    later_s = max(record.t_last_s for record in one.records)
    assert [record.t_sched_s - later_s for record in together.records[100:]] == pytest.approx(
        [record.t_sched_s for record in other.records]
    )
    assert [record.e2e_s for record in together.records[100:]] == pytest.approx(
        [record.e2e_s for record in other.records]
    )


def test_counters_add_up_and_utilisation_is_weighed_by_time() -> None:
    one, other, together = run(1), run(2, 300), pooled([run(1), run(2, 300)])
    for at in (0, 1):
        assert together.engines[at].busy_s == pytest.approx(one.engines[at].busy_s + other.engines[at].busy_s)
        assert together.engines[at].finished["length"] == (
            one.engines[at].finished["length"] + other.engines[at].finished["length"]
        )
    busy_s = one.utilisation_ratio * one.log.lasted_s + other.utilisation_ratio * other.log.lasted_s
    assert together.utilisation_ratio == pytest.approx(busy_s / (one.log.lasted_s + other.log.lasted_s))
    assert together.chosen_by["load"] == 400
