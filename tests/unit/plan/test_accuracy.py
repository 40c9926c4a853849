"""Predicted against measured, by the script that prints the table; the page in docs is what it writes."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType

import pytest

from roadworthy.plan.speed import CALIBRATIONS
from support.scripts import load_script


@pytest.fixture(scope="module")
def accuracy() -> ModuleType:
    return load_script("plan_accuracy")


def test_every_measured_start_up_is_within_the_limits(accuracy: ModuleType) -> None:
    """Weights 1 %, KV tokens 3 %, everything else half a GiB, for every row."""
    memory, _ = accuracy.all_checks()
    assert [check.cells() for check in memory if not check.within] == []
    assert len({check.case for check in memory if check.what == "KV tokens"}) == 21
    assert {check.case for check in memory if check.what == "context + collectives"} == {
        "llama8b-tp2", "kimi-linear-tp2", "qwen30b-tp2-ep", "v3-6layers-tp2", "qwen30b-dp2-ep",
        "v4-flash-tp2-ep-timed",
    }  # fmt: skip
    assert all(check.limit is not None for check in memory)


def test_times_are_within_the_limits_also_where_they_were_not_fitted(accuracy: ModuleType) -> None:
    _, times = accuracy.all_checks()
    spreads = accuracy.spreads(times)
    assert [spread.cells() for spread in spreads if not spread.within] == []
    assert [spread.rows for spread in spreads if "kept out" in spread.name] == [44, 35]
    assert [spread.rows for spread in spreads if not spread.judged] == [23, 14, 14]


def test_no_constant_of_two_gpus_was_set_on_more_than_one_of_three_rows(accuracy: ModuleType) -> None:
    """What was set on Llama's decodes at TP2 must hold for the other two, which are kept out whole."""
    _, times = accuracy.all_checks()
    decodes = [check for check in times if check.case.startswith(accuracy.HELD_OUT_ROWS) and check.what == "TPOT"]
    kept = [check for check in decodes if not check.case.startswith("v4-flash")]
    assert len(kept) == 16
    assert all(check.held_out for check in decodes)
    assert max(abs(check.error) for check in kept) < 0.10


def test_the_decode_of_v4_flash_lies_within_the_band_that_its_family_is_given(accuracy: ModuleType) -> None:
    """Its constants stand on public figures of V4-Pro on eight GPUs; the whole Flash on two was measured afterwards."""
    _, times = accuracy.all_checks()
    decodes = [check for check in times if check.case.startswith("v4-flash") and check.what == "TPOT"]
    assert len(decodes) == 3
    assert max(abs(check.error) for check in decodes) <= CALIBRATIONS["deepseek_v4"].error_band


def test_a_figure_outside_its_limit_is_told_and_the_exit_code_says_so(
    accuracy: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory, times = accuracy.all_checks()
    wrong = replace(memory[0], predicted=memory[0].measured * 1.02)
    monkeypatch.setattr(accuracy, "all_checks", lambda: ([wrong, *memory[1:]], times))
    monkeypatch.setattr(sys, "argv", ["plan_accuracy.py"])
    assert accuracy.main() == 1
    assert "OUTSIDE" in capsys.readouterr().out
    slow = [replace(check, predicted=check.measured * 1.4) if check.what == "TPOT" else check for check in times]
    monkeypatch.setattr(accuracy, "all_checks", lambda: (memory, slow))
    assert accuracy.main() == 1


def test_the_page_in_docs_is_what_the_script_writes(accuracy: ModuleType) -> None:
    assert accuracy.PAGE.read_text(encoding="utf-8") == accuracy.page(*accuracy.all_checks())
