"""Every row of the truth table: reported in each file form that can hold it, silent on what is true, or explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roadworthy.catalog.truth import truth_rows
from roadworthy.lint.fix import fix_text
from roadworthy.lint.run import lint_text
from support.lint_rows import ROWS
from support.lint_shapes import Shaped, flag_shapes, variable_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.lint_rows import Row

SOME = {
    "one line",
    "continued lines",
    "pod args",
    "compose string",
    "export",
    "pod env",
    "compose mapping",
    "environment file",
}
"""Forms for the second and further spellings of a setting; the first goes through all."""
ACCUSING = {"never_existed", "removed", "dangerous"}


def false_files(row: Row) -> Iterator[Shaped]:
    for number, flag in enumerate(row.flags):
        shapes = flag_shapes(flag, model=row.model)
        yield from (shape for shape in shapes if not number or shape.form in SOME)
    for number, (name, value) in enumerate(row.variables):
        yield from (shape for shape in variable_shapes(name, value) if not number or shape.form in SOME)
    for number, text in enumerate(row.false):
        before, mark, after = text.partition("@@")
        assert mark, f"example {number} has no mark: {text!r}"
        yield Shaped(form=f"example {number}", text=before + after, line=before.count("\n") + 1)


def test_every_row_of_the_table_is_treated() -> None:
    assert list(truth_rows()) == sorted(ROWS, key=list(truth_rows()).index)


@pytest.mark.parametrize("rule", ROWS)
def test_a_row_is_a_rule_or_a_silence_or_says_why_not(rule: str) -> None:
    row = ROWS[rule]
    false = list(false_files(row))
    if row.docs:
        assert not false
        assert not row.silent
        return
    assert row.silent, "near misses keep a rule honest"
    if truth_rows()[rule].status != "real":
        assert false
        assert len({shaped.form for shaped in false}) >= 1


@pytest.mark.parametrize("rule", [rule for rule, row in ROWS.items() if not row.docs])
def test_a_false_setting_is_reported_at_its_line_in_every_form(rule: str) -> None:
    for shaped in false_files(ROWS[rule]):
        found = [problem for problem in lint_text(shaped.text).problems if problem.rule == rule]
        assert shaped.line in {problem.line for problem in found}, f"{shaped.form}: {shaped.text}"
        for problem in found:
            assert problem.setting
            assert problem.reason
            assert not (truth_rows()[rule].status == "real" and problem.status in ACCUSING), shaped.form


@pytest.mark.parametrize("rule", [rule for rule, row in ROWS.items() if row.silent])
def test_the_rule_stays_silent_on_what_is_true(rule: str) -> None:
    for text in ROWS[rule].silent:
        report = lint_text(text)
        assert not [problem for problem in report.problems if problem.rule == rule], text
        if truth_rows()[rule].status == "real":
            assert not [problem for problem in report.problems if problem.status in ACCUSING], text


@pytest.mark.parametrize("rule", [rule for rule, row in ROWS.items() if row.flags or row.variables or row.false])
def test_a_mended_file_has_nothing_left_to_mend(rule: str) -> None:
    for shaped in false_files(ROWS[rule]):
        fixed, done = fix_text(shaped.text)
        left = lint_text(fixed)
        assert not [problem for problem in left.problems if problem.fixable], f"{shaped.form}: {fixed}"
        assert bool(done) == (fixed != shaped.text)


@pytest.mark.parametrize("rule", [rule for rule in ROWS if truth_rows()[rule].kind == "command_line"])
def test_the_tables_own_lines_are_silent_whole(rule: str) -> None:
    if truth_rows()[rule].status != "real":
        return
    for text in ROWS[rule].silent:
        assert lint_text(text).problems == ()
