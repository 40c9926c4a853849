"""Launch files as guides have them, whole: every false setting is found at its line, and no true one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from roadworthy.lint.fix import fix_text
from roadworthy.lint.run import lint_text

FILES = Path(__file__).resolve().parents[2] / "data" / "lint"
EXPECTED: dict[str, list[tuple[int, str]]] = {
    name: [(line, rule) for line, rule in found]
    for name, found in json.loads((FILES / "expected.json").read_text(encoding="utf-8")).items()
}


def test_every_file_has_its_expectation() -> None:
    assert {path.name for path in FILES.iterdir()} - {"expected.json"} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_false_is_found_and_nothing_else(name: str) -> None:
    text = (FILES / name).read_text(encoding="utf-8")
    assert [(problem.line, problem.rule) for problem in lint_text(text).problems] == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_mending_leaves_what_needs_a_person(name: str) -> None:
    text = (FILES / name).read_text(encoding="utf-8")
    before = {problem.rule for problem in lint_text(text).problems if not problem.fixable}
    fixed, done = fix_text(text)
    after = lint_text(fixed).problems
    assert not [problem for problem in after if problem.fixable]
    mended = {problem.rule for problem in done}
    assert {problem.rule for problem in after} <= before | {"ray.version", "k8s.probes"}, "mending made no new trouble"
    assert not mended & {problem.rule for problem in after} - before
    assert remarks(fixed) == remarks(text)


def remarks(text: str) -> list[str]:
    return [match.group() for match in re.finditer(r"(?:^|(?<=\s))#.*", text, re.MULTILINE)]


@pytest.mark.parametrize("name", [name for name, found in EXPECTED.items() if not found])
def test_a_clean_file_comes_back_as_it_was(name: str) -> None:
    text = (FILES / name).read_text(encoding="utf-8")
    assert fix_text(text) == (text, ())
