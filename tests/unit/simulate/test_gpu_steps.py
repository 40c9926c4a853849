"""Single steps on a GPU, by the script that prints the tables; the page in docs is what it writes."""

from __future__ import annotations

import json
from types import ModuleType

import pytest

from support.scripts import load_script


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("gpu_steps", "descend", "plan_accuracy", "twin_against_gpu")


def test_the_page_is_what_the_script_finds_in_the_rows(script: ModuleType) -> None:
    data = json.loads(script.DATA.read_text(encoding="utf-8"))
    assert script.page(data) == script.PAGE.read_text(encoding="utf-8")
    assert len(script.steps_of(data)) > 9000


def test_full_steps_follow_the_clock_and_decoding_alone_does_not(script: ModuleType) -> None:
    steps = [
        step for step in script.steps_of(json.loads(script.DATA.read_text(encoding="utf-8"))) if step.waited_ms > 2
    ]
    full, _ = script.exponent([one for one in steps if one.decoding >= 384 and one.prompt_tokens])
    few, _ = script.exponent([one for one in steps if 64 <= one.decoding < 256 and not one.prompt_tokens])
    assert full < -0.5
    assert abs(few) < 0.1


def test_an_exponent_is_found_again(script: ModuleType) -> None:
    steps = [
        script.Step(
            run="r", prompt_tokens=0, decoding=1, period_ms=1, waited_ms=3, clock_mhz=mhz, model_ms=10,
            gpu_ms=11 * (mhz / script.HIGHEST_MHZ) ** -0.7,
        )
        for mhz in (1500, 1700, 1900)
    ]  # fmt: skip
    assert script.exponent(steps) == pytest.approx((-0.7, 1.1))
