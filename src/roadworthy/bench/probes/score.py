"""How many answers were right, by depth and length.

An answer is right when it holds every number asked for; where an outdated or a false number is in it too, the last
number said counts. Numbers are looked for as whole numbers with any separators taken out, so ``1,234`` is 1234 and
12345 is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roadworthy.advise.intervals import Interval, share_interval
from roadworthy.bench.probes.cases import KINDS, ProbeCase, ProbeKind

_NUMBER = re.compile(r"\d+")
_SEPARATOR = re.compile(r"(?<=\d)[,.'\u2019\u00a0\u202f ](?=\d{3}(?!\d))")
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """What came back. ``score`` is the share of what was asked that is right; None when the request failed."""

    case: ProbeCase
    reply: str
    score: float | None
    prompt_tokens: int | None = None
    ttft_s: float | None = None
    error: str = ""


def score_of(case: ProbeCase, reply: str) -> float:
    """Share of the right numbers that ``reply`` gives; 0 when it settles on a wrong one."""
    said = _NUMBER.findall(_SEPARATOR.sub("", _THOUGHT.sub(" ", reply)))
    found = sum(number in said for number in case.right)
    if case.wrong and said and any(number in said for number in case.wrong):
        relevant = [number for number in said if number in case.right or number in case.wrong]
        return float(relevant[-1] in case.right)
    return found / len(case.right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Answers of one kind at one length and depth. ``score`` None: none was answered at all."""

    length_tokens: int
    depth_ratio: float
    asked: int
    failed: int
    score: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KindReport:
    """One kind over all lengths and depths. ``interval`` bounds the share of answers that are right altogether."""

    kind: ProbeKind
    asked: int
    failed: int
    score: float | None
    interval: Interval
    cells: tuple[Cell, ...]

    @property
    def lengths_tokens(self) -> tuple[int, ...]:
        return tuple(sorted({cell.length_tokens for cell in self.cells}))

    @property
    def depths(self) -> tuple[float, ...]:
        return tuple(sorted({cell.depth_ratio for cell in self.cells}))

    def by_length(self) -> tuple[tuple[int, float | None], ...]:
        """Score at each length, over all depths."""
        return tuple(
            (length, _mean([cell.score for cell in self.cells if cell.length_tokens == length]))
            for length in self.lengths_tokens
        )

    def worst(self) -> Cell | None:
        """The cell with the lowest score, the longest of them; None when nothing was answered."""
        scored = [cell for cell in self.cells if cell.score is not None]
        return min(scored, key=lambda cell: (cell.score, -cell.length_tokens), default=None)


def report_of(answers: Iterable[ProbeAnswer]) -> tuple[KindReport, ...]:
    """One report a kind that was asked."""
    everything = tuple(answers)
    return tuple(
        _kind(kind, [one for one in everything if one.case.kind == kind])
        for kind in KINDS
        if any(one.case.kind == kind for one in everything)
    )


def _kind(kind: ProbeKind, answers: Sequence[ProbeAnswer]) -> KindReport:
    places = sorted({(one.case.length_tokens, one.case.depth_ratio) for one in answers})
    scored = [one.score for one in answers if one.score is not None]
    return KindReport(
        kind=kind,
        asked=len(answers),
        failed=len(answers) - len(scored),
        score=_mean(scored),
        interval=share_interval(sum(score == 1.0 for score in scored), len(scored)),
        cells=tuple(
            _cell(
                length,
                depth,
                [one for one in answers if (one.case.length_tokens, one.case.depth_ratio) == (length, depth)],
            )
            for length, depth in places
        ),
    )


def _cell(length_tokens: int, depth_ratio: float, answers: Sequence[ProbeAnswer]) -> Cell:
    scored = [one.score for one in answers if one.score is not None]
    return Cell(
        length_tokens=length_tokens,
        depth_ratio=depth_ratio,
        asked=len(answers),
        failed=len(answers) - len(scored),
        score=_mean(scored),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None
