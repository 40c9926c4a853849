"""Playbooks are read with every problem at once; the risk table says the worst that was borne out."""

from __future__ import annotations

import itertools

import pytest

from roadworthy.core.errors import SpecError
from roadworthy.longdoc.cite import Citation
from roadworthy.longdoc.playbook import Judgement, Playbook, Verdict, parse_playbook, risk_table

CAP = {"id": "cap", "topic": "Liability", "wanted": "capped", "severity": "critical"}
LAW = {"id": "law", "topic": "Governing law", "wanted": "England", "severity": "low", "required": False}
CITED = Citation(document="c", section="1", path=(), page=None, quote="words", start=0, end=5, unit=1)


def book() -> Playbook:
    return parse_playbook({"name": "ours", "checks": [CAP, LAW]}, "pb.yaml")


def judged(check: str, verdict: Verdict, *, cited: bool = True) -> Judgement:
    return Judgement(check=check, verdict=verdict, why="", section="1", citations=(CITED,) if cited else ())


def status(*judgements: Judgement, all_read: bool = True) -> dict[str, tuple[str, int]]:
    rows = risk_table(book(), judgements, all_read=all_read)
    return {row.check.id: (row.status, row.risk) for row in rows}


def test_a_playbook_is_a_list_of_checks_with_or_without_a_name() -> None:
    assert book().name == "ours"
    assert parse_playbook([CAP], "pb.yaml").name == "pb.yaml"
    assert book().digest != parse_playbook([CAP | {"wanted": "uncapped"}, LAW], "pb.yaml").digest


@pytest.mark.parametrize("data", [None, 5, "text", [], {}, {"checks": {}}, {"checks": []}, [CAP] * 201])
def test_what_holds_no_checks_is_refused(data: object) -> None:
    with pytest.raises(SpecError):
        parse_playbook(data, "pb.yaml")


def test_every_problem_is_told_at_once_with_its_place() -> None:
    entries = [
        "cap", {"id": "a b", "topic": "", "wanted": 5}, CAP | {"severity": ["high"]}, CAP | {"extra": 1},
        LAW | {"required": "no"}, CAP, CAP,
    ]  # fmt: skip
    with pytest.raises(SpecError) as told:
        parse_playbook(entries, "pb.yaml")
    assert [one.path for one in told.value.problems] == [
        "checks[0]", "checks[1].id", "checks[1].topic", "checks[1].wanted", "checks[2].severity", "checks[3].extra",
        "checks[4].required", "checks[1].id",
    ]  # fmt: skip


def test_the_worst_that_is_borne_out_decides() -> None:
    order: list[Verdict] = ["deviates", "unclear", "meets"]
    for some in itertools.chain.from_iterable(itertools.permutations(order, size) for size in (1, 2, 3)):
        worst = min(some, key=order.index)
        assert status(*(judged("cap", one) for one in some))["cap"][0] == worst


def test_a_verdict_whose_words_do_not_stand_there_decides_nothing() -> None:
    assert status(judged("cap", "meets", cited=False))["cap"] == ("unverified", 8)
    assert status(judged("cap", "deviates", cited=False), judged("cap", "meets"))["cap"] == ("meets", 0)


def test_silence_is_a_risk_where_the_playbook_requires_a_clause_and_everything_was_read() -> None:
    assert status() == {"cap": ("missing", 12), "law": ("absent", 0)}
    assert status(judged("cap", "meets"), all_read=False) == {"cap": ("unread", 8), "law": ("unread", 2)}
    assert status(judged("cap", "deviates"), all_read=False)["cap"] == ("deviates", 12)


def test_the_greatest_risk_is_first() -> None:
    rows = risk_table(book(), [judged("law", "deviates"), judged("cap", "meets")], all_read=True)
    assert [row.check.id for row in rows] == ["law", "cap"]
