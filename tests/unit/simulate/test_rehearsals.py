"""The rehearsals of the docs, in short: what they show must hold whenever they are played."""

from __future__ import annotations

from types import ModuleType

import pytest

from support.scripts import load_script

REST = "SLA misses but for bulk"


@pytest.fixture(scope="module")
def seven() -> ModuleType:
    return load_script("seven_tenants")


@pytest.fixture
def rehearsals() -> ModuleType:
    return load_script("rehearsals")


@pytest.fixture
def fairness() -> ModuleType:
    return load_script("fairness")


def cells(rows: list[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: values for name, *values in rows}  # type: ignore[misc]


def count(cell: str) -> int:
    return int(cell.split(" of ")[0].replace(",", ""))


def test_quotas_serve_more_than_a_split_and_miss_less_than_no_quotas(seven: ModuleType) -> None:
    outcomes = seven.all_outcomes(85.0, 1)
    split, free, quotas = outcomes
    assert quotas.tokens_per_s > 1.1 * split.tokens_per_s
    (misses,) = [[count(cell) for cell in row[1:]] for row in seven.table(outcomes) if row[0] == REST]
    assert misses[2] < misses[0] / 2
    assert misses[2] < misses[1] / 2
    for one in outcomes:
        assert one.requests == split.requests, "every way to share gets the same requests"
    assert free.requests["bulk"] > 1000


def test_engines_for_long_prompts_keep_a_storm_from_the_chat(
    rehearsals: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("STORM_FROM_S", 5.0), ("STORM_S", 30.0), ("STORM_ALL_S", 35.0)):
        monkeypatch.setattr(rehearsals, name, value)
    rows = cells(rehearsals.storm())
    nothing, _, _, engines, both = (count(cell) for cell in rows["chat: SLA misses"])
    assert nothing > 50
    assert engines == both == 0
    refused = [count(cell) for cell in rows["documents: refused by a rule"]]
    assert refused[0] == 0 < refused[1] == refused[4]


def test_an_engine_that_dies_costs_what_it_had_begun(rehearsals: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LOST_AT_S", 30.0), ("DOWN_S", 20.0), ("OUTAGE_ALL_S", 100.0), ("RATES_PER_S", (20.0,))):
        monkeypatch.setattr(rehearsals, name, value)
    rows = cells(rehearsals.outage())
    assert 0 < int(rows["requests lost"][0]) < 40
    assert count(rows["SLA misses while it was gone"][0]) <= 2


def test_the_balancer_gives_back_what_hot_experts_cost(rehearsals: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsals, "EXPERTS_S", 80.0)
    even, skewed, skewed_eplb, hot, hot_eplb = (
        float(cell.removesuffix(" ms").replace(",", "")) for cell in cells(rehearsals.experts())["TPOT P50"]
    )
    assert even < skewed < hot
    assert skewed_eplb < skewed
    assert hot_eplb < even + (hot - even) / 2


def test_backlogged_tenants_share_by_weight(fairness: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "FROM_S", 10.0)
    monkeypatch.setattr(fairness, "MINUTE_S", 30.0)
    tokens, work = fairness.shares(3.0, fairness.CHAT, seed=0)
    assert tokens == pytest.approx(3.0, rel=0.07)
    assert work == pytest.approx(3.0, rel=0.07)


def test_a_table_goes_between_its_own_marks_and_nowhere_else(
    rehearsals: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    page = tmp_path / "page.md"  # type: ignore[operator]
    page.write_text("a\n<!-- one -->\n<!-- end -->\nb\n<!-- two -->\nold\n<!-- end -->\n")
    monkeypatch.setattr(rehearsals, "PAGE", page)
    rehearsals.write_table("one", [("x", "y"), ("1", "2")])
    rehearsals.write_table("two", [("p",), ("q",)])
    rehearsals.write_table("one", [("x", "y"), ("3", "4")])
    assert page.read_text() == (
        "a\n<!-- one -->\n| x | y |\n| --- | ---: |\n| 3 | 4 |\n<!-- end -->\nb\n<!-- two -->\n| p |\n| --- |\n| q |\n"
        "<!-- end -->\n"
    )
    with pytest.raises(SystemExit, match="no marks of three"):
        rehearsals.write_table("three", [("x",)])
