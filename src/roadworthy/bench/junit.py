"""JUnit XML of a verdict, for pipelines: one test for each gate on the way and each objective.

What was missed is a failure. What the run could not tell is an error and not a skipped test, since pipelines take a
skipped test for a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from roadworthy.bench.sections import objective_value

if TYPE_CHECKING:
    from roadworthy.advise.verdict import SlaReport


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    name: str
    passed: bool | None
    text: str


def junit_xml(title: str, report: SlaReport, *, facts: Sequence[tuple[str, str]] = ()) -> str:
    """The report as one test suite called ``title``; ``facts`` become its properties."""
    cases = _cases(report)
    failures = sum(case.passed is False for case in cases)
    errors = sum(case.passed is None for case in cases)
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{errors}" skipped="0" time="{report.duration_s:.3f}"'
    properties = "".join(
        f"    <property name={_attribute(name)} value={_attribute(value)}/>\n" for name, value in facts
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="roadworthy" {counts}>\n'
        f" <testsuite name={_attribute(title)} {counts}>\n"
        + (f"  <properties>\n{properties}  </properties>\n" if properties else "")
        + "".join(_testcase(title, case) for case in cases)
        + " </testsuite>\n</testsuites>\n"
    )


def _cases(report: SlaReport) -> list[_Case]:
    """Gates by their name, but where an objective of that name says more."""
    objectives = {item.name: item for item in report.objectives}
    cases = [
        _Case(name=gate.name, passed=gate.passed, text=gate.why) for gate in report.gates if gate.name not in objectives
    ]
    cases += [
        _Case(
            name=item.name,
            passed=item.met,
            text=f"limit {objective_value(item, item.limit)}, measured {objective_value(item, item.measured)}: "
            f"{item.why}",
        )
        for item in report.objectives
    ]
    return cases


def _testcase(suite: str, case: _Case) -> str:
    head = f"  <testcase classname={_attribute(suite)} name={_attribute(case.name)}"
    if case.passed:
        return f"{head}>\n   <system-out>{_text(case.text)}</system-out>\n  </testcase>\n"
    kind, word = ("failure", "missed") if case.passed is False else ("error", "undecided")
    message = _attribute(f"{word}: {case.text}")
    return f'{head}>\n   <{kind} type="{word}" message={message}>{_text(case.text)}</{kind}>\n  </testcase>\n'


def _attribute(text: str) -> str:
    return quoteattr(_clean(text))


def _text(text: str) -> str:
    return escape(_clean(text))


def _clean(text: str) -> str:
    """Without the characters that XML 1.0 has no way to write; a target's words may hold any."""
    return "".join(char if char in "\t\n" or " " <= char < "\ud800" or "\ue000" <= char <= "\ufffd" or char > "\uffff"
                   else "\ufffd" for char in text)  # fmt: skip
