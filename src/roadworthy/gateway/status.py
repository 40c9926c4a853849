"""The gateway as its operator sees it: the values behind ``/api/status`` and ``up``'s live screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.route.breaker import BreakerState


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointStatus:
    """One engine. ``healthy`` is what routing goes by; ``reachable`` what the last probe saw (None: not probed yet).

    ``in_flight`` counts our requests now; ``running``, ``waiting`` and ``kv_usage_ratio`` are the engine's own figures,
    up to ``checked_s_ago`` old. ``warning`` is what an operator should know of its ``version``.
    """

    url: str
    healthy: bool
    reachable: bool | None
    note: str
    breaker: BreakerState
    draining: bool
    in_flight: int
    dispatched_total: int
    running: int
    waiting: int
    kv_usage_ratio: float
    models: tuple[str, ...]
    checked_s_ago: float | None
    version: str = ""
    warning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantStatus:
    """One tenant since the start. ``output_tokens_estimated`` is the part of ``output_tokens`` that counts stream
    events, for answers without ``usage``."""

    id: str
    in_flight: int
    requests: int
    refused: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    output_tokens_estimated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentStatus:
    """The document in force: when it was taken over (seconds of the epoch), how many have been since the start, how
    many were refused, and what was wrong with the last one if it was refused."""

    loaded_at_s: float
    reloads: int = 0
    refused: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """One process. ``draining`` ones finish their streams and end, after an upgrade."""

    id: str
    pid: int
    ready: bool
    draining: bool
    in_flight: int
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStatus:
    """All of it at one moment.

    ``stream_events_per_s`` is the mean of the last seconds, an estimate of output tokens a second: an engine sends one
    event a token unless it decodes several at a step; plain answers are not in it. ``workers`` are the processes where
    there are several; all other figures are their sums.
    """

    ready: bool
    draining: bool
    uptime_s: float
    client_connections: int
    in_flight: int
    requests: int
    stream_events_per_s: float
    output_tokens_per_s: float
    endpoints: tuple[EndpointStatus, ...]
    tenants: tuple[TenantStatus, ...]
    document: DocumentStatus
    workers: tuple[WorkerStatus, ...] = ()
