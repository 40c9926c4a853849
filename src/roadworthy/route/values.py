"""The values that routing reads and returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Set

Outcome = Literal["routed", "rerouted", "no_engine", "model_not_found", "lane_full"]
"""Low-cardinality, so fit for a metric label and the ``x-roadworthy-decision`` header. ``rerouted`` means that another
engine was tried first; ``no_engine`` that every engine serving the model is draining or was tried already;
``lane_full`` that every slot for long prompts is taken: a later try may find one."""

ChosenBy = Literal["load", "session", "prefix"]
"""What tipped the scales: load alone, the session's home, or a prefix that the engine should still hold."""

Lane = Literal["main", "long"]
"""``long`` for prompts above the document's threshold, where it has one."""


@dataclass(slots=True, kw_only=True)  # not frozen: made once for each request, and freezing takes three times as long
class RouteRequest:
    """What routing knows of a request before it runs. Nobody changes it once it is made.

    ``max_tokens`` is the client's own limit on the output, None when it gave none; ``prompt_bytes`` is the size of the
    body, the only measure of a prompt that needs no tokenizer. ``session_id`` is what the client names its conversation
    by: a header or a field of the body. The rest is filled in by ``RoutingState.describe``: ``prompt_tokens`` is an
    estimate, ``prefix_keys`` name the beginnings of the prompt (``route.prefix``), which is the last ``text_bytes`` of
    the body; ``lane`` is decided before an engine is. ``request_id`` is the gateway's own; engines' KV events are
    matched by it.
    """

    tenant_id: str
    model: str
    stream: bool
    max_tokens: int | None = None
    prompt_bytes: int = 0
    session_id: str | None = None
    prompt_tokens: int = 0
    prefix_keys: tuple[int, ...] = ()
    text_bytes: int = 0
    lane: Lane = "main"
    request_id: str = ""


class EndpointView(Protocol):
    """What a pick reads of one engine.

    A Protocol, so that the gateway offers its live endpoints as they are: copying four of them for each request would
    cost more than the choice.
    """

    @property
    def url(self) -> str: ...
    @property
    def healthy(self) -> bool: ...
    @property
    def draining(self) -> bool: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def kv_usage_ratio(self) -> float: ...
    @property
    def models(self) -> Set[str]: ...
    @property
    def last_dispatch(self) -> int: ...
    @property
    def backlogged(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSnapshot:
    """One engine at one moment; what the simulator and tests hand to a pick.

    Args:
        url: scheme, host and port; names the endpoint.
        healthy: its health probe says so, and its breaker lets requests through.
        draining: takes no new requests; those in flight finish.
        in_flight: requests we sent that have not ended. Counted at dispatch, so it is never stale.
        waiting: requests queued inside the engine at the last scrape, others' included.
        kv_usage_ratio: share of its KV blocks in use at the last scrape, 0 to 1.
        models: names it serves; empty means not known yet, and then it is tried for any.
        last_dispatch: ordinal of the last request sent to it; the smallest is the least recently used.
        backlogged: it has as many prompts still to compute as it should; others come first.
    """

    url: str
    healthy: bool = True
    draining: bool = False
    in_flight: int = 0
    waiting: int = 0
    kv_usage_ratio: float = 0.0
    models: frozenset[str] = frozenset()
    last_dispatch: int = 0
    backlogged: bool = False

    def __post_init__(self) -> None:
        if self.in_flight < 0 or self.waiting < 0:
            raise ValueError(
                f"{self.url}: requests cannot be negative: {self.in_flight} in flight, {self.waiting} waiting"
            )
        if not 0 <= self.kv_usage_ratio <= 1:
            raise ValueError(f"{self.url}: kv_usage_ratio {self.kv_usage_ratio} is outside 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Where a request goes, or why nowhere. ``reasons`` are free text in the order they were weighed; empty when there
    was nothing to weigh but load. ``by`` is what tipped the scales, ``matched_bytes`` how much of the prompt the engine
    is expected to hold already."""

    outcome: Outcome
    endpoint: str | None
    reasons: tuple[str, ...] = ()
    by: ChosenBy = "load"
    matched_bytes: int = 0

    def __post_init__(self) -> None:
        if (self.endpoint is None) != (self.outcome not in ("routed", "rerouted")):
            raise ValueError(f"decision {self.outcome} with endpoint {self.endpoint}")
