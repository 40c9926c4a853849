"""The gateway's governance in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from roadworthy.advise.arrivals import Arrivals
from roadworthy.simulate.governed import Governance
from roadworthy.simulate.loads import Mix
from roadworthy.simulate.run import simulate
from roadworthy.simulate.standing import served_tokens
from roadworthy.spec.load import load_text
from roadworthy.spec.values import Deployment, Quantiles, RequestProfile, Tenant
from support.twin import config

if TYPE_CHECKING:
    from roadworthy.simulate.result import SimulatedRun

LOAD = RequestProfile(
    prompt_tokens=Quantiles(p50=40, p90=60, p99=80), output_tokens=Quantiles(p50=20, p90=30, p99=40), rate_per_s=10.0
)
ENGINE = config(max_num_seqs=8, policy="priority")


def deployment(*tenants: Tenant, governance: str = "{}") -> Deployment:
    text = f"model: {{config: tiny}}\ntenants: [{{id: x, key: sk-x}}]\ngovernance: {governance}\n"
    return replace(load_text(text, source="x"), tenants=tenants)


def run(
    document: Deployment, rates: Mapping[str, float], *, seconds: float = 30.0, twins: Sequence[Any] = (ENGINE,)
) -> SimulatedRun:
    schedule = Mix(
        {
            name: Arrivals(replace(LOAD, rate_per_s=rate), seed=place, duration_s=seconds)
            for place, (name, rate) in enumerate(rates.items())
        }
    )
    return simulate(list(twins), schedule, gate=Governance(document, list(twins)), scrape_s=1.0)


def errors(result: SimulatedRun, tenant: str) -> Counter[str]:
    return Counter(record.error for record in result.records if record.tenant == tenant and not record.ok)


def test_a_rate_lets_its_minute_through_and_refuses_the_rest() -> None:
    document = deployment(Tenant(id="a", requests_per_minute=60))
    result = run(document, {"a": 10.0}, seconds=30.0)
    done = sum(record.ok for record in result.records)
    assert 60 + 30 - 3 <= done <= 60 + 30 + 3  # a minute's worth at once, then one a second
    assert set(errors(result, "a")) == {"rate_limited"}


def test_a_daily_budget_ends() -> None:
    result = run(deployment(Tenant(id="a", daily_tokens=5_000)), {"a": 10.0})
    used = sum(record.n_in + record.n_out for record in result.records if record.ok)
    assert 4_500 <= used <= 5_000
    assert set(errors(result, "a")) == {"daily_budget_exhausted"}


def test_no_more_of_a_tenant_than_its_concurrency_is_ever_under_way() -> None:
    result = run(deployment(Tenant(id="a", concurrency=3)), {"a": 30.0})
    ends = sorted(
        (time_s, step)
        for record in result.records
        if record.ok
        for time_s, step in ((record.t_sched_s, 1), (record.t_last_s, -1))
    )
    under_way = most = 0
    for _, step in ends:
        under_way += step
        most = max(most, under_way)
    assert most == 3
    assert set(errors(result, "a")) == {"concurrency_limited"}


def test_what_waits_for_a_slot_waits_at_the_gateway() -> None:
    document = deployment(Tenant(id="a"), governance="{slots_per_engine: 4}")
    result = run(document, {"a": 40.0}, seconds=10.0)
    waits_s = [waited_s for waited_s in result.log.waited_s if waited_s > 0]
    assert len(waits_s) > 100
    waited = max(zip(result.log.waited_s, result.records, strict=True), key=lambda pair: pair[0])
    assert waited[1].ttft_s == pytest.approx(waited[0], abs=0.1)


def test_a_full_queue_and_a_deadline_turn_away() -> None:
    document = deployment(Tenant(id="a"), governance="{slots_per_engine: 1, queue: {per_tenant: 5}}")
    assert errors(run(document, {"a": 40.0}), "a")["queue_full"] > 100
    patient = deployment(Tenant(id="a"), governance="{slots_per_engine: 1, queue: {max_wait: 1s}}")
    result = run(patient, {"a": 40.0})
    assert set(errors(result, "a")) == {"deadline_unreachable"}
    assert max(result.log.waited_s) <= 1.0 + 0.3


def test_weights_share_what_there_is() -> None:
    document = deployment(Tenant(id="a", weight=1.0), Tenant(id="b", weight=3.0))
    result = run(document, {"a": 60.0, "b": 60.0}, seconds=60.0)
    served = served_tokens(result.log, from_s=15.0, to_s=60.0)
    assert sum(served["b"]) / sum(served["a"]) == pytest.approx(3.0, rel=0.05)


def test_an_urgent_tenant_does_not_wait_for_one_that_is_not() -> None:
    document = deployment(Tenant(id="urgent", priority=-5), Tenant(id="bulk", priority=5))
    result = run(document, {"urgent": 4.0, "bulk": 60.0})
    ttfts_s = {
        name: sorted(record.user_ttft_s or 0.0 for record in result.records if record.ok and record.tenant == name)
        for name in ("urgent", "bulk")
    }
    middle_s = {name: times_s[len(times_s) // 2] for name, times_s in ttfts_s.items()}
    assert middle_s["urgent"] < middle_s["bulk"] / 10


def test_beyond_its_kv_quota_a_tenant_borrows_and_stands_behind_the_others() -> None:
    one_request = ENGINE.cache.held_blocks(80) * sum(ENGINE.cache.bytes_per_block)
    greedy = Tenant(id="greedy", kv_quota_bytes=2 * one_request)
    alone = run(deployment(greedy), {"greedy": 60.0})
    beside = run(deployment(greedy, Tenant(id="other")), {"greedy": 60.0, "other": 20.0})

    def tokens(result: SimulatedRun, name: str) -> float:
        return sum(served_tokens(result.log, from_s=5.0, to_s=30.0)[name])

    assert tokens(beside, "greedy") < tokens(alone, "greedy") / 1.5
    assert sum(record.ok for record in beside.records if record.tenant == "other") > 0.95 * 20 * 30
    assert "kv_quota" not in str(errors(alone, "greedy"))


def test_a_rule_refuses_by_name() -> None:
    document = load_text(
        "model: {config: tiny}\ntenants: [{id: a, key: sk-a}]\n"
        "governance: {rules: [{name: long, when: [prompt_tokens > 50], action: refuse}]}\n",
        source="x",
    )
    result = run(document, {"a": 10.0})
    assert {record.error for record in result.records if record.n_in > 50} == {"BUSINESS_OVERRUN"}
    assert all(record.ok for record in result.records if record.n_in <= 50)


def test_a_rule_about_slow_answers_comes_on_when_three_in_a_row_were_slow() -> None:
    document = load_text(
        "model: {config: tiny}\ntenants: [{id: a, key: sk-a}]\n"
        "governance: {rules: [{name: slow, when: [itl_p99_ms > 5], action: refuse, hold: 5s}]}\n",
        source="x",
    )
    result = run(document, {"a": 10.0}, twins=[config(max_num_seqs=8)])  # steps of 10 ms
    refused = errors(result, "a")["BUSINESS_OVERRUN"]
    assert refused > len(result.records) / 2
    assert sum(record.ok for record in result.records) >= 3


def test_a_model_that_is_not_simulated_answers_nothing_here() -> None:
    document = load_text(
        "model: {config: tiny}\ntenants: [{id: a, key: sk-a, fallback: small-model}]\n"
        "governance: {rules: [{name: long, when: [prompt_tokens > 50], action: degrade}]}\n",
        source="x",
    )
    result = run(document, {"a": 10.0})
    assert {record.error for record in result.records if record.n_in > 50} == {"degraded"}


def test_engines_that_are_gone_leave_their_room_with_them() -> None:
    from roadworthy.simulate.outages import Outage

    document = deployment(Tenant(id="a"), governance="{slots_per_engine: 4, queue: {max_wait: 5s}}")
    twins = [ENGINE, ENGINE]
    schedule = Mix({"a": Arrivals(replace(LOAD, rate_per_s=20.0), seed=0, duration_s=20.0)})
    result = simulate(
        twins, schedule, gate=Governance(document, twins), outages=[Outage(engine=0, at_s=5.0, lasts_s=5.0)]
    )
    starts = [
        (record.t_first_s or 0.0, record.t_last_s) for record in result.records if record.ok and record.t_sched_s < 20
    ]
    in_flight = sum(first_s < 7.5 < last_s for first_s, last_s in starts)
    assert 0 < in_flight <= 4


def test_a_beginning_that_all_prompts_share_is_room_for_more_of_them() -> None:
    engine = config(max_num_seqs=64, kv_blocks=401)
    alike = RequestProfile(
        prompt_tokens=Quantiles(p50=480, p90=490, p99=500),
        output_tokens=Quantiles(p50=300, p90=320, p99=340),
        rate_per_s=4.0,
        shared_prefix_ratio=0.9,
    )
    document = deployment(Tenant(id="a"))

    def waited_s(*, shared_text: bool) -> float:
        load = Mix({"a": Arrivals(alike, seed=0, duration_s=40.0)})
        gate = Governance(document, [engine], shared_text=shared_text)
        result = simulate([engine], load, gate=gate, scrape_s=1.0)
        assert all(record.ok for record in result.records)
        return sum(result.log.waited_s)

    assert waited_s(shared_text=True) < 0.7 * waited_s(shared_text=False), "engines say that they are not full"
