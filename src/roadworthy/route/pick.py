"""Which engine: filter, score, pick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.route.values import Decision, EndpointView, RouteRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

KV_FULL_RATIO = 0.98
"""Above this an engine preempts or queues whatever it is given (facts: ops, section 1.1, critical above 0.98)."""


def least_load(endpoints: Sequence[EndpointView], request: RouteRequest, *, tried: Collection[str] = ()) -> Decision:
    """The engine with the least work among those that may serve ``request``.

    Filter: serves the model (or does not say yet), takes new work, not in ``tried``. Unhealthy engines are left out
    while a healthy one remains; when none does, they are tried all the same, since a probe can be wrong and a refused
    connection costs a millisecond.

    Score: requests in flight from us plus requests waiting inside the engine. The second is up to a second old and
    counts some of ours twice, on purpose: an engine that queues should get less. An engine whose KV pool is full comes
    after every one that has room.

    Pick: the lowest score; among equals the least recently dispatched, then the first in the document.
    """
    serving = [one for one in endpoints if not one.models or request.model in one.models]
    if not serving:
        return Decision(
            outcome="model_not_found",
            endpoint=None,
            reasons=(f"no engine of {len(endpoints)} serves {request.model!r}",),
        )
    open_to_us = [one for one in serving if not one.draining and one.url not in tried]
    if not open_to_us:
        return Decision(
            outcome="no_engine",
            endpoint=None,
            reasons=(f"{len(serving)} serve the model, {len(tried)} were tried, the rest drain",),
        )
    healthy = [one for one in open_to_us if one.healthy]
    best = min(healthy or open_to_us, key=_score)
    return Decision(
        outcome="rerouted" if tried else "routed",
        endpoint=best.url,
        reasons=() if healthy else ("no engine is healthy: trying one anyway",),
    )


def _score(endpoint: EndpointView) -> tuple[bool, int, int]:
    return (
        endpoint.kv_usage_ratio > KV_FULL_RATIO,
        endpoint.in_flight + endpoint.waiting,
        endpoint.last_dispatch,
    )
