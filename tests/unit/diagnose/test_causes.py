"""Causes are complete: a confirming step, a remedy, a benign counter-example that raises no alarm, clues that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roadworthy.diagnose.causes import CAUSES
from roadworthy.diagnose.examine import examine
from roadworthy.diagnose.judge import FINDING_CONFIDENCE
from roadworthy.diagnose.pages import page_of
from roadworthy.diagnose.signals import SIGNALS

if TYPE_CHECKING:
    from roadworthy.diagnose.cause import Cause

SOURCE = Path(__file__).parents[3] / "src" / "roadworthy" / "diagnose"
WRITTEN = "\n".join(
    path.read_text() for folder in ("signals", "probes", "joins") for path in (SOURCE / folder).glob("*.py")
)
BUILT = {
    "counter.",
    "k8s.exit-",
    "grew.",
    "oom.",
    "xid.",
    "clocks.",
    "package.",
    "ray.total-",
    "cpu.",
    "qos.trust-",
    "k8s.gpus-",
    "moe.",
}
"""Beginnings of clue names that are put together while reading."""

every_cause = pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.code)


@every_cause
def test_a_cause_has_a_confirming_step_a_remedy_a_capture_and_a_counter_example(cause: Cause) -> None:
    assert len(cause.confirm) > 20
    assert len(cause.remedy) > 20
    assert cause.capture
    assert cause.benign
    assert cause.tells.endswith(".")


@every_cause
def test_the_counter_example_raises_no_alarm(cause: Cause) -> None:
    _, judged = examine({"engine.log": cause.benign + "\n"})
    assert cause.code not in [one.code for one in judged.findings]


@every_cause
def test_every_clue_that_a_cause_names_is_made_somewhere(cause: Cause) -> None:
    names = [one.clue for one in (*cause.signs, *cause.against)] + [*cause.needs, *cause.explains]
    known = {one.name for one in SIGNALS}
    for name in names:
        bare = name.removesuffix("*").rstrip("-.")
        assert (
            name in known
            or any(name.startswith(start) for start in BUILT)
            or re.search(rf'"{re.escape(bare)}', WRITTEN)
        ), f"{cause.code} names {name}, which nothing gives"


@every_cause
def test_what_beats_is_known_and_no_two_causes_beat_each_other(cause: Cause) -> None:
    known = {one.code: one for one in CAUSES}
    for code in cause.beats:
        assert cause.code not in known[code].beats


@every_cause
def test_some_clues_alone_or_together_make_a_finding(cause: Cause) -> None:
    left_open = 1.0
    for one in cause.signs:
        left_open *= 1 - one.weight
    assert 1 - left_open >= FINDING_CONFIDENCE


@every_cause
def test_the_page_says_how_to_confirm_and_mend(cause: Cause) -> None:
    page = page_of(cause)
    assert page.startswith(f"# {cause.code}\n")
    assert cause.confirm in page
    assert cause.remedy in page
