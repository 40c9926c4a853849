"""Text in, problems out: the one entry point of linting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.lint.context import Context, LintOptions
from roadworthy.lint.flag_book import VERSIONS, flag_book
from roadworthy.lint.reading import Reading
from roadworthy.lint.rules import judge_all
from roadworthy.lint.rules.judge import Judge
from roadworthy.lint.sniff import read_piece
from roadworthy.lint.text import LineTable, Piece, without_huge_lines
from roadworthy.lint.values import FileReport, Unread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.lint.values import LintProblem


def lint_text(text: str, *, file: str = "-", options: LintOptions | None = None) -> FileReport:
    """Every problem of a file, in the order of its lines.

    Raises:
        Unsupported: the engine version asked for is not in the catalog.
    """
    options = options or LintOptions()
    shown, huge = without_huge_lines(text)
    book = flag_book(options.engine_version or VERSIONS[0])
    reading = Reading(file=file, text=shown, lines=LineTable(shown), arity=book.arity)
    reading.unread.extend(
        Unread(file=file, line=line, what="a line too long to hold settings; left out") for line in huge
    )
    read_piece(reading, Piece(shown))
    context = Context(reading, options)
    context.adopt()
    judge = Judge(reading, context)
    judge_all(judge)
    return FileReport(file=file, kind=reading.kind, problems=_ordered(judge.problems), unread=tuple(reading.unread))


def _ordered(problems: Sequence[LintProblem]) -> tuple[LintProblem, ...]:
    return tuple(sorted(problems, key=lambda problem: (problem.line, problem.offset, problem.rule)))
