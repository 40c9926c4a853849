"""Arrivals, routing and twins in virtual time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from roadworthy.advise.arrivals import Arrivals
from roadworthy.route.pick import least_load
from roadworthy.route.values import Decision, EndpointView, RouteRequest
from roadworthy.simulate.run import simulate
from roadworthy.spec.values import Quantiles, RequestProfile, Sessions, Tenant
from support.twin import STEP_S, config, step_time

if TYPE_CHECKING:
    from roadworthy.simulate.result import SimulatedRun

SHORT = RequestProfile(
    prompt_tokens=Quantiles(p50=40, p90=60, p99=80), output_tokens=Quantiles(p50=10, p90=20, p99=30), rate_per_s=20.0
)
CHATS = replace(SHORT, sessions=Sessions(turns=3.0, think_time_s=0.5), shared_prefix_ratio=0.5)


def run(profile: RequestProfile = SHORT, *, engines: int = 1, requests: int = 200, **changes: object) -> SimulatedRun:
    twins = [config(max_num_seqs=64, **changes)] * engines
    return simulate(twins, Arrivals(profile, seed=4, requests=requests), pick=least_load)


def test_every_planned_request_is_recorded_once() -> None:
    result = run(CHATS)
    assert len(result.records) == 200
    assert len({(record.session, record.turn) for record in result.records}) == 200
    assert all(record.ok for record in result.records)


def test_a_lone_request_takes_its_steps_and_no_more() -> None:
    (record,) = run(requests=1).records
    assert record.ttft_s == pytest.approx(STEP_S)
    assert record.e2e_s == pytest.approx(record.n_out * STEP_S)
    assert record.itl_s == pytest.approx((STEP_S,) * (record.n_out - 1))
    assert record.client_queue_s == 0


def test_the_same_seed_gives_the_same_records() -> None:
    assert run(CHATS, engines=3) == run(CHATS, engines=3)


def test_a_turn_starts_only_after_the_one_before_has_ended() -> None:
    records = {(record.session, record.turn): record for record in run(CHATS, engines=2).records}
    later = [record for record in records.values() if record.turn > 0]
    assert later
    for record in later:
        assert record.t_sched_s > records[record.session, record.turn - 1].t_last_s


def test_a_later_turn_finds_the_conversation_in_the_cache() -> None:
    later = [record for record in run(CHATS).records if record.turn > 0]
    assert all(record.cached_tokens for record in later)


def test_least_load_spreads_requests_over_equal_engines() -> None:
    result = run(engines=4, requests=400)
    shares = [sum(record.engine == f"engine-{index}" for record in result.records) for index in range(4)]
    assert sum(shares) == 400
    assert max(shares) - min(shares) < 40


def test_more_engines_are_no_slower() -> None:
    slow = step_time(step_s=0.02, token_s=0.002)
    one = run(requests=300, step_time=slow)
    four = run(requests=300, step_time=slow, engines=4)
    assert sum(record.e2e_s for record in four.records) < sum(record.e2e_s for record in one.records)
    assert four.utilisation_ratio < one.utilisation_ratio <= 1


def test_tenants_and_their_priorities_reach_the_engine() -> None:
    tenants = (Tenant(id="bulk", priority=9), Tenant(id="urgent", priority=0))
    twin = config(max_num_seqs=1, policy="priority")
    result = simulate(
        [twin],
        Arrivals(SHORT, seed=4, requests=100, tenants=tenants),
        pick=least_load,
        priorities={tenant.id: tenant.priority for tenant in tenants},
    )
    waits = {
        name: [record.ttft_s or 0.0 for record in result.records if record.tenant == name]
        for name in ("bulk", "urgent")
    }
    assert sum(waits["urgent"]) / len(waits["urgent"]) < sum(waits["bulk"]) / len(waits["bulk"]) / 2


def test_a_refused_request_is_tried_elsewhere_and_fails_when_all_are_full() -> None:
    result = run(replace(SHORT, rate_per_s=1000.0), engines=2, requests=100, max_num_queued_reqs=5)
    failed = [record for record in result.records if not record.ok]
    assert failed
    assert {record.error for record in failed} == {"queue_full"}
    assert {record.engine for record in result.records if record.ok} == {"engine-0", "engine-1"}
    assert len(result.records) == 100


def test_a_prompt_longer_than_the_context_fails_by_name() -> None:
    result = run(max_model_len=50)
    assert {record.error for record in result.records if not record.ok} == {"context_length_exceeded"}
    assert all(record.n_in >= 50 for record in result.records if not record.ok)


def test_the_routing_that_is_handed_in_decides() -> None:
    def always_last(endpoints: Sequence[EndpointView], request: RouteRequest, *, tried: Collection[str]) -> Decision:
        return Decision(outcome="routed", endpoint=endpoints[-1].url)

    result = simulate([config()] * 3, Arrivals(SHORT, seed=1, requests=30), pick=always_last)
    assert {record.engine for record in result.records} == {"engine-2"}


def test_progress_counts_every_end() -> None:
    seen: list[int] = []
    simulate([config()], Arrivals(SHORT, seed=1, requests=30), pick=least_load, progress=seen.append)
    assert seen == list(range(1, 31))


def test_without_an_engine_there_is_nothing_to_simulate() -> None:
    with pytest.raises(ValueError, match="no engine"):
        simulate([], Arrivals(SHORT, seed=1, requests=1), pick=least_load)
