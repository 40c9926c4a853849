"""The governor against a model that keeps what waits in lists; and the laws of a queue that is fair.

The model decides nothing: it checks that whatever the governor decides keeps the laws. Everyone who waits comes out
once; nothing that fits is left waiting; a tenant's requests of one class go in order; a better class goes first; what
is held adds up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from roadworthy.core.errors import Refused
from roadworthy.route.govern.footprint import BlockShape
from roadworthy.route.govern.governor import Governor
from roadworthy.route.govern.meter import LocalMeter
from roadworthy.route.govern.settings import GovernSettings
from roadworthy.route.govern.values import Grant, QueueClass, Treatment
from roadworthy.route.values import RouteRequest
from roadworthy.spec.governance_values import QueueSpec
from roadworthy.spec.values import Tenant

if TYPE_CHECKING:
    from roadworthy.route.govern.permit import HeldPermit

NAMES = ("a", "b", "c")
AGEING_S, MAX_WAIT_S = 30.0, 60.0


@dataclass(slots=True, eq=False)
class Ask:
    """A request on its way through."""

    number: int
    tenant_id: str
    grant: Grant
    queue_class: QueueClass
    entered_s: float
    permit: HeldPermit | None = None
    state: str = "waiting"


@dataclass(slots=True)
class EndpointAt:
    """An engine as backlogs see it."""

    url: str
    backlogged: bool = False


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.asks: list[Ask] = []
        self.now_s = 0.0
        self.meter = LocalMeter()
        self.blocks: int | None = None
        self.slots: int | None = None
        self.prompts: int | None = None
        self.engines = [EndpointAt("one"), EndpointAt("two")]

    @initialize(
        quota=st.none() | st.integers(1, 12),
        priorities=st.tuples(*[st.integers(-1, 1)] * 3),
        weights=st.tuples(*[st.sampled_from([0.5, 1.0, 3.0])] * 3),
        per_tenant=st.integers(2, 20),
    )
    def begin(
        self, quota: int | None, priorities: tuple[int, ...], weights: tuple[float, ...], per_tenant: int
    ) -> None:
        self.tenants = {
            name: Tenant(id=name, kv_quota_bytes=quota, priority=priority, weight=weight)
            for name, priority, weight in zip(NAMES, priorities, weights, strict=True)
        }
        self.per_tenant = per_tenant
        self.settings = GovernSettings(
            queue=QueueSpec(total=30, per_tenant=per_tenant, max_wait_s=MAX_WAIT_S, ageing_s=AGEING_S),
            borrow_headroom_ratio=0.2,
        )
        self.governor = Governor(
            self.tenants.values(), settings=self.settings, shape=BlockShape(block_tokens=1, block_bytes=1)
        )
        self.resize(20, 3, None)

    def of(self, *states: str) -> list[Ask]:
        return [one for one in self.asks if one.state in states]

    def fits(self, ask: Ask) -> bool:
        running = self.of("running")
        used = sum(one.grant.charge.blocks for one in running)
        borrowed = ask.permit.borrowed if ask.permit is not None else self.is_borrowed(ask)
        slots, blocks, prompts = self.slots, self.blocks, self.prompts
        if prompts is not None and min(self.at(one) for one in self.engines) >= prompts * (0.8 if borrowed else 1):
            return False
        if slots is not None and borrowed:
            slots = max(min(slots, 1), slots - -(-slots // 5))
        if blocks is not None and borrowed:
            blocks = max(min(blocks, 1), blocks - -(-blocks // 5))
        return (slots is None or len(running) < slots) and (
            blocks is None or used + ask.grant.charge.blocks <= blocks or not used
        )

    def at(self, engine: EndpointAt) -> int:
        """Tokens of prompts at the engine that are not computed yet."""
        there = self.governor.backlogs._by_url[engine.url]
        return sum(
            one.grant.charge.prompt_tokens
            for one in self.of("running")
            if one.permit is not None and one.permit.backlog is there
        )

    def is_borrowed(self, ask: Ask) -> bool:
        return self.held(ask).borrowed

    def held(self, ask: Ask) -> HeldPermit:
        return self.governor._owners[id(ask)]

    @rule(
        name=st.sampled_from(NAMES),
        prompt=st.integers(1, 8),
        output=st.integers(1, 4),
        queue_class=st.sampled_from(["normal", "normal", "high", "low"]),
    )
    def ask(self, name: str, prompt: int, output: int, queue_class: QueueClass) -> None:
        if name not in self.tenants:
            return
        tenant = self.tenants[name]
        request = RouteRequest(tenant_id=name, model="m", stream=True, max_tokens=output, prompt_tokens=prompt)
        treatment = Treatment(model="m", queue_class=queue_class)
        charge = self.governor.charge(tenant, request, treatment)
        assert charge.blocks == prompt + output
        grant = self.meter.acquire(self.governor.limits(name), charge, str(len(self.asks)), self.now_s)
        ask = Ask(len(self.asks), name, grant, queue_class, self.now_s)
        waiting = self.of("waiting")
        permit, refused = None, None
        try:
            permit = self.governor.enter(grant, tenant, request, ask, self.now_s, treatment=treatment)
        except Refused as error:
            refused = error
        if refused is not None:
            own = [one for one in waiting if one.tenant_id == name]
            assert refused.code in ("queue_full", "deadline_unreachable")
            assert refused.code != "queue_full" or len(waiting) >= 30 or len(own) >= self.per_tenant
            assert refused.retry_after_s is not None
            assert refused.retry_after_s > 0
            self.meter.settle(grant, prompt_tokens=0, output_tokens=0, now_s=self.now_s)
            return
        self.asks.append(ask)
        if permit is not None:
            ask.permit, ask.state = permit, "running"
            assert permit.waited_s == 0
            self.governor.backlogs.placed(permit, "one", self.now_s)
            assert permit.borrowed == grant.borrowed
        self.serve()

    def serve(self) -> None:
        batch = self.governor.ready(self.now_s)
        for owner, permit in batch:
            assert isinstance(owner, Ask)
            assert owner.state == "waiting", "served twice, or after it had gone"
            owner.permit = permit
            assert permit.waited_s == self.now_s - owner.entered_s
        for owner, _ in batch:
            assert isinstance(owner, Ask)
            owner.state = "running"
            later = [one for one in self.of("waiting") if self.is_of_the_line(one, owner)]
            assert all(one.number > owner.number for one in later), "a tenant's requests of one class go in order"

    def is_of_the_line(self, ask: Ask, served: Ask) -> bool:
        """Both have stood in one line from the beginning: neither ageing nor a quota has moved one past the other."""
        permit = ask.permit or self.governor._owners.get(id(ask))
        return (
            (ask.tenant_id, ask.queue_class) == (served.tenant_id, served.queue_class)
            and not ask.grant.borrowed
            and not served.grant.borrowed
            and self.now_s - ask.entered_s < AGEING_S
            and self.now_s - served.entered_s < AGEING_S
            and permit is not None
            and served.permit is not None
            and permit.priority == served.permit.priority
        )

    @precondition(lambda self: self.of("running"))
    @rule(data=st.data())
    def begin_to_answer(self, data: st.DataObject) -> None:
        ask = data.draw(st.sampled_from(self.of("running")))
        assert ask.permit is not None
        for _ in range(2):  # idempotent
            self.governor.began(ask.permit)
            assert ask.permit.backlog is None
        self.serve()

    @precondition(lambda self: self.of("running"))
    @rule(data=st.data(), url=st.sampled_from(["one", "two", "gone"]))
    def route(self, data: st.DataObject, url: str) -> None:
        """Routing may send it elsewhere than where it was counted, or once more."""
        ask = data.draw(st.sampled_from(self.of("running")))
        assert ask.permit is not None
        self.governor.backlogs.placed(ask.permit, url, self.now_s)
        self.serve()

    @precondition(lambda self: self.of("running"))
    @rule(data=st.data(), used=st.integers(0, 12))
    def leave(self, data: st.DataObject, used: int) -> None:
        ask = data.draw(st.sampled_from(self.of("running")))
        assert ask.permit is not None
        ask.permit.streamed(used)
        for _ in range(2):  # idempotent
            self.governor.leave(ask.permit, prompt_tokens=3, output_tokens=used, now_s=self.now_s)
            self.governor.began(ask.permit)  # too late, and of no account
            self.meter.settle(ask.grant, prompt_tokens=3, output_tokens=used, now_s=self.now_s)
        ask.state = "over"
        self.serve()

    @precondition(lambda self: self.of("waiting"))
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        ask = data.draw(st.sampled_from(self.of("waiting")))
        assert self.governor.withdraw(ask)
        assert not self.governor.withdraw(ask)
        self.meter.settle(ask.grant, prompt_tokens=0, output_tokens=0, now_s=self.now_s)
        ask.state = "over"
        self.serve()

    @rule(seconds=st.sampled_from([0.0, 0.5, 7.0, 29.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        for away in self.governor.expired(self.now_s):
            assert isinstance(away.owner, Ask)
            assert away.owner.state == "waiting"
            assert self.now_s - away.owner.entered_s >= MAX_WAIT_S
            assert away.refused.retry_after_s is not None
            self.meter.settle(away.owner.grant, prompt_tokens=0, output_tokens=0, now_s=self.now_s)
            away.owner.state = "over"
        assert all(self.now_s - one.entered_s < MAX_WAIT_S for one in self.of("waiting"))
        self.serve()

    @rule(
        blocks=st.none() | st.integers(0, 30),
        slots=st.none() | st.integers(0, 5),
        prompts=st.none() | st.integers(1, 16),
    )
    def resize(self, blocks: int | None, slots: int | None, prompts: int | None) -> None:
        self.blocks, self.slots, self.prompts = blocks, slots, prompts
        self.governor.capacity(blocks, slots)
        self.governor.backlogs.bound(self.engines if prompts is not None else (), prompts or 0, 100.0)
        self.serve()

    @rule(name=st.sampled_from(NAMES), weight=st.sampled_from([0.5, 1.0, 3.0]), there=st.booleans())
    def edit_tenants(self, name: str, weight: float, there: bool) -> None:
        tenants = dict(self.tenants)
        tenants.pop(name, None)
        if there:
            before = self.tenants.get(name)
            quota = before.kv_quota_bytes if before is not None else None
            tenants[name] = Tenant(id=name, weight=weight, kv_quota_bytes=quota)
        for away in self.governor.set_tenants(tenants.values(), self.now_s):
            assert isinstance(away.owner, Ask)
            assert away.owner.tenant_id == name
            assert not there
            assert away.refused.code == "tenant_removed"
            self.meter.settle(away.owner.grant, prompt_tokens=0, output_tokens=0, now_s=self.now_s)
            away.owner.state = "over"
        self.tenants = tenants
        assert there or not [one for one in self.of("waiting") if one.tenant_id == name]
        self.serve()

    @invariant()
    def what_is_held_adds_up(self) -> None:
        if not hasattr(self, "governor"):
            return
        running, waiting = self.of("running"), self.of("waiting")
        assert self.governor.running == len(running)
        assert self.governor.blocks == sum(one.grant.charge.blocks for one in running)
        if self.prompts is not None:
            for engine in self.engines:
                there = self.governor.backlogs._by_url[engine.url]
                assert there.tokens == self.at(engine)
                assert engine.backlogged == there.full == (there.tokens >= self.prompts)
            assert self.governor.backlogs.shut == all(engine.backlogged for engine in self.engines)
        else:
            assert not any(engine.backlogged for engine in self.engines)
        assert self.governor.waiting == len(waiting) == len(self.governor._owners)
        depth = self.governor.depth(self.now_s)
        assert depth.total == sum(depth.by_class.values()) == sum(depth.by_tenant.values()) == len(waiting)
        if waiting:
            assert depth.oldest_s == self.now_s - min(one.entered_s for one in waiting)
        for name in NAMES:
            held = self.meter.held(name, self.now_s)
            assert held.requests == len([one for one in running + waiting if one.tenant_id == name])
            assert self.governor.waiting_of(name) == len([one for one in waiting if one.tenant_id == name])

    @invariant()
    def nothing_waits_that_fits(self) -> None:
        """Work-conserving: what fits is only left waiting behind one that has been passed over for ``ageing``."""
        if not hasattr(self, "governor"):
            return
        for ask in self.of("waiting"):
            if self.fits(ask):
                overdue = [
                    one
                    for one in self.of("waiting")
                    if self.now_s - one.entered_s >= AGEING_S and self.held(one).priority <= self.held(ask).priority
                ]
                behind = [
                    one
                    for one in self.of("waiting")
                    if one.tenant_id == ask.tenant_id and self.held(one).priority == self.held(ask).priority
                ]
                first = min(behind, key=self.position)
                assert overdue or first is not ask, "room stands empty"

    def position(self, ask: Ask) -> int:
        held = self.held(ask)
        return [one for one in held.line.waiting if one.waiting and one.line is held.line].index(held)

    @invariant()
    def a_tenant_owns_no_more_than_its_quota(self) -> None:
        if not hasattr(self, "governor"):
            return
        for name, tenant in self.tenants.items():
            if tenant.kv_quota_bytes is None:
                continue
            own = 0
            for ask in self.of("running", "waiting"):
                permit = ask.permit or self.governor._owners.get(id(ask))
                if ask.tenant_id == name and permit is not None and not permit.borrowed:
                    own += ask.grant.charge.blocks
            assert own <= tenant.kv_quota_bytes

    def teardown(self) -> None:
        """When everybody has left nothing is held."""
        if not hasattr(self, "governor"):
            return
        for ask in self.of("waiting"):
            self.governor.withdraw(ask)
        for ask in self.of("running"):
            assert ask.permit is not None
            self.governor.leave(ask.permit, prompt_tokens=0, output_tokens=0, now_s=self.now_s)
        assert (self.governor.running, self.governor.blocks, self.governor.waiting) == (0, 0, 0)
        assert self.governor._room.computed_blocks == 0
        assert self.governor.ready(self.now_s) == []


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
