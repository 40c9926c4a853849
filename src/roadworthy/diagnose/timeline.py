"""What happened in which order, and how far it reached.

Clocks differ: some lines carry a date, some none, the kernel counts from boot. Lines of one kind of clock are ordered
among themselves; kinds are never mixed, because nothing says how they stand to each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from roadworthy.diagnose.anatomy import YEAR_WITHOUT
from roadworthy.diagnose.verdict import SYMPTOMS

if TYPE_CHECKING:
    from collections.abc import Collection

    from roadworthy.diagnose.values import Clue, ClueBook

ClockKind = Literal["dated", "without a year", "since boot"]

YEAR_S = 366 * 86400.0
START_WITHOUT_S = datetime(YEAR_WITHOUT, 1, 1, tzinfo=UTC).timestamp()
QUIET = (
    "engine.stats", "engine.served", "nccl.channel-", "env.", "package.", "driver.", "weights.loading", "kv.pool",
    "counter.",
)  # fmt: skip
MOST_EVENTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the timeline. ``when`` is as people read it; ``first_cause`` marks evidence of the first finding."""

    clock: ClockKind
    when: str
    host: str
    rank: int | None
    what: str
    file: str
    line: int
    text: str
    first_cause: bool


def clock_of(time_s: float) -> ClockKind:
    """Which kind of clock a time of :func:`anatomy.time_of` came from."""
    if START_WITHOUT_S <= time_s < START_WITHOUT_S + YEAR_S:
        return "without a year"
    return "since boot" if time_s < START_WITHOUT_S else "dated"


def when(time_s: float) -> str:
    kind = clock_of(time_s)
    if kind == "since boot":
        return f"+{time_s:,.3f} s"
    moment = datetime.fromtimestamp(time_s, tz=UTC)
    return moment.strftime("%m-%d %H:%M:%S" if kind == "without a year" else "%Y-%m-%d %H:%M:%S")


def timeline(book: ClueBook, causal: Collection[tuple[str, int]]) -> tuple[Event, ...]:
    """Dated clues in order, kind of clock by kind of clock; each line once.

    Args:
        causal: (file, line) of the evidence of the first finding.
    """
    events: dict[tuple[str, int], tuple[float, Event]] = {}
    for name in sorted(book.names()):
        if name.startswith(QUIET):
            continue
        for clue in book.all(name)[:3]:
            if clue.time_s is None or not clue.lines:
                continue
            line = clue.lines[0]
            key = (line.file, line.number)
            if key not in events:
                events[key] = (clue.time_s, _event(clue, clue.time_s, key in causal))
    order = {"dated": 0, "without a year": 1, "since boot": 2}
    ranked = sorted(events.values(), key=lambda item: (order[item[1].clock], item[0], item[1].file, item[1].line))
    return tuple(event for _, event in ranked[:MOST_EVENTS])


def _event(clue: Clue, time_s: float, causal: bool) -> Event:
    line = clue.lines[0]
    return Event(
        clock=clock_of(time_s), when=when(time_s), host=clue.host or "", rank=clue.rank, what=clue.name, file=line.file,
        line=line.number, text=line.text.strip()[:300], first_cause=causal,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far it reached: hosts and ranks that show symptoms, and how many symptom lines there were."""

    hosts: tuple[str, ...]
    ranks: tuple[int, ...]
    symptom_lines: int


def reach(book: ClueBook) -> Reach:
    """The blast radius as the logs show it."""
    symptoms = book.all(*SYMPTOMS)
    return Reach(
        hosts=tuple(sorted({clue.host for clue in symptoms if clue.host})),
        ranks=tuple(sorted({clue.rank for clue in symptoms if clue.rank is not None})),
        symptom_lines=sum(clue.count for clue in symptoms if clue.count > 1)
        + sum(1 for clue in symptoms if clue.count == 1),
    )
