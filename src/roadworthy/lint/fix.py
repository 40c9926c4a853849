"""A file with its fixable problems mended, everything else as it was."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.lint.run import lint_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.lint.context import LintOptions
    from roadworthy.lint.values import Edit, LintProblem

_HUSK = re.compile(r"^[ \t]*(?:ENV|export)[ \t]*(?:\r\n|\r|\n|\Z)", re.MULTILINE)
"""What is left of a statement all of whose variables went; alone it means something else, or nothing."""

MAX_ROUNDS = 6
"""Mending one thing may show another (a pair of options); this many rounds are made at most."""


def apply_edits(text: str, problems: Iterable[LintProblem]) -> str:
    """``text`` after the edits of every problem whose edits do not cut into those of another."""
    before = text
    taken: list[Edit] = []
    for problem in problems:
        if all(_apart(edit, other) for edit in problem.edits for other in taken):
            taken.extend(edit for edit in problem.edits if edit not in taken)
    for edit in sorted(taken, key=lambda one: (one.start, one.end), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text if _HUSK.search(before) else _HUSK.sub("", text)


def _apart(edit: Edit, other: Edit) -> bool:
    if edit == other:
        return True
    if edit.start == edit.end or other.start == other.end:
        return edit.start != other.start
    return edit.end <= other.start or other.end <= edit.start


def fix_text(text: str, *, file: str = "-", options: LintOptions | None = None) -> tuple[str, tuple[LintProblem, ...]]:
    """The mended text, and what was mended. Text without a fixable problem comes back as the same string."""
    done: list[LintProblem] = []
    for _ in range(MAX_ROUNDS):
        report = lint_text(text, file=file, options=options)
        fixable = [problem for problem in report.problems if problem.fixable]
        if not fixable:
            break
        fixed = apply_edits(text, fixable)
        if fixed == text:
            break
        text = fixed
        done.extend(fixable)
    return text, tuple(done)
