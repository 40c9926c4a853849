"""Tenants as an operator sees them: what one process tells, what several tell together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy.gateway.last_minute import added, quantile_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ADDED = (
    "in_flight", "waiting", "borrowed", "requests", "refused", "failed", "prompt_tokens", "output_tokens",
    "tokens_per_min", "blocks_held", "tokens_today",
)  # fmt: skip


def finished(view: Mapping[str, Any]) -> dict[str, Any]:
    """A process's view of one tenant, first tokens of the last minute as percentiles."""
    counts = {int(bucket): count for bucket, count in view["ttft"].items()}
    told = {name: value for name, value in view.items() if name != "ttft"}
    return {**told, "ttft_p50_s": quantile_s(counts, 0.5), "ttft_p99_s": quantile_s(counts, 0.99)}


def merged(views: Iterable[list[dict[str, Any]]], *, quota_divided: bool) -> list[dict[str, Any]]:
    """What several processes tell of their tenants, added up.

    Args:
        quota_divided: each process has a share of the quota; else all of them have the whole.
    """
    found: dict[str, dict[str, Any]] = {}
    for told in views:
        for one in told:
            before = found.get(one["id"])
            found[one["id"]] = dict(one) if before is None else _together(before, one, quota_divided)
    return [finished(one) for one in found.values()]


def _together(one: dict[str, Any], other: dict[str, Any], quota_divided: bool) -> dict[str, Any]:
    ttft = added(*({int(bucket): count for bucket, count in view["ttft"].items()} for view in (one, other)))
    quota = one["blocks_quota"]
    if quota_divided and quota is not None and other["blocks_quota"] is not None:
        quota += other["blocks_quota"]
    return {**one, **{name: one[name] + other[name] for name in _ADDED}, "blocks_quota": quota, "ttft": ttft}
