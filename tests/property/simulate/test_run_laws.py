"""Laws of a simulated service, whatever the tenants, the limits and the misfortunes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.advise.arrivals import Arrivals
from roadworthy.simulate.flight import TICK_S
from roadworthy.simulate.governed import Governance
from roadworthy.simulate.loads import Mix
from roadworthy.simulate.outages import Outage
from roadworthy.simulate.run import simulate
from roadworthy.spec.governance_values import GovernanceSpec, QueueSpec
from roadworthy.spec.values import Deployment, ModelRef, Quantiles, RequestProfile, Sessions, Tenant
from support.twin import config

if TYPE_CHECKING:
    from roadworthy.core.records import RequestRecord
    from roadworthy.simulate.result import SimulatedRun

SHORT = RequestProfile(
    prompt_tokens=Quantiles(p50=40, p90=90, p99=200), output_tokens=Quantiles(p50=10, p90=30, p99=60)
)
ENGINE = config(max_num_seqs=8, policy="priority")
SECONDS = 6.0

limits = st.fixed_dictionaries(
    {
        "weight": st.sampled_from([0.5, 1.0, 3.0]),
        "priority": st.integers(-2, 2),
        "concurrency": st.none() | st.integers(1, 6),
        "requests_per_minute": st.none() | st.integers(1, 300),
        "tokens_per_minute": st.none() | st.integers(200, 20_000),
        "daily_tokens": st.none() | st.integers(200, 20_000),
        "kv_quota_bytes": st.none() | st.integers(1, 200),
    }
)
loads = st.builds(
    lambda rate, turns: replace(SHORT, rate_per_s=rate, sessions=Sessions(turns=turns, think_time_s=0.3)),
    st.sampled_from([1.0, 8.0, 30.0]),
    st.sampled_from([1.0, 2.0]),
)
queues = st.builds(
    QueueSpec, total=st.integers(0, 40), per_tenant=st.integers(0, 40), max_wait_s=st.sampled_from([0.5, 3.0, 60.0])
)
outages = st.lists(
    st.builds(Outage, engine=st.integers(0, 1), at_s=st.floats(0.1, 6.0), lasts_s=st.floats(0.1, 4.0)), max_size=1
)


def play(
    tenants: list[dict[str, object]], profiles: list[RequestProfile], queue: QueueSpec, lost: list[Outage], slots: int
) -> tuple[SimulatedRun, int]:
    names = [f"t{place}" for place in range(min(len(tenants), len(profiles)))]
    document = Deployment(
        name="x",
        model=ModelRef(config="tiny"),
        tenants=tuple(Tenant(id=name, **own) for name, own in zip(names, tenants, strict=False)),  # type: ignore[arg-type]
        governance=GovernanceSpec(queue=queue, slots_per_engine=slots),
    )

    def load() -> Mix:
        return Mix(
            {
                name: Arrivals(profile, seed=place, duration_s=SECONDS, max_context_tokens=1024)
                for place, (name, profile) in enumerate(zip(names, profiles, strict=False))
            }
        )

    twins = [ENGINE, ENGINE]
    run = simulate(twins, load(), gate=Governance(document, twins), outages=lost, scrape_s=1.0)
    return run, sum(1 for _ in load().first_turns())


def most_at_once(records: list[RequestRecord]) -> int:
    steps = sorted((at_s, step) for one in records for at_s, step in ((one.t_sched_s, 1), (one.t_last_s, -1)))
    under_way = most = 0
    for _, step in steps:
        under_way += step
        most = max(most, under_way)
    return most


@settings(max_examples=40, deadline=None)
@given(
    tenants=st.lists(limits, min_size=1, max_size=3),
    profiles=st.lists(loads, min_size=3, max_size=3),
    queue=queues,
    lost=outages,
    slots=st.integers(1, 8),
)
def test_every_request_ends_once_within_its_tenants_limits(
    tenants: list[dict[str, object]],
    profiles: list[RequestProfile],
    queue: QueueSpec,
    lost: list[Outage],
    slots: int,
) -> None:
    run, first_turns = play(tenants, profiles, queue, lost, slots)
    records = run.records
    keys = [(one.tenant, one.session, one.turn) for one in records]
    assert len(set(keys)) == len(keys)
    assert sum(one.turn == 0 for one in records) == first_turns
    for one in records:
        assert one.ok != bool(one.error)
        assert one.t_last_s >= one.t_sched_s
        assert one.t_first_s is None or one.t_sched_s < one.t_first_s <= one.t_last_s
    for waited_s, one in zip(run.log.waited_s, records, strict=True):
        assert waited_s <= queue.max_wait_s + TICK_S + 1e-3
        assert waited_s <= (one.t_last_s - one.t_sched_s) + 1e-3
    for place, own in enumerate(tenants):
        ran = [one for one in records if one.tenant == f"t{place}" and (one.ok or one.error == "engine_lost")]
        if own["concurrency"] is not None:
            assert most_at_once(ran) <= own["concurrency"]
    if not lost:
        assert not any(one.error in ("engine_lost", "no_engine") for one in records)


@settings(max_examples=15, deadline=None)
@given(tenants=st.lists(limits, min_size=2, max_size=2), profiles=st.lists(loads, min_size=2, max_size=2), lost=outages)
def test_the_same_service_under_the_same_load_does_the_same(
    tenants: list[dict[str, object]], profiles: list[RequestProfile], lost: list[Outage]
) -> None:
    one, _ = play(tenants, profiles, QueueSpec(), lost, 4)
    again, _ = play(tenants, profiles, QueueSpec(), lost, 4)
    assert one.records == again.records


@settings(max_examples=15, deadline=None)
@given(profiles=st.lists(loads, min_size=2, max_size=2), slots=st.integers(1, 8))
def test_without_limits_everybody_is_served(profiles: list[RequestProfile], slots: int) -> None:
    run, _ = play([{}, {}], profiles, QueueSpec(max_wait_s=1e6), [], slots)
    assert all(one.ok for one in run.records)
