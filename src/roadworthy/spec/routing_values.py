"""How the document says the gateway routes: what counts, how much, and the lane of long prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Policy = Literal["affinity", "prefix", "session", "least-load"]
"""``affinity`` weighs sessions and prefixes, the two after it only one of them, ``least-load`` neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What each score is worth, in tokens of prefill: the one currency that cache and queue share.

    Args:
        load_tokens: a request more on an engine (in flight or waiting) against this many prompt tokens to compute. A
            decoding request slows others by little and a waiting one by its whole prompt; 256 lies between the two. An
            engine that holds a system prompt of 200 tokens is thereby no reason to leave an idle one idle.
        session_tokens: a session's home, where no engine is known to hold half of the prompt. It outweighs eight
            requests more, so that a name decides up to the bound of load; simulations lose nothing by it.
        session_ratio: or this share of the prompt, where it is more: what the home is taken to hold where nothing is
            known, after a restart of the gateway, or in another worker than before. With a half, four workers that each
            know a quarter of a conversation find it nearly as often as one that knows all
            (``docs/concepts/routing.md``).
        kv_tokens: a full KV pool against an empty one. Small: usage says what is referenced, not what is reusable; it
            breaks ties between engines whose requests are of different sizes.
    """

    load_tokens: float = 256.0
    session_tokens: float = 2048.0
    session_ratio: float = 0.5
    kv_tokens: float = 256.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSpec:
    """How an engine is chosen among those that may serve a request.

    Args:
        policy: what counts beside load.
        session_header: the request header that names a conversation.
        load_factor: a session's home may be brought to this multiple of the mean load and no further (the c of bounded
            loads; Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2016). Low, since a home is
            chosen blindly.
        prefix_load_factor: the same for an engine that is known to hold some of the prompt. Higher: there the saving is
            known and weighed against load already, and each yield computes the prompt again elsewhere.
        load_floor: requests on an engine that are never too many for affinity. With two requests in all, the mean of
            four engines is a half and any factor of it would break up sessions for nothing.
    """

    policy: Policy = "affinity"
    session_header: str = "x-session-id"
    load_factor: float = 1.25
    prefix_load_factor: float = 2.0
    load_floor: int = 4
    weights: Weights = Weights()


@dataclass(frozen=True, slots=True, kw_only=True)
class LongLane:
    """Where prompts of more than ``above_tokens`` tokens go.

    One of two ways: ``engines`` (URLs) of their own, which other prompts then leave alone; or at most ``slots`` of them
    at once on each engine, any engine.
    """

    above_tokens: int
    engines: tuple[str, ...] = ()
    slots: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Lanes apart from the main one; none by default."""

    long: LongLane | None = None
