"""What a fair queue owes everybody: bounded differences, no credit for idling, no starvation."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.core.errors import Refused
from roadworthy.route.govern.footprint import BlockShape
from roadworthy.route.govern.governor import Governor
from roadworthy.route.govern.meter import LocalMeter
from roadworthy.route.govern.settings import GovernSettings
from roadworthy.route.values import RouteRequest
from roadworthy.spec.governance_values import QueueSpec
from roadworthy.spec.values import Tenant

if TYPE_CHECKING:
    from roadworthy.route.govern.permit import HeldPermit
    from roadworthy.route.govern.values import Grant

PROMPT_MOST, OUTPUT_MOST = 200, 60
WORK_MOST = PROMPT_MOST + 2 * OUTPUT_MOST


@dataclass(slots=True, eq=False)
class Job:
    tenant_id: str
    prompt: int
    output: int
    asked_s: float
    grant: Grant | None = None


@dataclass
class Engine:
    """``slots`` requests at once, each token of an answer a hundredth of a second; prompts are free, so that work and
    time are not the same thing."""

    tenants: dict[str, Tenant]
    slots: int
    queue: QueueSpec = field(default_factory=lambda: QueueSpec(max_wait_s=86_400.0, ageing_s=86_400.0))
    seed: int = 0
    headroom_ratio: float = 0.1

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.governor = Governor(
            self.tenants.values(),
            settings=GovernSettings(queue=self.queue, charge_every_tokens=1, borrow_headroom_ratio=self.headroom_ratio),
            shape=BlockShape(block_tokens=1, block_bytes=1),
        )
        self.governor.capacity(None, self.slots)
        self.meter = LocalMeter()
        self.now_s = 0.0
        self.ends: list[tuple[float, int, Job, HeldPermit]] = []
        self.served = dict.fromkeys(self.tenants, 0.0)
        self.starts: list[tuple[str, float, float]] = []
        self.order = 0

    def ask(self, tenant_id: str) -> None:
        job = Job(tenant_id, self.random.randint(1, PROMPT_MOST), self.random.randint(1, OUTPUT_MOST), self.now_s)
        tenant = self.tenants[tenant_id]
        request = RouteRequest(
            tenant_id=tenant_id, model="m", stream=True, max_tokens=job.output, prompt_tokens=job.prompt
        )
        charge = self.governor.charge(tenant, request)
        job.grant = self.meter.acquire(self.governor.limits(tenant_id), charge, str(self.order), self.now_s)
        permit = self.governor.enter(job.grant, tenant, request, job, self.now_s)
        if permit is not None:
            self.start(job, permit)

    def start(self, job: Job, permit: HeldPermit) -> None:
        self.order += 1
        self.served[job.tenant_id] += job.prompt
        self.starts.append((job.tenant_id, job.asked_s, self.now_s))
        heappush(self.ends, (self.now_s + job.output / 100, self.order, job, permit))

    def step(self) -> str:
        """To the next end; whose request ended."""
        self.now_s, _, job, permit = heappop(self.ends)
        assert job.grant is not None
        self.served[job.tenant_id] += 2 * job.output
        permit.streamed(job.output)
        self.governor.leave(permit, prompt_tokens=job.prompt, output_tokens=job.output, now_s=self.now_s)
        self.meter.settle(job.grant, prompt_tokens=job.prompt, output_tokens=job.output, now_s=self.now_s)
        for owner, turn in self.governor.ready(self.now_s):
            assert isinstance(owner, Job)
            self.start(owner, turn)
        return job.tenant_id


def backlog(engine: Engine, names: tuple[str, ...], steps: int, least: int = 3) -> dict[str, float]:
    """Let these tenants always have something waiting, for so many ends; the work done for each."""
    for name in names:
        for _ in range(engine.slots + least):
            engine.ask(name)
    before = dict(engine.served)
    for _ in range(steps):
        engine.step()
        for name in names:
            while engine.governor.waiting_of(name) < least:
                engine.ask(name)
    return {name: engine.served[name] - before[name] for name in names}


@given(
    slots=st.integers(1, 8),
    weights=st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=2, max_size=5),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=30, deadline=None)
def test_tenants_that_always_wait_differ_by_a_bounded_amount_of_work(
    slots: int, weights: list[float], seed: int
) -> None:
    """By weight, however long it goes on. What is charged late is what runs: no more than the slots hold."""
    tenants = {f"t{index}": Tenant(id=f"t{index}", weight=weight) for index, weight in enumerate(weights)}
    engine = Engine(tenants, slots, seed=seed)
    names = tuple(tenants)
    done = dict.fromkeys(names, 0.0)
    bound = 2 * (slots + 1) * WORK_MOST / min(weights)
    for _ in range(6):
        more = backlog(engine, names, 80)
        for name in names:
            done[name] += more[name]
        shares = [done[name] / tenants[name].weight for name in names]
        assert max(shares) - min(shares) <= bound


@given(slots=st.integers(1, 4), idle_steps=st.integers(1, 300), seed=st.integers(0, 2**16))
@settings(max_examples=30, deadline=None)
def test_an_idle_tenant_gains_no_credit(slots: int, idle_steps: int, seed: int) -> None:
    """However long it was away, from the moment it comes it gets its share and no more."""
    tenants = {name: Tenant(id=name) for name in ("busy", "away")}
    engine = Engine(tenants, slots, seed=seed)
    backlog(engine, ("away",), 3)
    for _ in range(20 * slots):
        if not engine.ends:
            break
        engine.step()
    backlog(engine, ("busy",), idle_steps)
    done = backlog(engine, ("busy", "away"), 100)
    assert abs(done["busy"] - done["away"]) <= 2 * (slots + 1) * WORK_MOST


@given(seed=st.integers(0, 2**16), low=st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_ageing_brings_every_class_its_turn(seed: int, low: int) -> None:
    """A better class that never ends delays a request by the ageing time for each class between, and then by its
    tenant's turn."""
    tenants = {"first": Tenant(id="first", priority=-5), "last": Tenant(id="last", priority=5)}
    engine = Engine(tenants, 2, queue=QueueSpec(max_wait_s=3_600.0, ageing_s=5.0), seed=seed)
    for _ in range(6):
        engine.ask("first")
    for _ in range(low):
        engine.ask("last")
    while engine.now_s < 60.0:
        engine.step()
        while engine.governor.waiting_of("first") < 4:
            engine.ask("first")
    waits = [started - asked for name, asked, started in engine.starts if name == "last"]
    assert len(waits) == low
    assert min(waits) >= 4.0, "it was served before its time"
    assert max(waits) <= 5.0 + low * 4 * OUTPUT_MOST / 100


@given(seed=st.integers(0, 2**16), floods=st.integers(1, 8), headroom_ratio=st.sampled_from([0.0, 0.5]))
@settings(max_examples=20, deadline=None)
def test_floods_cost_a_tenant_within_its_quota_one_turn_or_nothing(
    seed: int, floods: int, headroom_ratio: float
) -> None:
    """Borrowed work stands behind, whoever's it is: within the quota one waits for the next slot that comes free, and
    not even that where a reserve is kept."""
    flooding = [Tenant(id=f"flood-{number}", kv_quota_bytes=1) for number in range(floods)]
    tenants = {one.id: one for one in (*flooding, Tenant(id="quiet"))}
    engine = Engine(tenants, 2, seed=seed, headroom_ratio=headroom_ratio)
    for one in flooding * 4:
        engine.ask(one.id)
    under_way = 0
    for _ in range(200):
        if not under_way:
            engine.ask("quiet")
            under_way = 1
        if engine.step() == "quiet":
            under_way = 0
        else:
            engine.ask(engine.random.choice(flooding).id)
    waits = [started - asked for name, asked, started in engine.starts if name == "quiet"]
    assert len(waits) > 20
    assert max(waits) <= (0.0 if headroom_ratio else OUTPUT_MOST / 100 + 1e-9)


@given(deadlines=st.lists(st.floats(0.05, 20.0), min_size=1, max_size=60), seed=st.integers(0, 2**16))
@settings(max_examples=30, deadline=None)
def test_a_request_that_was_let_in_is_seldom_late_and_one_that_was_not_is_told_when(
    deadlines: list[float], seed: int
) -> None:
    """Whoever is refused gets a time to come again; whoever waits starts or is turned away by its deadline."""
    tenants = {"a": Tenant(id="a")}
    engine = Engine(tenants, 1, seed=seed)
    backlog(engine, ("a",), 20)
    for deadline_s in deadlines:
        request = RouteRequest(tenant_id="a", model="m", stream=True, max_tokens=10, prompt_tokens=10)
        job = Job("a", 10, 10, engine.now_s)
        charge = engine.governor.charge(tenants["a"], request)
        job.grant = engine.meter.acquire(engine.governor.limits("a"), charge, "x", engine.now_s)
        told = None
        try:
            permit = engine.governor.enter(job.grant, tenants["a"], request, job, engine.now_s, deadline_s=deadline_s)
        except Refused as refused:
            told = refused
        else:
            assert permit is None
        if told is not None:
            assert told.code == "deadline_unreachable"
            assert told.retry_after_s is not None
            assert told.retry_after_s > 0
    while engine.governor.waiting:
        engine.step()
        for away in engine.governor.expired(engine.now_s):
            assert isinstance(away.owner, Job)
            assert engine.now_s >= away.owner.asked_s + min(deadlines)
