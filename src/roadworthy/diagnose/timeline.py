"""What happened in which order, and how far it reached.

Clocks differ: some lines carry a date, some none, the kernel counts from boot. :mod:`roadworthy.diagnose.clocks` puts
them beside each other where the lines say how they stand; the others are ordered among themselves, kind by kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from roadworthy.diagnose.clocks import ClockKind, Clocks, clock_of
from roadworthy.diagnose.verdict import SYMPTOMS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from roadworthy.diagnose.clocks import Placed
    from roadworthy.diagnose.values import Clue, ClueBook

QUIET = (
    "engine.stats", "engine.served", "nccl.channel-", "env.", "package.", "driver.", "weights.loading", "kv.pool",
    "counter.",
)  # fmt: skip
MOST_EVENTS = 60
MOST_OF_ONE = 12
"""Of one clue; that 256 ranks show it is said by the reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the timeline. ``when`` is as people read it, UTC where dated; ``note`` says what was done to it;
    ``first_cause`` marks evidence of the first finding."""

    clock: ClockKind
    when: str
    host: str
    rank: int | None
    what: str
    file: str
    line: int
    text: str
    first_cause: bool
    note: str = ""


def when(time_s: float) -> str:
    """A time as people read it: a date, a day without its year, or seconds since boot."""
    kind = clock_of(time_s)
    if kind == "since boot":
        return f"+{time_s:,.3f} s"
    moment = datetime.fromtimestamp(time_s, tz=UTC)
    return moment.strftime("%m-%d %H:%M:%S" if kind == "without a year" else "%Y-%m-%d %H:%M:%S")


def timeline(book: ClueBook, causal: Collection[tuple[str, int]]) -> tuple[Event, ...]:
    """Clues in order of time; each line once. Of a clue that many hosts or ranks show, the first of each.

    Args:
        causal: (file, line) of the evidence of the first finding.
    """
    clocks = Clocks.of(book)
    events: dict[tuple[str, int], tuple[float, Event]] = {}
    for name in sorted(book.names()):
        if name.startswith(QUIET):
            continue
        for clue in _first_of_each(book.all(name)):
            placed = clocks.placed(clue)
            if placed is None:
                continue
            line = clue.lines[0]
            key = (line.file, line.number)
            if key not in events:
                events[key] = (placed.time_s, _event(clue, placed, key in causal))
    order = {"dated": 0, "without a year": 1, "since boot": 2}
    ranked = sorted(events.values(), key=lambda item: (order[item[1].clock], item[0], item[1].file, item[1].line))
    return tuple(event for _, event in _fewer(ranked))


def _first_of_each(clues: Sequence[Clue]) -> list[Clue]:
    """The first of each host and rank, and of each that has none the first three."""
    seen: dict[tuple[str | None, int | None], int] = {}
    found = []
    for clue in clues:
        place = (clue.host, clue.rank)
        seen[place] = seen.get(place, 0) + 1
        if clue.lines and clue.time_s is not None and seen[place] <= (1 if clue.rank is not None else 3):
            found.append(clue)
    return found[:MOST_OF_ONE]


def _fewer(ranked: list[tuple[float, Event]]) -> list[tuple[float, Event]]:
    """At most MOST_EVENTS: all that belong to the cause, and the earliest of the rest."""
    if len(ranked) <= MOST_EVENTS:
        return ranked
    room = MOST_EVENTS - sum(event.first_cause for _, event in ranked)
    kept = []
    for item in ranked:
        if item[1].first_cause or room > 0:
            kept.append(item)
            room -= not item[1].first_cause
    return kept


def _event(clue: Clue, placed: Placed, causal: bool) -> Event:
    line = clue.lines[0]
    return Event(
        clock=placed.clock, when=when(placed.time_s), host=clue.host or "", rank=clue.rank, what=clue.name,
        file=line.file, line=line.number, text=line.text.strip()[:300], first_cause=causal, note=placed.note,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far it reached: hosts and ranks that show symptoms, how many symptom lines there were, and over what time."""

    hosts: tuple[str, ...]
    ranks: tuple[int, ...]
    symptom_lines: int
    first: str = ""
    last: str = ""
    quiet_hosts: tuple[str, ...] = ()


def reach(book: ClueBook) -> Reach:
    """The blast radius as the logs show it; hosts that were read and show no symptom are named too."""
    symptoms = book.all(*SYMPTOMS)
    clocks = Clocks.of(book)
    times = [placed.time_s for clue in symptoms if (placed := clocks.placed(clue)) and placed.clock == "dated"]
    hosts = {clue.host for clue in symptoms if clue.host}
    return Reach(
        hosts=tuple(sorted(hosts)),
        ranks=tuple(sorted({clue.rank for clue in symptoms if clue.rank is not None})),
        symptom_lines=sum(clue.count for clue in symptoms),
        first=when(min(times)) if times else "", last=when(max(times)) if times else "",
        quiet_hosts=tuple(sorted(book.hosts() - hosts)) if hosts else (),
    )  # fmt: skip
