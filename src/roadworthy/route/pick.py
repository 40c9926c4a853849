"""Which engine: filter, score, pick.

Filter: serves the model (or does not say yet), takes new work, was not tried, is of the request's lane, is healthy.
Score: load, what the engine should hold of the prompt, and the session's home, all in tokens of prefill. Pick: the
best one below its bound of load. The gateway, the simulator and the property tests call the same functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from roadworthy.route.affinity import home, load_bound, session_place
from roadworthy.route.lanes import in_lane
from roadworthy.route.values import Decision

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from roadworthy.route.state import RoutingState
    from roadworthy.route.values import ChosenBy, EndpointView, RouteRequest

KV_FULL_RATIO = 0.98
"""Above this an engine preempts or queues whatever it is given (facts: ops, section 1.1, critical above 0.98)."""

_BEHIND_ALL = 1 << 40
_BEHIND_OTHERS = 1 << 36
"""Of an engine that has prompts enough to compute: after every one that has not, before one whose pool is full."""
_AT_BOUND, _POOL_FULL = float(1 << 44), float(1 << 48)
"""Costs above all that prompts and loads can be, one above the other."""

_AT_HOME = "session: at home there"

NONE_HEALTHY = "no engine is healthy: trying one anyway"


def least_load(endpoints: Sequence[EndpointView], request: RouteRequest, *, tried: Collection[str] = ()) -> Decision:
    """The engine with the least work among those that may serve ``request``: ``choose`` without a memory."""
    return choose(endpoints, request, tried=tried)


def choose(
    endpoints: Sequence[EndpointView],
    request: RouteRequest,
    *,
    tried: Collection[str] = (),
    state: RoutingState | None = None,
) -> Decision:
    """The engine for ``request``, or why there is none.

    Unhealthy engines are left out while a healthy one remains; when none does, they are tried all the same, since a
    probe can be wrong and a refused connection costs a millisecond.

    Without a session and a known beginning, the least load decides: requests in flight from us plus requests waiting
    inside the engine. The second is up to a second old and counts some of ours twice, on purpose: an engine that queues
    should get less. An engine whose KV pool is full comes after every one that has room. Among equals the least
    recently dispatched comes first, then the first in the document.

    Args:
        tried: URLs of engines that have failed this request already.
        state: sessions, prefixes and lanes; None routes by load alone. It is read, not changed.
    """
    if state is not None:
        if state.settings.long_lane is not None or request.prefix_keys or (request.session_id and state.sessions):
            return _weighed(endpoints, request, tried, state)
        if not tried:
            best = _least_loaded(endpoints, request.model)
            if best is not None and best.healthy:
                return state.plain.get(best.url) or Decision(outcome="routed", endpoint=best.url)
    return _weighed(endpoints, request, tried, state)


def _least_loaded(endpoints: Sequence[EndpointView], model: str) -> EndpointView | None:
    """The first engine by load, healthy or not: most requests need no more than this, so it makes nothing."""
    best: EndpointView | None = None
    best_load = best_dispatch = 0
    for one in endpoints:
        if one.draining or (one.models and model not in one.models):
            continue
        load = one.in_flight + one.waiting
        if one.kv_usage_ratio > KV_FULL_RATIO:
            load += _BEHIND_ALL
        if one.backlogged:
            load += _BEHIND_OTHERS
        if best is None or load < best_load or (load == best_load and one.last_dispatch < best_dispatch):
            best, best_load, best_dispatch = one, load, one.last_dispatch
    return best


def _weighed(
    endpoints: Sequence[EndpointView], request: RouteRequest, tried: Collection[str], state: RoutingState | None
) -> Decision:
    model, serving, open_to_us = request.model, 0, []
    for one in endpoints:
        models = one.models
        if models and model not in models:
            continue
        serving += 1
        if not one.draining and one.url not in tried:
            open_to_us.append(one)
    if not open_to_us:
        return _nowhere(len(endpoints), serving, request, tried)
    reasons: tuple[str, ...] = ()
    healthy = [one for one in open_to_us if one.healthy]
    if healthy:
        open_to_us = healthy
    else:
        reasons = (NONE_HEALTHY,)
    outcome: Literal["routed", "rerouted"] = "rerouted" if tried else "routed"
    if state is not None:
        long_lane = state.settings.long_lane
        if long_lane is not None:
            open_to_us, word = in_lane(open_to_us, request.lane, long_lane, state.long_prompts)
            if word:
                reasons = (*reasons, word)
            if not open_to_us:
                return Decision(outcome="lane_full", endpoint=None, reasons=reasons)
        if len(open_to_us) > 1 and (request.prefix_keys or (request.session_id and state.sessions)):
            state.see(endpoints)
            return _by_affinity(open_to_us, request, state, outcome, reasons)
    return Decision(outcome=outcome, endpoint=min(open_to_us, key=_load_score).url, reasons=reasons)


def _nowhere(known: int, serving: int, request: RouteRequest, tried: Collection[str]) -> Decision:
    if not serving:
        return Decision(
            outcome="model_not_found", endpoint=None, reasons=(f"no engine of {known} serves {request.model!r}",)
        )
    return Decision(
        outcome="no_engine",
        endpoint=None,
        reasons=(f"{serving} serve the model, {len(tried)} were tried, the rest drain",),
    )


def _load_score(endpoint: EndpointView) -> tuple[bool, bool, int, int]:
    return (
        endpoint.kv_usage_ratio > KV_FULL_RATIO,
        endpoint.backlogged,
        endpoint.in_flight + endpoint.waiting,
        endpoint.last_dispatch,
    )


def _by_affinity(
    engines: list[EndpointView],
    request: RouteRequest,
    state: RoutingState,
    outcome: Literal["routed", "rerouted"],
    reasons: tuple[str, ...],
) -> Decision:
    """Weigh what each engine saves of the prompt against its load; one at its bound comes after all that are not, one
    whose KV pool is full after all."""
    settings, known = state.settings, state.known
    weights, keys = settings.weights, request.prefix_keys
    loads = [one.in_flight + one.waiting for one in engines]
    total, count, floor = sum(loads), len(engines), settings.load_floor
    bound = load_bound(total, count, load_factor=settings.load_factor, load_floor=floor)
    prefix_bound = load_bound(total, count, load_factor=settings.prefix_load_factor, load_floor=floor)

    at_home = first = -1
    if request.session_id and state.sessions:
        by_ring = {known[one.url].ring_index: load for one, load in zip(engines, loads, strict=True)}
        at_home, first = home(state.ring, session_place(request.tenant_id, request.session_id), by_ring, bound)
    held = [known[one.url].index.matched_bytes(keys) for one in engines] if keys else [0] * count
    most_matched = max(held)
    tokens_per_byte = request.prompt_tokens / request.text_bytes if keys else 0.0
    home_saves_tokens = weights.session_ratio * request.prompt_tokens
    if not state.prefixes:
        home_saves_tokens = float(_BEHIND_ALL)  # the session policy: a home below its bound outweighs any load
    elif 2 * most_matched <= request.text_bytes and home_saves_tokens < weights.session_tokens:
        home_saves_tokens = weights.session_tokens

    best: EndpointView | None = None
    best_cost_tokens, best_matched, best_is_home = 0.0, 0, False
    for one, load, matched in zip(engines, loads, held, strict=True):
        kv = one.kv_usage_ratio
        saved_tokens, is_home = matched * tokens_per_byte, known[one.url].ring_index == at_home
        if is_home and saved_tokens < home_saves_tokens:
            saved_tokens = home_saves_tokens
        cost_tokens = load * weights.load_tokens + kv * weights.kv_tokens - saved_tokens
        if load >= (prefix_bound if matched else bound):
            cost_tokens += _AT_BOUND
        elif one.backlogged:
            cost_tokens += _BEHIND_OTHERS
        if kv > KV_FULL_RATIO:
            cost_tokens += _POOL_FULL
        if (
            best is None
            or cost_tokens < best_cost_tokens
            or (cost_tokens == best_cost_tokens and one.last_dispatch < best.last_dispatch)
        ):
            best, best_cost_tokens, best_matched, best_is_home = one, cost_tokens, matched, is_home
    assert best is not None  # there are two engines or more
    by: ChosenBy = "load"
    if best_matched:
        by = "prefix"
        reasons = (*reasons, f"prefix: {best_matched} of {request.text_bytes} bytes should be held there")
    elif best_is_home:
        by = "session"
        reasons = (*reasons, _AT_HOME)
    if best_matched < most_matched:
        most = engines[held.index(most_matched)]
        reasons = (*reasons, _yielded("prefix", most, f"holds {most_matched} bytes", prefix_bound))
    if first >= 0 and known[best.url].ring_index != first:
        first_url = state.ring.names[first]
        first_engine = next(one for one in engines if one.url == first_url)
        reasons = (*reasons, _yielded("session", first_engine, "is its home", bound))
    return Decision(outcome=outcome, endpoint=best.url, reasons=reasons, by=by, matched_bytes=best_matched)


def _yielded(what: str, engine: EndpointView, why: str, bound: int) -> str:
    load = engine.in_flight + engine.waiting
    if engine.kv_usage_ratio > KV_FULL_RATIO:
        but = f"its KV pool is {engine.kv_usage_ratio:.0%} full"
    elif load >= bound:
        but = f"it is at its bound of {bound} requests"
    else:
        but = f"with {load} requests it costs more than it saves"
    return f"{what}: {engine.url} {why}, but {but}"
