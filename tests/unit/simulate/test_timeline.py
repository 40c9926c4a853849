"""A run over time: nothing is made up between looks, and what was busy adds up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from roadworthy.advise.arrivals import Arrivals
from roadworthy.simulate.outages import Outage
from roadworthy.simulate.periods import pooled
from roadworthy.simulate.run import simulate
from roadworthy.simulate.timeline import levels_of
from roadworthy.spec.values import Quantiles, RequestProfile
from support.twin import config, step_time

if TYPE_CHECKING:
    from roadworthy.simulate.result import SimulatedRun

LOAD = RequestProfile(
    prompt_tokens=Quantiles(p50=40, p90=60, p99=80), output_tokens=Quantiles(p50=60, p90=90, p99=120), rate_per_s=10.0
)
ENGINES = [config(max_num_seqs=16, step_time=step_time(step_s=0.02))] * 2


def run(**more: object) -> SimulatedRun:
    return simulate(ENGINES, Arrivals(LOAD, seed=2, requests=400), scrape_s=1.0, **more)  # type: ignore[arg-type]


def test_the_busy_shares_add_up_to_the_utilisation() -> None:
    one = run()
    levels = levels_of(one.timeline, one.log, 2)
    mean = sum(level for _, level in levels.utilisation_ratio) / len(levels.utilisation_ratio)
    assert mean == pytest.approx(one.utilisation_ratio, rel=0.05)
    assert all(0 <= level <= 1 for _, level in levels.utilisation_ratio)


def test_busy_time_goes_on_over_a_restart() -> None:
    one = run(outages=[Outage(engine=0, at_s=15.0, lasts_s=5.0)])
    assert list(one.timeline.busy_s) == sorted(one.timeline.busy_s)


def test_there_is_no_more_to_see_than_was_looked_at() -> None:
    one = run()
    levels = levels_of(one.timeline, one.log, 2, points=10_000)
    assert len(levels.running) <= one.log.lasted_s + 1
    assert max(level for _, level in levels.running) > 4
    assert not levels.queued


def test_a_service_with_nothing_to_do_is_level_at_nothing() -> None:
    lull = Arrivals(replace(LOAD, rate_per_s=0.01), seed=2, requests=5)
    one = simulate(ENGINES, lull, scrape_s=1.0)
    levels = levels_of(one.timeline, one.log, 2, points=40)
    assert sum(level == 0 for _, level in levels.running) > 20


def test_periods_are_laid_end_to_end() -> None:
    first, second = run(), run()
    lasted_s, looks = max(first.log.t_last_s), len(first.timeline.at_s)
    both = pooled([first, second])
    assert len(both.timeline.at_s) == 2 * looks
    assert both.timeline.at_s[looks] > lasted_s
    assert list(both.timeline.busy_s) == sorted(both.timeline.busy_s)
