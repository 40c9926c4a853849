"""The words of every refusal of governance, for all meters and queues alike: code, status, hint, Retry-After."""

from __future__ import annotations

from roadworthy.core.errors import Refused
from roadworthy.core.units import format_count, format_duration

BUSY_RETRY_AFTER_S = 1.0
"""What a tenant at its concurrency cap is told: when one of its own requests ends is not known."""

LEAST_RETRY_AFTER_S = 0.05
"""A shorter one would be over before the answer has arrived."""


def model(tenant_id: str, asked: str, allowed: tuple[str, ...]) -> Refused:
    return Refused(
        f"tenant {tenant_id} may not use model {asked!r}",
        code="model_not_allowed",
        status=403,
        hint=f"models of this key: {', '.join(allowed)}",
    )


def concurrency(tenant_id: str, running: int, limit: int) -> Refused:
    return Refused(
        f"tenant {tenant_id} has {running} requests running, its limit is {limit}",
        code="concurrency_limited",
        status=429,
        hint="wait for one of them to end, or ask for a higher concurrency",
        retry_after_s=BUSY_RETRY_AFTER_S,
    )


def daily(tenant_id: str, used: int, tokens: int, limit: int, left_s: float) -> Refused:
    """``left_s`` seconds of the day are left, in UTC."""
    if tokens > limit:
        return Refused(
            f"tenant {tenant_id}: this request may take {format_count(tokens)} tokens, a day's budget is "
            f"{format_count(limit)}",
            code="daily_budget_exhausted",
            status=429,
            hint="a shorter prompt, a smaller max_tokens or a larger budget",
        )
    return Refused(
        f"tenant {tenant_id} has used {format_count(used)} of {format_count(limit)} tokens today, and this request "
        f"may take {format_count(tokens)}",
        code="daily_budget_exhausted",
        status=429,
        hint="the budget is new at midnight UTC; a shorter prompt or a smaller max_tokens may still fit",
        retry_after_s=left_s,
    )


def rate(tenant_id: str, per_minute: int, wait_us: int) -> Refused:
    return Refused(
        f"tenant {tenant_id} is over its limit of {per_minute} requests a minute",
        code="rate_limited",
        status=429,
        hint="send again after the time in Retry-After",
        retry_after_s=wait_us / 1e6,
    )


def token_rate(tenant_id: str, per_minute: int, tokens: int, wait_us: int) -> Refused:
    if tokens > per_minute:
        return Refused(
            f"tenant {tenant_id}: this request may take {format_count(tokens)} tokens, a minute's limit is "
            f"{format_count(per_minute)}",
            code="tokens_rate_limited",
            status=429,
            hint="a shorter prompt, a smaller max_tokens or a higher tpm",
        )
    return Refused(
        f"tenant {tenant_id} is over its limit of {format_count(per_minute)} tokens a minute",
        code="tokens_rate_limited",
        status=429,
        hint="send again after the time in Retry-After; a smaller max_tokens takes less of the minute",
        retry_after_s=wait_us / 1e6,
    )


def queue_full(what: str, waiting: int, limit: int, retry_after_s: float) -> Refused:
    """``what`` is whose queue: the gateway's or a tenant's."""
    return Refused(
        f"{waiting} requests of {what} wait already, the limit is {limit}",
        code="queue_full",
        status=429,
        hint="send again after the time in Retry-After, when some of them should have been served",
        retry_after_s=max(LEAST_RETRY_AFTER_S, retry_after_s),
    )


def too_late(expected_s: float, deadline_s: float, retry_after_s: float) -> Refused:
    """It would wait for longer than it may."""
    return Refused(
        f"it would wait about {format_duration(expected_s)}, and may wait {format_duration(deadline_s)}",
        code="deadline_unreachable",
        status=429,
        hint="send again after the time in Retry-After, when the queue should be short enough",
        retry_after_s=max(LEAST_RETRY_AFTER_S, retry_after_s),
    )


def waited_out(waited_s: float, retry_after_s: float) -> Refused:
    """It has waited for as long as it may."""
    return Refused(
        f"no room came up within {format_duration(waited_s)}",
        code="deadline_unreachable",
        status=429,
        hint="send again after the time in Retry-After, when the queue should be short enough",
        retry_after_s=max(LEAST_RETRY_AFTER_S, retry_after_s),
    )


def removed(tenant_id: str) -> Refused:
    return Refused(
        f"tenant {tenant_id} was removed while this request waited",
        code="tenant_removed",
        status=403,
        hint="ask the operator of this service",
    )


def unknown_limits(why: str) -> Refused:
    """The store of a shared meter cannot be reached, and the document says to fail closed."""
    return Refused(
        f"the limits of this key cannot be looked up: {why}",
        code="limits_unknown",
        status=503,
        hint="send again after the time in Retry-After; governance.on_state_loss: open would serve without limits",
        retry_after_s=BUSY_RETRY_AFTER_S,
    )
