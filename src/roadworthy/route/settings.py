"""How routing weighs: every weight and bound of it, with the reason for its default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Policy = Literal["affinity", "prefix", "session", "least-load"]
"""``affinity`` weighs sessions and prefixes, the two after it only one of them, ``least-load`` neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What one unit of each score is worth, in tokens of prefill: the one currency that cache and queue share.

    Args:
        load_tokens: a request more on an engine (in flight or waiting) against this many prompt tokens to compute. A
            decoding request slows others by little and a waiting one by its whole prompt; 256 lies between the two. An
            engine that holds a system prompt of 200 tokens is thereby no reason to leave an idle one idle.
        session_tokens: the session's home, when nothing is known of its prefix: after a restart of the gateway, or in
            another worker than before. A conversation in its second turn seldom has less.
        kv_tokens: a full KV pool against an empty one. Small: usage says what is referenced, not what is reusable; it
            breaks ties between engines whose requests are of different sizes.
    """

    load_tokens: float = 256.0
    session_tokens: float = 1024.0
    kv_tokens: float = 256.0

    def __post_init__(self) -> None:
        if min(self.load_tokens, self.session_tokens, self.kv_tokens) < 0:
            raise ValueError(f"weights are not negative: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LongLane:
    """Where prompts of more than ``above_tokens`` tokens go.

    One of two ways: ``engines`` of their own, which other prompts then leave alone; or at most ``slots`` of them at
    once on each engine, any engine.
    """

    above_tokens: int
    engines: frozenset[str] = frozenset()
    slots: int | None = None

    def __post_init__(self) -> None:
        if self.above_tokens < 1 or bool(self.engines) == (self.slots is not None):
            raise ValueError(f"a lane has a threshold and either engines or slots: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSettings:
    """All of it.

    Args:
        policy: what counts beside load.
        load_factor: affinity may bring an engine to this multiple of the mean load and no further (the c of bounded
            loads; Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2016). 1.25 leaves nine in
            ten requests at home when sessions are many.
        load_floor: requests on an engine that are never too many for affinity. With two requests in all, the mean of
            four engines is a half and any factor of it would break up sessions for nothing.
        ring_points: of one engine on the hash ring; 160 keep its share of sessions within some 8 % of even.
        index_entries: prefixes remembered over all engines, the bound of the index's memory: some 200 bytes each.
        bytes_per_token: of a prompt, until answers' ``usage`` says better.
    """

    policy: Policy = "affinity"
    weights: Weights = Weights()
    load_factor: float = 1.25
    load_floor: int = 4
    ring_points: int = 160
    index_entries: int = 65_536
    bytes_per_token: float = 4.0
    long_lane: LongLane | None = None

    def __post_init__(self) -> None:
        if not self.load_factor >= 1:
            raise ValueError(f"load_factor {self.load_factor} is below the mean")
        if min(self.load_floor, self.ring_points, self.index_entries) < 1 or not self.bytes_per_token > 0:
            raise ValueError(f"routing settings are not positive: {self}")
