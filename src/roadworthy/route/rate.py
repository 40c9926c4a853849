"""Requests a minute by GCRA: one number of state, no window to roll over.

``tat`` is the theoretical arrival time: when the requests let through so far would have arrived if evenly spaced. A
request is let through if tat' - burst <= now with tat' = max(tat, now) + interval (facts: ops, section 5).
"""

from __future__ import annotations

MINUTE_S = 60.0


class MinuteRate:
    """At most ``per_minute`` requests at once after a quiet minute, and ``per_minute`` a minute from then on."""

    __slots__ = ("_interval_s", "_tat_s")

    def __init__(self, per_minute: int) -> None:
        if per_minute < 1:
            raise ValueError(f"a rate of {per_minute} requests a minute lets nothing through")
        self._interval_s = MINUTE_S / per_minute
        self._tat_s = -MINUTE_S

    def take(self, now_s: float) -> float:
        """Take one request out of the allowance: 0 when it may go, else the seconds after which one more may."""
        tat_s = max(self._tat_s, now_s) + self._interval_s
        # a microsecond of tolerance: sixty sums of 1/60 must still be one minute
        early_s = tat_s - MINUTE_S - now_s
        if early_s > 1e-6:
            return early_s
        self._tat_s = tat_s
        return 0.0
