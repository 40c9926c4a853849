"""The meter against a model of it that keeps every grant in a list and adds up anew each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from roadworthy.core.errors import Refused
from roadworthy.route.govern.meter import LocalMeter
from roadworthy.route.govern.values import DAY_S, Charge, Grant, Limits

TENANTS = ("a", "b")
MINUTE_S = 60
START_S = 3 * DAY_S - 120  # two minutes before a midnight


@dataclass(slots=True)
class Bucket:
    """A leaky bucket of one minute's allowance that keeps its level in whole units: what GCRA is equivalent to. Below
    empty it is the time for which it has been empty, which only late corrections can reach into."""

    per_minute: int
    level: Fraction = field(default_factory=lambda: Fraction(-(10**9)))
    at_s: Fraction = field(default_factory=lambda: Fraction(0))

    def now(self, now_s: Fraction) -> Fraction:
        return self.level - (now_s - self.at_s) * self.per_minute / MINUTE_S

    def fits(self, units: int, now_s: Fraction) -> bool:
        return max(Fraction(0), self.now(now_s)) + units <= self.per_minute

    def pour(self, units: int, now_s: Fraction) -> None:
        self.level, self.at_s = max(Fraction(0), self.now(now_s)) + units, now_s


@dataclass(slots=True)
class Known:
    """What the model knows of one grant."""

    grant: Grant
    charge: Charge
    day: int
    borrowed: bool
    used: int | None = None


class MeterMachine(RuleBasedStateMachine):
    """Two tenants with limits that are drawn once; time and the wall clock move as they like."""

    grants = Bundle("grants")

    def __init__(self) -> None:
        super().__init__()
        self.meter = LocalMeter(wall_offset_s=float(START_S))
        self.now_s = Fraction(0)
        self.known: list[Known] = []
        self.ids = 0

    @initialize(
        concurrency=st.none() | st.integers(1, 4),
        requests=st.none() | st.sampled_from([1, 2, 3, 5, 60]),
        tokens=st.none() | st.sampled_from([60, 600]),
        daily=st.none() | st.integers(50, 2000),
        blocks=st.none() | st.integers(0, 20),
    )
    def limit(
        self, concurrency: int | None, requests: int | None, tokens: int | None, daily: int | None, blocks: int | None
    ) -> None:
        self.limits = Limits(
            concurrency=concurrency,
            requests_per_minute=requests,
            tokens_per_minute=tokens,
            daily_tokens=daily,
            kv_blocks=blocks,
        )
        self.request_buckets = {one: Bucket(requests) for one in TENANTS} if requests else {}
        self.token_buckets = {one: Bucket(tokens) for one in TENANTS} if tokens else {}

    @property
    def day(self) -> int:
        return int((float(self.now_s) + self.meter.wall_offset_s) // DAY_S)

    def live(self, tenant: str) -> list[Known]:
        return [one for one in self.known if one.charge.tenant_id == tenant and one.used is None]

    def tokens_on(self, tenant: str, day: int) -> int:
        return sum(
            one.charge.tokens if one.used is None else one.used
            for one in self.known
            if one.charge.tenant_id == tenant and one.day == day
        )

    def expected(self, charge: Charge) -> str | None:
        """The code of the refusal that is due, if any."""
        tenant, limits = charge.tenant_id, self.limits
        if limits.concurrency is not None and len(self.live(tenant)) >= limits.concurrency:
            return "concurrency_limited"
        if limits.daily_tokens is not None and self.tokens_on(tenant, self.day) + charge.tokens > limits.daily_tokens:
            return "daily_budget_exhausted"
        if self.request_buckets and not self.request_buckets[tenant].fits(1, self.now_s):
            return "rate_limited"
        if self.token_buckets and not self.token_buckets[tenant].fits(charge.tokens, self.now_s):
            return "tokens_rate_limited"
        return None

    @rule(
        target=grants,
        tenant=st.sampled_from(TENANTS),
        prompt=st.integers(0, 60),
        output=st.integers(0, 60),
        blocks=st.integers(0, 8),
    )
    def acquire(self, tenant: str, prompt: int, output: int, blocks: int) -> object:
        charge = Charge(tenant_id=tenant, model="m", prompt_tokens=prompt, output_tokens=output, blocks=blocks)
        due = self.expected(charge)
        self.ids += 1
        if due is not None:
            before = self.meter.held(tenant, float(self.now_s))
            with pytest.raises(Refused) as refused:
                self.meter.acquire(self.limits, charge, str(self.ids), float(self.now_s))
            assert refused.value.code == due
            assert self.meter.held(tenant, float(self.now_s)) == before, "a refusal took something"
            return multiple()
        grant = self.meter.acquire(self.limits, charge, str(self.ids), float(self.now_s))
        held = sum(one.charge.blocks for one in self.live(tenant))
        borrowed = self.limits.kv_blocks is not None and held + blocks > self.limits.kv_blocks
        assert grant.borrowed == borrowed
        if self.request_buckets:
            self.request_buckets[tenant].pour(1, self.now_s)
        if self.token_buckets:
            self.token_buckets[tenant].pour(charge.tokens, self.now_s)
        known = Known(grant=grant, charge=charge, day=self.day, borrowed=borrowed)
        self.known.append(known)
        return known

    @rule(known=consumes(grants), prompt=st.integers(0, 90), output=st.integers(0, 90), times=st.integers(1, 2))
    def settle(self, known: Known, prompt: int, output: int, times: int) -> None:
        for _ in range(times):
            self.meter.settle(known.grant, prompt_tokens=prompt, output_tokens=output, now_s=float(self.now_s))
        known.used = prompt + output
        if self.token_buckets:
            self.token_buckets[known.charge.tenant_id].level += known.used - known.charge.tokens

    @rule(quarters=st.integers(0, 500))
    def pass_time(self, quarters: int) -> None:
        self.now_s += Fraction(quarters, 4)

    @rule(days=st.sampled_from([-1, 1]))
    def wall_clock_is_set(self, days: int) -> None:
        """Only days around the present one are remembered: what a clock does that is set by a day and back."""
        day = self.day
        if abs(day + days - START_S // DAY_S) <= 1:
            self.meter.wall_offset_s += days * DAY_S

    @invariant()
    def what_is_held_adds_up(self) -> None:
        for tenant in TENANTS:
            held, live = self.meter.held(tenant, float(self.now_s)), self.live(tenant)
            assert held.requests == len(live)
            assert held.blocks == sum(one.charge.blocks for one in live)
            assert held.borrowed_blocks == sum(one.charge.blocks for one in live if one.borrowed)
            assert held.tokens_today == self.tokens_on(tenant, self.day)


TestMeter = MeterMachine.TestCase
TestMeter.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
