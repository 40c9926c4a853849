"""One metric of one place over time, and the few questions that rules ask of it."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from roadworthy.diagnose.values import Clue, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

MOST_LABELS = 8
HOST_LABELS = (
    "node", "Hostname", "hostname", "nodename", "kubernetes_node", "host", "exported_host", "pod", "instance",
)  # fmt: skip
"""Where exporters and service discovery put the machine, the surest first."""

Span = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """Points of one metric with one set of labels, in the order of time.

    Args:
        name: without the prefix of the engine that gives it (``vllm:``, ``sglang:``); ``metric`` keeps it.
        times: seconds of the epoch. values: beside them; finite.
        file, line: where the answer stands.
    """

    name: str
    metric: str
    labels: Mapping[str, str]
    times: array[float]
    values: array[float]
    file: str
    line: int

    def label(self, *names: str) -> str:
        """The first of these labels that is there, or nothing."""
        return next((self.labels[name] for name in names if self.labels.get(name)), "")

    @property
    def host(self) -> str | None:
        """Node, pod or machine; the port of an ``instance`` is left out."""
        found = self.label(*HOST_LABELS)
        head, colon, port = found.rpartition(":")
        return (head if colon and port.isdigit() else found) or None

    @property
    def last(self) -> float:
        return self.values[-1]

    def peak(self) -> tuple[float, float]:
        """(time, value) of the highest point, the first of equals."""
        at = max(range(len(self.values)), key=self.values.__getitem__)
        return self.times[at], self.values[at]

    def lowest(self) -> tuple[float, float]:
        at = min(range(len(self.values)), key=self.values.__getitem__)
        return self.times[at], self.values[at]

    def within(self, span: Span) -> Sequence[float]:
        """Values from ``span[0]`` to ``span[1]``, both included."""
        return self.values[bisect_left(self.times, span[0]) : bisect_right(self.times, span[1])]

    def at(self, time_s: float) -> float | None:
        """The value that held at ``time_s``; None before the first point."""
        index = bisect_right(self.times, time_s) - 1
        return self.values[index] if index >= 0 else None

    def increase(self, span: Span | None = None) -> float:
        """How much a counter grew; a fall is a restart from zero, as in PromQL."""
        values = self.values
        if span is not None:  # what held when the span began counts too
            before = self.at(span[0])
            values = array("d", [*([before] if before is not None else ()), *self.within(span)])
        return sum(later - earlier if later >= earlier else later for earlier, later in pairwise(values))

    def when(self, test: Callable[[float], bool]) -> list[Span]:
        """Spans in which every point passes ``test``."""
        return spans_where(self.times, [test(value) for value in self.values])

    def resets(self) -> list[float]:
        """Times at which a counter fell: the process started anew."""
        return [self.times[at] for at in range(1, len(self.values)) if self.values[at] < self.values[at - 1]]

    def quoted(self, note: str = "", at: Sequence[float] = ()) -> Line:
        """The series as evidence: its name, labels, first and last value, and those at the times ``at``."""
        labels = ",".join(f'{key}="{value}"' for key, value in sorted(self.labels.items())[:MOST_LABELS])
        moments = sorted({self.times[0], self.times[-1], *(time for time in at)})
        points = ", ".join(f"{_number(self.at(one) or 0.0)} at {clock(one)}" for one in moments)
        text = f"{self.metric}{{{labels}}} {points}{'; ' + note if note else ''}"
        return Line(file=self.file, number=self.line, text=text)

    def clue(
        self, name: str, /, *others: Line, time_s: float | None = None, note: str = "",
        of_rank: int | None = None, **values: object,
    ) -> Clue:  # fmt: skip
        """A clue that rests on this series; ``time_s`` is when it began."""
        at = [time_s] if time_s is not None else []
        return Clue(
            name=name, lines=(self.quoted(note, at), *others), values={key: str(one) for key, one in values.items()},
            host=self.host, rank=of_rank, time_s=time_s if time_s is not None else self.times[-1],
        )  # fmt: skip


def spans_where(times: Sequence[float], passes: Sequence[bool]) -> list[Span]:
    """(first, last) time of every run of points that pass."""
    found: list[Span] = []
    start: float | None = None
    for at, passed in enumerate(passes):
        if passed and start is None:
            start = times[at]
        elif not passed and start is not None:
            found.append((start, times[at - 1]))
            start = None
    if start is not None:
        found.append((start, times[-1]))
    return found


def lasting(spans: Iterable[Span], seconds: float) -> list[Span]:
    """Those of ``spans`` that last at least ``seconds``."""
    return [span for span in spans if span[1] - span[0] >= seconds]


def clock(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _number(value: float) -> str:
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:.4g}"


def middle(values: Iterable[float]) -> float:
    """The median, 0 of nothing."""
    some = list(values)
    return median(some) if some else 0.0


class Family:
    """Every series of one incident, by name."""

    def __init__(self, by_name: Mapping[str, list[Series]]) -> None:
        self._by_name = by_name

    @classmethod
    def of(cls, series: Iterable[Series]) -> Family:
        by_name: dict[str, list[Series]] = defaultdict(list)
        for one in series:
            by_name[one.name].append(one)
        return cls(by_name)

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def __iter__(self) -> Iterator[tuple[str, list[Series]]]:
        return iter(sorted(self._by_name.items()))

    def all(self, *names: str) -> list[Series]:
        """Series of the first of ``names`` that has any; ``_total`` may be there or not."""
        for name in names:
            if found := self._by_name.get(name) or self._by_name.get(f"{name}_total"):
                return found
        return []

    def by(self, key: Callable[[Series], tuple[str, ...]], *names: str) -> dict[tuple[str, ...], list[Series]]:
        """:meth:`all`, grouped."""
        groups: dict[tuple[str, ...], list[Series]] = defaultdict(list)
        for one in self.all(*names):
            groups[key(one)].append(one)
        return groups


def series_of(
    labels: Mapping[str, str], points: Iterable[tuple[float, float]], *, file: str, line: int, name: str = ""
) -> Series | None:
    """A series of an answer; None when it has no usable point. One that never changes keeps its two ends alone: most
    counters of a fabric are such."""
    metric = labels.get("__name__", name)
    times, values = array("d"), array("d")
    for time_s, value in points:
        if not (math.isfinite(value) and math.isfinite(time_s)):
            continue
        times.append(time_s)
        values.append(value)
    if not values or not metric:
        return None
    if len(values) > 2 and values.count(values[0]) == len(values):
        times, values = array("d", (times[0], times[-1])), values[:2]
    short = metric.partition(":")[2] if metric.startswith(("vllm:", "sglang:", "engine:")) else metric
    rest = {key: one for key, one in labels.items() if key != "__name__"}
    return Series(name=short, metric=metric, labels=rest, times=times, values=values, file=file, line=line)


def overlap(one: Iterable[Span], other: Iterable[Span]) -> list[Span]:
    """Where spans of both run at once."""
    theirs = list(other)
    found = [(max(a, c), min(b, d)) for a, b in one for c, d in theirs]
    return [(start, end) for start, end in found if start <= end]
