"""A run as a value: what it is made of, and what may be left out of it without a difference."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from roadworthy.core.errors import SpecError
from roadworthy.simulate.outages import EngineFault, Outage
from roadworthy.simulate.run import simulate
from roadworthy.simulate.trial import Trial, arrivals_of, run_trial
from roadworthy.simulate.what_if import ALL
from roadworthy.spec.load import load_text
from roadworthy.twin.faults import Fault
from support.twin import config

if TYPE_CHECKING:
    from roadworthy.simulate.result import SimulatedRun
    from roadworthy.twin.config import TwinConfig

DOCUMENT = """
model: {config: tiny}
workload:
  prompt_tokens: {p50: 300, p90: 400, p99: 500}
  output_tokens: {p50: 60, p90: 90, p99: 120}
  rate: 12/s
tenants: [{id: a, key: sk-a, weight: 3}, {id: b, key: sk-b, weight: 1}]
"""


def trial(*, more: str = "", engine: TwinConfig | None = None, **changes: object) -> Trial:
    deployment = load_text(DOCUMENT + more, source="x")
    configs = (engine or config(max_num_seqs=32),) * 2
    base = Trial(deployment=deployment, configs=configs, requests=150, seed=2)
    return replace(base, **changes)  # type: ignore[arg-type]


def with_the_cache(one: Trial) -> SimulatedRun:
    return simulate(one.configs, arrivals_of(one), scrape_s=1.0)


def test_leaving_the_cache_out_changes_nothing_where_prompts_share_no_text() -> None:
    one = trial(governed=False)
    assert run_trial(one).records == with_the_cache(one).records


def test_with_preemptions_the_cache_is_there() -> None:
    tight = config(max_num_seqs=32, kv_blocks=100)
    one = trial(engine=tight, governed=False, traffic=((ALL, 8.0),))
    expected = with_the_cache(one)
    assert expected.preemptions > 0
    seen = run_trial(one)
    assert seen.preemptions == expected.preemptions
    assert seen.records == expected.records


def test_shared_text_keeps_the_cache() -> None:
    one = trial(more="", governed=False)
    workload = replace(one.deployment.workload, shared_prefix_ratio=0.5)
    shared = replace(one, deployment=replace(one.deployment, workload=workload))
    assert run_trial(shared).cached_ratio > 0.2


def test_traffic_scales_what_is_asked_for() -> None:
    plain, twice = arrivals_of(trial()), arrivals_of(trial(traffic=((ALL, 2.0),)))
    assert twice.asked_rate_per_s == 2 * (plain.asked_rate_per_s or 0)
    one = arrivals_of(trial(traffic=(("b", 5.0),)))
    assert one.asked_rate_per_s == pytest.approx(12 * (3 + 5) / 4)
    sent = [planned.tenant for planned in arrivals_of(trial(requests=4000, traffic=(("b", 5.0),))).first_turns()]
    assert sent.count("b") / len(sent) == pytest.approx(5 / 8, abs=0.03)
    alone = [planned.tenant for planned in arrivals_of(trial(traffic=(("a", 0.0),))).first_turns()]
    assert set(alone) == {"b"}


def test_traffic_scales_the_parts_of_a_mix_that_a_tenant_sends() -> None:
    deployment = load_text(
        DOCUMENT.replace(
            "rate: 12/s",
            "rate: 12/s\n  mix: [{kind: chat, share: 50%, tenants: [a]}, {kind: agent, share: 50%, tenants: [b]}]",
        ),
        source="x",
    )
    more = replace(trial(), deployment=deployment, traffic=(("b", 3.0),))
    assert arrivals_of(more).asked_rate_per_s == pytest.approx(12 * (0.5 + 1.5))
    gone = replace(trial(), deployment=deployment, traffic=(("b", 0.0),))
    assert {planned.tenant for planned in arrivals_of(gone).first_turns()} == {"a"}


def test_what_cannot_be_simulated_is_said() -> None:
    with pytest.raises(SpecError, match="no such tenant"):
        arrivals_of(trial(traffic=(("c", 2.0),)))
    with pytest.raises(SpecError, match="nobody asks"):
        arrivals_of(trial(traffic=((ALL, 0.0),)))
    with pytest.raises(SpecError, match="engine 2 cannot fail"):
        trial(outages=(Outage(engine=2, at_s=1.0),))


def test_a_stage_that_an_engine_does_not_have_cannot_be_slow() -> None:
    fault = EngineFault(engine=0, fault=Fault(kind="slow", from_s=1.0, size=2.0, stage=3))
    with pytest.raises(SpecError, match="it has 1, the first is 0"):
        replace(trial(), faults=(fault,))


def test_long_prompts_that_share_nothing_are_routed_as_by_all_their_keys() -> None:
    """One key of its own stands for each, which changes no decision."""
    long = load_text(DOCUMENT.replace("{p50: 300, p90: 400, p99: 500}", "{p50: 700, p90: 800, p99: 850}"), source="x")
    one = replace(trial(governed=False), deployment=long)
    told = run_trial(one)
    expected = with_the_cache(one)
    assert told.records == expected.records
    assert told.chosen_by == expected.chosen_by
