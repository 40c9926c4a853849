"""Traces as text: JSON lines, a JSON list or CSV in, lines that are worth sending out, and what is wrong by line."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from roadworthy.advise.trace_formats import LineError, TraceFormat, TraceLine, format_of, read_line
from roadworthy.core.errors import Problem, SpecError

MOST_PROBLEMS = 20
LONG_GAP_S = 60.0
"""A silence that is worth a word: a replay waits through it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace as read.

    Args:
        lines: those that are worth sending, by time where they have times.
        left_out: lines without an answer, refused or empty.
        reordered: lines whose time was before that of the line above.
        longest_gap_s: between two requests, and ``longest_gap_line`` the line after it.
    """

    format: TraceFormat
    lines: tuple[TraceLine, ...]
    left_out: int = 0
    reordered: int = 0
    longest_gap_s: float = 0.0
    longest_gap_line: int = 0

    @property
    def timed(self) -> bool:
        return self.lines[0].at_s is not None

    @property
    def length_s(self) -> float:
        """First request to last, on the trace's clock; 0 without times."""
        first, last = self.lines[0].at_s, self.lines[-1].at_s
        return 0.0 if first is None or last is None else last - first

    def notes(self) -> tuple[str, ...]:
        """What a reader of numbers from this trace must know."""
        notes = []
        if self.left_out:
            notes.append(f"{self.left_out:,} lines of the trace were refused or had no answer, and are left out.")
        if self.reordered:
            notes.append(f"{self.reordered:,} lines of the trace were out of order in time, and were sorted.")
        if self.longest_gap_s > LONG_GAP_S:
            notes.append(
                f"The trace is silent for {self.longest_gap_s:,.0f} s before line {self.longest_gap_line:,}; "
                "--max-gap cuts such silences."
            )
        return tuple(notes)


def read_trace(text: str, *, source: str) -> Trace:
    """The trace in ``text``: JSON lines, one JSON list, or CSV with a header.

    Raises:
        SpecError: with the line of each problem, the first ``MOST_PROBLEMS`` of them.
    """
    problems: list[Problem] = []
    kind: TraceFormat | None = None
    found: list[tuple[int, TraceLine]] = []
    left_out = 0
    for number, mapping in _mappings(text, source, problems):
        try:
            kind = kind or format_of(mapping)
            line = read_line(kind, mapping)
        except (LineError, KeyError) as error:
            problems.append(_problem(number, error))
            if len(problems) >= MOST_PROBLEMS:
                break
            continue
        if line.worth_sending:
            found.append((number, line))
        else:
            left_out += 1
    timed = sum(line.at_s is not None for _, line in found)
    if found and 0 < timed < len(found):
        number = next(number for number, line in found if (line.at_s is None) == (timed > len(found) / 2))
        problems.append(
            Problem(path=f"line {number}", seen="some lines with a time and some without", wanted="all or none")
        )
    if problems:
        count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
        raise SpecError(f"{source}: {count}", problems=tuple(problems), hint="correct the lines, or take them out")
    if not found or kind is None:
        raise SpecError(f"{source}: no request in it", hint="a trace has one request in each line")
    return _in_order(kind, found, left_out)


def _in_order(kind: TraceFormat, found: list[tuple[int, TraceLine]], left_out: int) -> Trace:
    reordered, longest_s, longest_line = 0, 0.0, 0
    if found[0][1].at_s is not None:
        times_s = [line.at_s or 0.0 for _, line in found]
        reordered = sum(later < earlier for earlier, later in itertools.pairwise(times_s))
        found.sort(key=lambda one: one[1].at_s or 0.0)
        for (_, before), (number, after) in itertools.pairwise(found):
            gap_s = (after.at_s or 0.0) - (before.at_s or 0.0)
            if gap_s > longest_s:
                longest_s, longest_line = gap_s, number
    return Trace(
        format=kind,
        lines=tuple(line for _, line in found),
        left_out=left_out,
        reordered=reordered,
        longest_gap_s=longest_s,
        longest_gap_line=longest_line,
    )


def _problem(number: int, error: LineError | KeyError) -> Problem:
    if isinstance(error, LineError):
        return Problem(path=f"line {number}: {error.place}", seen=error.seen, wanted=error.wanted)
    return Problem(path=f"line {number}", seen=f"no {error.args[0]}", wanted="the keys of the lines before")


def _mappings(text: str, source: str, problems: list[Problem]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, mapping) of each entry; what is not JSON becomes a problem."""
    start = text.lstrip()[:1]
    if start == "[":
        yield from _entries(text, source)
    elif start == "{":
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                problems.append(Problem(path=f"line {number}", seen=str(error), wanted="one JSON object in each line"))
                if len(problems) >= MOST_PROBLEMS:
                    return
                continue
            if not isinstance(value, dict):
                problems.append(Problem(path=f"line {number}", seen=type(value).__name__, wanted="a JSON object"))
                continue
            yield number, value
    elif start:
        rows = csv.DictReader(text.splitlines())
        for row in rows:
            yield rows.line_num, {key: value for key, value in row.items() if key is not None}


def _entries(text: str, source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise SpecError(f"{source}: not JSON: {error}", hint="a trace is JSON lines, a JSON list or CSV") from None
    for number, value in enumerate(values, start=1):
        if not isinstance(value, dict):
            raise SpecError(f"{source}: entry {number} is {type(value).__name__}, wanted a JSON object")
        yield number, value
