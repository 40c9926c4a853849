"""Engines that die and come back in the middle of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from roadworthy.advise.arrivals import Arrivals
from roadworthy.core.errors import SpecError
from roadworthy.simulate.outages import Outage, parse_fault
from roadworthy.simulate.run import simulate
from roadworthy.spec.values import Quantiles, RequestProfile
from support.twin import config, step_time

if TYPE_CHECKING:
    from roadworthy.simulate.result import SimulatedRun

LOAD = RequestProfile(
    prompt_tokens=Quantiles(p50=40, p90=60, p99=80), output_tokens=Quantiles(p50=60, p90=80, p99=90), rate_per_s=20.0
)


def run(*outages: Outage, engines: int = 2, seconds: float = 30.0) -> SimulatedRun:
    return simulate(
        [config(max_num_seqs=64)] * engines, Arrivals(LOAD, seed=4, duration_s=seconds), outages=outages, scrape_s=1.0
    )


def test_what_had_sent_tokens_is_lost_and_the_rest_goes_elsewhere() -> None:
    calm, broken = run(), run(Outage(engine=0, at_s=10.0, lasts_s=5.0))
    assert len(calm.records) == len(broken.records)
    lost = [record for record in broken.records if not record.ok]
    assert lost
    assert {record.error for record in lost} == {"engine_lost"}
    assert all(record.t_last_s == 10.0 and record.engine == "engine-0" and record.n_out > 0 for record in lost)


def test_a_prompt_that_was_not_answered_yet_is_answered_by_the_other_engine() -> None:
    slow = [config(max_num_seqs=64, step_time=step_time(step_s=0.5))] * 2
    few = Arrivals(replace(LOAD, rate_per_s=4.0), seed=4, duration_s=10.0)
    result = simulate(slow, few, outages=[Outage(engine=0, at_s=5.0)])
    moved = [record for record in result.records if record.ok and record.t_sched_s < 5.0 < (record.t_first_s or 0.0)]
    assert moved
    assert all(record.engine == "engine-1" for record in moved)


def test_nothing_goes_to_an_engine_while_it_is_down_and_again_when_it_is_back() -> None:
    result = run(Outage(engine=0, at_s=10.0, lasts_s=5.0))
    by_engine = Counter(record.engine for record in result.records if 10.0 < record.t_sched_s < 15.0)
    assert set(by_engine) == {"engine-1"}
    after = Counter(record.engine for record in result.records if record.t_sched_s > 16.0)
    assert after["engine-0"] > after["engine-1"] / 2


def test_the_counters_of_an_engine_span_its_processes() -> None:
    result = run(Outage(engine=0, at_s=10.0, lasts_s=5.0))
    done = sum(record.engine == "engine-0" and record.ok for record in result.records)
    assert result.engines[0].finished["length"] == done
    assert result.log.gaps.count >= sum(record.n_out - 1 for record in result.records if record.ok)


def test_without_any_engine_requests_fail_at_once() -> None:
    result = run(Outage(engine=0, at_s=5.0, lasts_s=100.0), engines=1, seconds=10.0)
    late = [record for record in result.records if record.t_sched_s > 5.0]
    assert late
    assert {record.error for record in late} == {"no_engine"}


def test_an_outage_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be"):
        Outage(engine=-1, at_s=0.0)
    with pytest.raises(ValueError, match="cannot be"):
        Outage(engine=0, at_s=float("nan"))


def test_a_slow_engine_is_slow_for_as_long_as_it_is_said() -> None:
    fault = parse_fault("slow:0@10s+10s*5")
    calm = simulate([config(max_num_seqs=64)], Arrivals(LOAD, seed=4, duration_s=40.0))
    slow = simulate([config(max_num_seqs=64)], Arrivals(LOAD, seed=4, duration_s=40.0), faults=[fault])

    def tpots_s(run: SimulatedRun, from_s: float, to_s: float) -> list[float]:
        return [record.tpot_s or 0.0 for record in run.records if from_s < record.t_sched_s and record.t_last_s < to_s]

    assert tpots_s(slow, 0.0, 10.0) == pytest.approx(tpots_s(calm, 0.0, 10.0))
    assert min(tpots_s(slow, 10.0, 20.0)) == pytest.approx(5 * min(tpots_s(calm, 10.0, 20.0)), rel=0.01)


def test_an_engine_that_refuses_sends_requests_to_the_others() -> None:
    result = simulate(
        [config(max_num_seqs=64)] * 2,
        Arrivals(LOAD, seed=4, duration_s=20.0),
        faults=[parse_fault("refuse:0@0s*1")],
    )
    assert all(record.ok and record.engine == "engine-1" for record in result.records)


@pytest.mark.parametrize("text", ["crash:0@1s", "slow:0", "slow:0@1s*0.5", "slow:0@1s+0s", "melt:0@1s", "slow:x@1s"])
def test_a_fault_that_cannot_be_is_said(text: str) -> None:
    with pytest.raises(SpecError, match="fault"):
        parse_fault(text)


def test_a_slow_stage_is_named_behind_its_engine() -> None:
    fault = parse_fault("slow:2.1@10s*2").fault
    assert (fault.stage, fault.size) == (1, 2.0)


def test_a_size_that_means_nothing_is_explained_by_what_it_is() -> None:
    with pytest.raises(SpecError) as caught:
        parse_fault("refuse:0@1s*7")
    assert "share of requests" in caught.value.hint
    with pytest.raises(SpecError, match="only slow knows stages"):
        parse_fault("link:0.1@1s*2")
