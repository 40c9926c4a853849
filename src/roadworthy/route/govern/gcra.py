"""Rates a minute by GCRA: one integer of state, no window that rolls over. Meters in process and on stores share it.

The state is TAT, the theoretical arrival time: when all that was let through would have arrived had it come evenly.
``cost`` units are let through if ``TAT' - burst <= now`` with ``TAT' = max(TAT, now) + cost x interval``; the burst is
one minute, so after a quiet minute a minute's worth may come at once. Times are whole microseconds of whatever clock
the meter has: a double holds them exactly for 285 years, which is what Lua scripts of a store reckon in.
"""

from __future__ import annotations

MINUTE_US = 60_000_000


def cost_us(units: int, per_minute: int) -> int:
    """By how much ``units`` move TAT. Rounded down, so that ``per_minute`` units fit into a minute whatever it is;
    rates above 10**6 a minute are thereby let through up to one in a hundred too fast."""
    return units * MINUTE_US // per_minute


def taken(tat_us: int, now_us: int, more_us: int) -> tuple[int, int]:
    """TAT after letting through ``more_us``, and 0; or TAT as it was and the microseconds to wait."""
    moved_us = (tat_us if tat_us > now_us else now_us) + more_us
    early_us = moved_us - now_us - MINUTE_US
    return (tat_us, early_us) if early_us > 0 else (moved_us, 0)


def corrected(tat_us: int, charged: int, used: int, per_minute: int) -> int:
    """TAT after ``charged`` units turned out to be ``used``: earlier, or later by what was not foreseen."""
    return tat_us + cost_us(used, per_minute) - cost_us(charged, per_minute)


def used_units(tat_us: int, now_us: int, per_minute: int) -> float:
    """How much of the minute's allowance is taken at ``now_us``; above ``per_minute`` where more was used than
    foreseen."""
    return max(0, tat_us - now_us) * per_minute / MINUTE_US
