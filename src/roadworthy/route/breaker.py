"""Takes an engine that keeps failing out of the rotation, and lets one request at a time find out whether it is back.

::

    closed --failures in a row--> open --back-off over--> half open --success--> closed
                                   ^                          |
                                   +---- failure, longer -----+

The back-off is short (at most 1.5 s) because a probing request that fails is retried elsewhere unseen: a longer one
would only keep a recovered engine idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BreakerState = Literal["closed", "open", "half_open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """When to eject and for how long. ``failures`` counts consecutive ones; the back-off doubles up to the longest."""

    failures: int = 3
    first_backoff_s: float = 0.5
    longest_backoff_s: float = 1.5

    def __post_init__(self) -> None:
        if self.failures < 1 or not 0 < self.first_backoff_s <= self.longest_backoff_s:
            raise ValueError(f"breaker policy cannot work: {self}")


class Breaker:
    """One engine's breaker. Times are seconds of any clock that only rises; each call says what it is now."""

    __slots__ = ("_failures", "_open_until_s", "_opened", "_policy", "_probe_until_s")

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._failures = 0
        self._opened = 0
        self._open_until_s = 0.0
        self._probe_until_s: float | None = None

    def state(self, now_s: float) -> BreakerState:
        if not self._opened:
            return "closed"
        return "open" if now_s < self._open_until_s else "half_open"

    def allows(self, now_s: float) -> bool:
        """Whether a request may be sent: closed, or half open with no probe under way.

        A probe that has not answered within the longest back-off no longer holds others up: a plain completion says
        nothing until its last token.
        """
        if not self._opened:
            return True
        if now_s < self._open_until_s:
            return False
        return self._probe_until_s is None or now_s >= self._probe_until_s

    def dispatched(self, now_s: float) -> None:
        """A request was sent; in the half-open state it is the probe."""
        if self._opened and now_s >= self._open_until_s:
            self._probe_until_s = now_s + self._policy.longest_backoff_s

    def succeeded(self) -> None:
        """The engine answered: close, and forget the past."""
        self._failures = self._opened = 0
        self._probe_until_s = None

    def failed(self, now_s: float) -> None:
        """Connect refused or timed out, died before an answer, or answered 5xx."""
        self._failures += 1
        probe_failed, self._probe_until_s = self._probe_until_s is not None, None
        if probe_failed or (not self._opened and self._failures >= self._policy.failures):
            backoff_s = self._policy.first_backoff_s * 2.0 ** min(self._opened, 10)
            self._open_until_s = now_s + min(backoff_s, self._policy.longest_backoff_s)
            self._opened += 1

    def abandoned(self) -> None:
        """The request ended without telling anything of the engine (its client left): let another one probe."""
        self._probe_until_s = None
