"""What passes between governance and those who drive it.

One request goes through these in order::

    Treatment = governor.check(tenant, request, facts, now_s)     which model, which queue class; or Refused
    Charge    = governor.charge(tenant, request, treatment)       what it will cost, predicted
    Grant     = meter.acquire(limits, charge, lease_id, now_s)    reserved against every limit at once; or Refused
    Permit    = governor.enter(grant, tenant, request, ...)       it runs now; None means it waits; or Refused
    ...         permit.streamed(output_tokens)
                governor.leave(permit, ...); meter.settle(grant, ...)   on every way out, once or more often

``now_s`` is seconds that only rise, with any origin (a monotonic clock, or virtual time). What is made for every
request is slotted but not frozen: freezing takes three times as long. Nobody changes them from outside.

Refusals are ``core.errors.Refused``. Their codes are those of :data:`RefusalCode`, the HTTP status is 429 unless said
otherwise, and ``retry_after_s`` is None where trying again cannot help.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.core.errors import Refused
    from roadworthy.route.govern.footprint import BlockShape
    from roadworthy.spec.values import Tenant

DAY_S = 86_400
"""Daily budgets are those of days in UTC."""

RefusalCode = Literal[
    "model_not_allowed",
    "concurrency_limited",
    "rate_limited",
    "tokens_rate_limited",
    "daily_budget_exhausted",
    "queue_full",
    "deadline_unreachable",
    "tenant_removed",
    "limits_unknown",
    "BUSINESS_OVERRUN",
]
"""``model_not_allowed`` and ``tenant_removed`` are 403, ``BUSINESS_OVERRUN`` is 422, ``limits_unknown`` (the store of a
shared meter cannot be reached and the document says to fail closed) is 503, the others 429. ``BUSINESS_OVERRUN`` is the
preset of a rule's ``code``, which a document may word otherwise."""

QueueClass = Literal["high", "normal", "low"]
"""``normal`` within the quota, ``low`` for what is borrowed; a business rule may put a request into any of them."""

CLASS_RANK: dict[QueueClass, int] = {"high": -10_000, "normal": 0, "low": 10_000}
"""Added to a tenant's priority (-1000 to 1000): the one number by which classes are ordered, here and in an engine with
``--scheduling-policy priority``. Lower goes first, so all borrowed work stands behind all work within a quota."""

Ending = Literal["completed", "cancelled", "failed"]
"""How a request ended: in full, by the client's leaving, or by a fault of an engine or of ours."""

Quota = Literal["kv_quota", "concurrency", "rpm", "tpm", "daily_tokens"]
"""A tenant's limits by their keys in the document."""


@dataclass(slots=True)  # by position too: keywords cost a third more, twice for every request
class Charge:
    """The predicted footprint of one request.

    Args:
        prompt_tokens: as estimated from bytes, or counted.
        output_tokens: min(asked maximum, the tenant's 90th percentile for that model).
        blocks: KV blocks that it will hold at its longest, prompt and output together.
    """

    tenant_id: str
    model: str
    prompt_tokens: int
    output_tokens: int
    blocks: int

    @property
    def tokens(self) -> int:
        """What token rates and daily budgets are charged: prompt and output."""
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one tenant may hold and use, as a meter enforces it. None means no limit.

    Args:
        concurrency: requests at once, waiting ones included.
        requests_per_minute: as a GCRA with a burst of one minute's worth.
        tokens_per_minute: the same in tokens of prompt and output.
        daily_tokens: of one day in UTC, prompt and output.
        kv_blocks: held at once. Beyond it a request is not refused but borrows.
    """

    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    daily_tokens: int | None = None
    kv_blocks: int | None = None

    @classmethod
    def of(cls, tenant: Tenant, shape: BlockShape | None = None) -> Limits:
        """The limits of ``tenant``. Its KV quota becomes floor(bytes / bytes of a block); without a shape that knows
        the size of a block there is no telling, and ``kv_blocks`` is None."""
        block_bytes = shape.block_bytes if shape is not None else None
        quota = tenant.kv_quota_bytes
        return cls(
            concurrency=_one(tenant.concurrency),
            requests_per_minute=_one(tenant.requests_per_minute),
            tokens_per_minute=_one(tenant.tokens_per_minute),
            daily_tokens=_one(tenant.daily_tokens),
            kv_blocks=_one(quota // block_bytes) if quota is not None and block_bytes else None,
        )


_NUMBERS: dict[int, int] = {}
_NUMBERS_KEPT = 4096


def _one(number: int | None) -> int | None:
    """The same number, as one object for all who have it: thousands of tenants have few different limits, and a number
    that lies somewhere of its own is not in the cache when it is asked for."""
    if number is None or len(_NUMBERS) >= _NUMBERS_KEPT:
        return number
    return _NUMBERS.setdefault(number, number)


@dataclass(slots=True)  # by position too: keywords cost a third more, twice for every request
class Grant:
    """What a meter gave: a lease on one request's footprint. Only meters look inside.

    Args:
        lease_id: unique for each request; the gateway's request id does.
        borrowed: the tenant's KV quota was full; it may use the pool but for the reserve.
        day: days since the epoch (UTC) whose budget the tokens were taken from.
        epoch: of the meter's state, for stores that can lose it; a grant of another epoch is only forgotten.
        settled: given back already.
    """

    lease_id: str
    tenant_id: str
    charge: Charge
    borrowed: bool = False
    day: int = 0
    epoch: int = 0
    settled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one tenant holds and has used at one moment, as far as a meter knows.

    Args:
        requests, blocks: leased now; ``borrowed_blocks`` is the part of ``blocks`` that was borrowed.
        tokens_today: of ``day``'s budget, reservations of requests in progress included.
        minute_requests, minute_tokens: of the minute's allowance, how much is taken now (GCRA: (TAT - now) / interval);
            0 where there is no such limit.
    """

    requests: int = 0
    blocks: int = 0
    borrowed_blocks: int = 0
    tokens_today: int = 0
    day: int = 0
    minute_requests: float = 0.0
    minute_tokens: float = 0.0


class Meter(Protocol):
    """Counts what tenants hold, each call one atomic step; of one process or one simulation."""

    def acquire(self, limits: Limits, charge: Charge, lease_id: str, now_s: float) -> Grant:
        """Reserve ``charge`` against every limit, or against none.

        The order in which limits are looked at is concurrency, daily budget, requests a minute, tokens a minute; the
        first that is exceeded is the one named. A full KV quota is not refused: the grant says ``borrowed``.

        Raises:
            Refused: ``concurrency_limited``, ``daily_budget_exhausted``, ``rate_limited`` or ``tokens_rate_limited``.
        """

    def settle(self, grant: Grant, *, prompt_tokens: int, output_tokens: int, now_s: float) -> None:
        """Give the lease back, and correct the token rate and the day's budget to what was really used.

        Idempotent: a second call with the same grant changes nothing. Usage may exceed the reservation; then the
        tenant's next requests wait for it.
        """

    def renew(self, grants: Iterable[Grant], now_s: float) -> tuple[Grant, ...]:
        """Prolong leases; those that had expired already are answered, and hold nothing any more. A meter in process
        never lets a lease expire."""

    def held(self, tenant_id: str, now_s: float) -> Held:
        """What the tenant holds now; zeros for one that was never seen."""


class AsyncMeter(Protocol):
    """The same four on a shared store, by the store's clock; leases have a TTL and ``renew`` keeps them.

    Every method may raise ``core.errors.Temporary`` where the store cannot be reached; what follows is the caller's
    (``governance.on_state_loss``).
    """

    async def acquire(self, limits: Limits, charge: Charge, lease_id: str) -> Grant: ...
    async def settle(self, grant: Grant, *, prompt_tokens: int, output_tokens: int) -> None: ...
    async def renew(self, grants: Iterable[Grant]) -> tuple[Grant, ...]: ...
    async def held(self, tenant_id: str) -> Held: ...


@dataclass(slots=True, kw_only=True)
class Facts:
    """What business rules read beside the request itself (model, tenant, prompt tokens).

    Args:
        operation: such as ``chat`` or ``completions``, as the gateway's routes name it.
        io_wait_ms: what a caller with scope ``trusted-caller`` says it waited for its own input; None otherwise.
    """

    operation: str = ""
    io_wait_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """What is to be done with a request that is let in.

    Args:
        model: the one to send it to; ``degraded`` when that is another than was asked for. The answer must name it.
        why: free text for the access log and a header; empty where nothing was special.
        rules: names of the rules that applied.
        counted: rules that will look at how it ended, each with whether it met what can be known beforehand.
        probe: it is the one request that a half-open hold-down lets through, to see whether the hold may end.
    """

    model: str
    queue_class: QueueClass = "normal"
    why: str = ""
    degraded: bool = False
    rules: tuple[str, ...] = ()
    counted: tuple[tuple[str, bool], ...] = ()
    probe: bool = False


class Permit(Protocol):
    """A request that may run now. ``governor.leave`` ends it.

    ``priority`` is for the engine (lower first) and ``queue_class`` for metrics; ``waited_s`` is 0 on the fast path.
    """

    @property
    def tenant_id(self) -> str: ...
    @property
    def grant(self) -> Grant: ...
    @property
    def priority(self) -> int: ...
    @property
    def borrowed(self) -> bool: ...
    @property
    def queue_class(self) -> QueueClass: ...
    @property
    def waited_s(self) -> float: ...

    def streamed(self, output_tokens: int) -> None:
        """So many tokens have come out so far (cumulative). Cheap: fairness is charged in batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedAway:
    """A request that waited and will not run: its owner as given to ``enter``, and why."""

    owner: object
    refused: Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """What waits now: all of it, by class and by tenant; and the oldest's wait in seconds."""

    total: int
    by_class: dict[QueueClass, int]
    by_tenant: dict[str, int]
    oldest_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A tenant has been near one of its limits for long: told once until it has been well below again.

    Args:
        used, limit: in the unit of ``quota`` (blocks, requests, tokens).
        ratio: used / limit when it was raised.
        since_s: when it came above the threshold, on the clock of ``now_s``.
        advice: sentences for a person: what would have to be added, if anything.
        assumptions: what the advice rests on.
        more_replicas: engines more that would hold what the tenant asks for; None where that cannot be told.
    """

    tenant_id: str
    quota: Quota
    used: float
    limit: float
    ratio: float
    since_s: float
    advice: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    more_replicas: float | None = None
