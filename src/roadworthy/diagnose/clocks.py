"""Puts the clocks of an incident beside each other, as far as its own lines say how they stand.

An engine prints no year and no zone, the kernel counts from boot, and hosts run fast or slow. A line that carries two
clocks (a container runtime's before the engine's, the journal's before the kernel's) tells how they stand on that host;
what NTP says of a host tells how far its clock is off. What nothing tells stays apart, and says so.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Literal

from roadworthy.diagnose.anatomy import ISO, KERNEL, VLLM_TIME, YEAR_WITHOUT, time_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roadworthy.diagnose.values import Clue, ClueBook

ClockKind = Literal["dated", "without a year", "since boot"]

YEAR_S = 366 * 86400.0
START_WITHOUT_S = datetime(YEAR_WITHOUT, 1, 1, tzinfo=UTC).timestamp()
KERNEL_WITHIN = re.compile(r"kernel: (\[\s*\d+\.\d+\])")
ZONE_STEP_S = 900.0
"""Zones differ by quarters of an hour; what is left over is the time a line took to be written down."""

ZONES_S = (-14 * 3600.0, 14 * 3600.0)
SKEW_LEAST_S = 0.05
SAME_STEP_S = 60.0


def clock_of(time_s: float) -> ClockKind:
    """Which kind of clock a time of :func:`anatomy.time_of` came from."""
    if START_WITHOUT_S <= time_s < START_WITHOUT_S + YEAR_S:
        return "without a year"
    return "since boot" if time_s < START_WITHOUT_S else "dated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A time as the other clocks count it. ``note`` says what was done to it, empty for nothing."""

    clock: ClockKind
    time_s: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """How the clocks of each host stand to UTC, in seconds to be added.

    Args:
        yearless: of the clock without a year. boot: of the kernel's. skew: how far the host's own clock runs ahead.
    """

    yearless: Mapping[str, float]
    boot: Mapping[str, float]
    skew: Mapping[str, float]

    @classmethod
    def of(cls, book: ClueBook) -> Clocks:
        """What the lines of ``book`` tell."""
        yearless: dict[str, list[float]] = defaultdict(list)
        boot: dict[str, list[float]] = defaultdict(list)
        for clue in book.all("*"):
            for line in clue.lines[:1]:
                _compare(clue.host or "", line.text, yearless, boot)
        shared = [one for some in yearless.values() for one in some]
        if shared and max(shared) - min(shared) < SAME_STEP_S:  # one zone everywhere: it holds where no line tells
            yearless.setdefault("", shared)
        return cls(
            yearless={host: _zone(some) for host, some in yearless.items()},
            boot={host: median(some) for host, some in boot.items() if max(some) - min(some) < SAME_STEP_S},
            skew={host: ahead for host, ahead in _skews(book) if abs(ahead) >= SKEW_LEAST_S},
        )

    def placed(self, clue: Clue) -> Placed | None:
        """When ``clue`` was; None without a clock."""
        if clue.time_s is None:
            return None
        host, kind, time_s = clue.host or "", clock_of(clue.time_s), clue.time_s
        notes = []
        known = {"without a year": self.yearless, "since boot": self.boot, "dated": {}}[kind]
        add = known.get(host, known.get("") if kind == "without a year" else None)
        if add is not None:
            time_s += add
            notes.append("the year and zone are of other lines" if kind == "without a year" else "counted from boot")
            kind = "dated"
        if kind == "dated" and host in self.skew:
            time_s -= self.skew[host]
            notes.append(f"its clock ran {abs(self.skew[host]):.3g} s {'fast' if self.skew[host] > 0 else 'slow'}")
        return Placed(clock=kind, time_s=time_s, note="; ".join(notes))


def _compare(host: str, text: str, yearless: dict[str, list[float]], boot: dict[str, list[float]]) -> None:
    head = text[:400]
    dated = ISO.search(head)
    at = time_of(dated.group()) if dated else None
    if at is None:
        return
    if (found := VLLM_TIME.search(head)) and (other := time_of(found.group())) is not None:
        year = datetime.fromtimestamp(at, tz=UTC).year
        moved = other + datetime(year, 1, 1, tzinfo=UTC).timestamp() - START_WITHOUT_S
        leap = 86400.0 if _after_february(other) and not _is_leap(year) else 0.0  # YEAR_WITHOUT has a 29 February
        apart = at - (moved - leap)
        if ZONES_S[0] <= apart <= ZONES_S[1]:
            yearless[host].append(at - other)
    elif (found := KERNEL_WITHIN.search(head)) and (seconds := KERNEL.match(found.group(1))):
        boot[host].append(at - float(seconds.group(1)))


def _after_february(yearless_s: float) -> bool:
    return datetime.fromtimestamp(yearless_s, tz=UTC).month > 2


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _zone(some: list[float]) -> float:
    """The usual difference, without the moment between a line and its being written down: whole quarters of an hour."""
    return round(median(some) / ZONE_STEP_S) * ZONE_STEP_S


def _skews(book: ClueBook) -> list[tuple[str, float]]:
    found = []
    for clue in book.all("clock.offset"):
        seconds = clue.value("seconds")
        if clue.host and re.fullmatch(r"\d+(?:\.\d+)?", seconds):
            found.append((clue.host, float(seconds) * (1 if clue.value("way") == "fast" else -1)))
    return found
