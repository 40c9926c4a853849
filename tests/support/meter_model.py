"""What a meter is, said as simply as can be, and a machine that holds a real one to it step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from roadworthy.core.errors import Refused
from roadworthy.route.govern.values import Grant, Limits
from support.meters import START_US, TTL_S, Bench, charge

DAY_US, MINUTE_US, HOUR_US = 86_400_000_000, 60_000_000, 3_600_000_000


@dataclass(slots=True)
class Lease:
    blocks: int
    borrowed: bool
    day: int
    charged: int
    output: int
    until_us: int
    live: bool = True
    forgotten_us: int = 0


@dataclass(slots=True)
class Allowance:
    """A minute's allowance: the time at which everything that was let through would have come evenly."""

    tat_us: int = -MINUTE_US
    per_minute: int | None = None

    def after(self, units: int, per_minute: int, now_us: int) -> int:
        """An edited rate keeps the time that there is still to wait, at most a minute."""
        tat_us = self.tat_us if per_minute == self.per_minute else min(self.tat_us, now_us + MINUTE_US)
        return max(tat_us, now_us) + units * MINUTE_US // per_minute

    def correct(self, charged: int, used: int) -> None:
        if self.per_minute is not None:
            self.tat_us += used * MINUTE_US // self.per_minute - charged * MINUTE_US // self.per_minute


@dataclass(slots=True)
class Model:
    """One tenant, as lists and sums."""

    ttl_us: int | None
    now_us: int
    leases: dict[str, Lease] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)
    requests: Allowance = field(default_factory=Allowance)
    tokens: Allowance = field(default_factory=Allowance)

    @property
    def day(self) -> int:
        return self.now_us // DAY_US

    @property
    def live(self) -> list[Lease]:
        return [lease for lease in self.leases.values() if lease.live]

    def blocks(self, *, borrowed: bool = False) -> int:
        return sum(lease.blocks for lease in self.live if lease.borrowed or not borrowed)

    def look(self) -> None:
        """Every step begins with what ran out since the last one."""
        if self.ttl_us is None:
            return
        for lease in self.live:
            if lease.until_us <= self.now_us:
                self._correct(lease, lease.charged - lease.output)
                lease.live, lease.output, lease.forgotten_us = False, 0, self.now_us + HOUR_US
        self.leases = {
            name: lease for name, lease in self.leases.items() if lease.live or lease.forgotten_us > self.now_us
        }

    def acquire(self, limits: Limits, prompt: int, output: int, blocks: int, name: str) -> str | Lease:
        """The lease, or the code of the refusal."""
        self.look()
        tokens = prompt + output
        if limits.concurrency is not None and len(self.live) >= limits.concurrency:
            return "concurrency_limited"
        if limits.daily_tokens is not None and self.used.get(self.day, 0) + tokens > limits.daily_tokens:
            return "daily_budget_exhausted"
        moved: list[tuple[Allowance, int, int]] = []
        for allowance, units, per_minute, code in (
            (self.requests, 1, limits.requests_per_minute, "rate_limited"),
            (self.tokens, tokens, limits.tokens_per_minute, "tokens_rate_limited"),
        ):
            if per_minute is None:
                continue
            tat_us = allowance.after(units, per_minute, self.now_us)
            if tat_us - self.now_us > MINUTE_US:
                return code
            moved.append((allowance, tat_us, per_minute))
        for allowance, tat_us, per_minute in moved:
            allowance.tat_us, allowance.per_minute = tat_us, per_minute
        borrowed = limits.kv_blocks is not None and self.blocks() + blocks > limits.kv_blocks
        self.used[self.day] = self.used.get(self.day, 0) + tokens
        until_us = self.now_us + (self.ttl_us or 0)
        self.leases[name] = Lease(
            blocks=blocks, borrowed=borrowed, day=self.day, charged=tokens, output=output, until_us=until_us
        )
        return self.leases[name]

    def settle(self, name: str, tokens: int) -> None:
        self.look()
        lease = self.leases.pop(name, None)
        if lease is not None:
            self._correct(lease, tokens)

    def renew(self, name: str) -> bool:
        """False when it had run out."""
        self.look()
        lease = self.leases.get(name)
        if lease is None or not lease.live:
            return False
        lease.until_us = self.now_us + (self.ttl_us or 0)
        return True

    def _correct(self, lease: Lease, tokens: int) -> None:
        self.used[lease.day] = self.used.get(lease.day, 0) + tokens - lease.charged
        self.tokens.correct(lease.charged, tokens)
        lease.charged = tokens


SOME = st.one_of(st.none(), st.integers(1, 6))
LIMITS = st.builds(
    Limits,
    concurrency=SOME,
    requests_per_minute=st.sampled_from([None, 1, 7, 60, 1000]),
    tokens_per_minute=st.sampled_from([None, 30, 100, 1000, 999_983]),
    daily_tokens=st.sampled_from([None, 0, 100, 1000, 10_000]),
    kv_blocks=st.sampled_from([None, 0, 1, 10]),
)
WAITS_S = st.sampled_from([0.015625, 1.0, 9.984375, 20.0, 29.984375, 30.0, 61.0, 3600.0, 40_000.0, 86_400.0])


class MeterMachine(RuleBasedStateMachine):
    """Steps in any order on a real meter and on the model; they have to answer alike."""

    def __init__(self, bench: Bench, tenant_id: str) -> None:
        super().__init__()
        self.bench, self.tenant_id = bench, tenant_id
        bench.clock.now_us = START_US
        ttl_us = int(TTL_S * 1e6) if bench.shared else None
        self.model = Model(ttl_us=ttl_us, now_us=bench.clock.now_us)
        self.grants: list[Grant] = []
        self.limits = Limits()
        self.asked = 0

    @rule(limits=LIMITS)
    def edit(self, limits: Limits) -> None:
        self.limits = limits

    @rule(prompt=st.integers(0, 60), output=st.integers(0, 60), blocks=st.integers(0, 5))
    def acquire(self, prompt: int, output: int, blocks: int) -> None:
        self.asked += 1
        name = f"{self.tenant_id}-{self.asked}"
        wanted = self.model.acquire(self.limits, prompt, output, blocks, name)
        given = self._asked_for(name, prompt, output, blocks)
        if isinstance(given, Refused):
            assert given.code == wanted
            self._check_wait(given, prompt + output)
            return
        assert isinstance(wanted, Lease), f"{name} was given, the model says {wanted}"
        assert (given.borrowed, given.day) == (wanted.borrowed, wanted.day)
        self.grants.append(given)

    def _asked_for(self, name: str, prompt: int, output: int, blocks: int) -> Grant | Refused:
        asked = charge(self.tenant_id, prompt_tokens=prompt, output_tokens=output, blocks=blocks)
        try:
            grant: Grant = self._do("acquire", self.limits, asked, name)
        except Refused as refused:
            return refused
        return grant

    def _check_wait(self, refused: Refused, tokens: int) -> None:
        model, limits, tat_us = self.model, self.limits, None
        if refused.code == "rate_limited" and limits.requests_per_minute is not None:
            tat_us = model.requests.after(1, limits.requests_per_minute, model.now_us)
        elif refused.code == "tokens_rate_limited" and tokens <= (limits.tokens_per_minute or 0):
            tat_us = model.tokens.after(tokens, limits.tokens_per_minute or 0, model.now_us)
        if tat_us is not None:
            assert refused.retry_after_s == (tat_us - model.now_us - MINUTE_US) / 1e6

    @precondition(lambda self: self.grants)
    @rule(which=st.integers(0, 999), prompt=st.integers(0, 60), output=st.integers(0, 120))
    def settle(self, which: int, prompt: int, output: int) -> None:
        """Any grant that there ever was, settled ones too."""
        grant = self.grants[which % len(self.grants)]
        if not grant.settled:
            self.model.settle(grant.lease_id, prompt + output)
        self._do("settle", grant, prompt_tokens=prompt, output_tokens=output)

    @precondition(lambda self: self.grants)
    @rule(which=st.lists(st.integers(0, 999), max_size=4))
    def renew(self, which: list[int]) -> None:
        chosen = [self.grants[at] for at in sorted({one % len(self.grants) for one in which})]
        open_ones = [grant for grant in chosen if not grant.settled]
        over = {grant.lease_id for grant in open_ones if not self.model.renew(grant.lease_id)}
        assert {grant.lease_id for grant in self._do("renew", chosen)} == over

    @rule(wait_s=WAITS_S)
    def wait(self, wait_s: float) -> None:
        self.bench.clock.advance(wait_s)
        self.model.now_us = self.bench.clock.now_us

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        model = self.model
        model.look()
        held = self._do("held", self.tenant_id)
        assert held.requests == len(model.live)
        assert held.blocks == model.blocks()
        assert held.borrowed_blocks == model.blocks(borrowed=True)
        assert held.day == model.day
        assert held.tokens_today == model.used.get(model.day, 0)
        for mine, allowance in ((held.minute_requests, model.requests), (held.minute_tokens, model.tokens)):
            taken_us = max(0, allowance.tat_us - model.now_us)
            wanted = taken_us * (allowance.per_minute or 0) / MINUTE_US
            assert abs(mine - wanted) <= 1e-6 * max(1.0, wanted)

    def _do(self, step: str, *arguments: Any, **named: Any) -> Any:
        return self.bench.do(getattr(self.bench.meter, step)(*arguments, **named))
