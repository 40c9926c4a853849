"""Scores: what counts as right, and what a heat map shows of it."""

from __future__ import annotations

import pytest

from roadworthy.bench.probes.cases import ProbeCase, ProbeKind
from roadworthy.bench.probes.report import ProbeView, probe_page, render_probes, verdict_of
from roadworthy.bench.probes.score import ProbeAnswer, report_of, score_of


def case(
    *right: str, wrong: tuple[str, ...] = (), kind: ProbeKind = "needle", depth: float = 0.5, length: int = 2048
) -> ProbeCase:
    return ProbeCase(
        kind=kind, length_tokens=length, depth_ratio=depth, repeat=0, text="", question="", right=right, wrong=wrong
    )


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("4821", 1.0),
        ("The number is 4821.", 1.0),
        ("**4,821**", 1.0),
        ("4 821", 1.0),
        ("48210", 0.0),
        ("I do not know.", 0.0),
        ("", 0.0),
        ("<think>maybe 4821</think> I cannot tell", 0.0),
    ],
)
def test_a_number_is_right_as_a_whole_number(reply: str, score: float) -> None:
    assert score_of(case("4821"), reply) == score


def test_of_several_numbers_the_share_counts() -> None:
    assert score_of(case("1111", "2222", "3333", "4444", kind="many"), "1111, 2222 and 9999") == 0.5


@pytest.mark.parametrize(
    ("reply", "score"),
    [("2222", 1.0), ("1111", 0.0), ("It was 1111, now it is 2222.", 1.0), ("It is 2222? No, 1111.", 0.0)],
)
def test_where_a_number_changed_the_last_one_said_counts(reply: str, score: float) -> None:
    assert score_of(case("2222", wrong=("1111",), kind="overwrite"), reply) == score


def answers(scores: dict[tuple[float, int], list[float | None]], kind: ProbeKind = "needle") -> list[ProbeAnswer]:
    return [
        ProbeAnswer(
            case=case("1", kind=kind, depth=depth, length=length),
            reply="",
            score=score,
            error="" if score is not None else "timed out",
        )
        for (depth, length), found in scores.items()
        for score in found
    ]


HOLE = answers({
    (0.0, 2048): [1.0, 1.0], (0.5, 2048): [1.0, 1.0], (1.0, 2048): [1.0, 1.0],
    (0.0, 8192): [1.0, 1.0], (0.5, 8192): [0.0, 1.0], (1.0, 8192): [1.0, 1.0],
})  # fmt: skip


def test_each_length_and_depth_has_its_own_score() -> None:
    (report,) = report_of(HOLE)
    assert report.score == pytest.approx(11 / 12)
    assert report.by_length() == ((2048, 1.0), (8192, pytest.approx(5 / 6)))
    worst = report.worst()
    assert worst is not None
    assert (worst.length_tokens, worst.depth_ratio, worst.score) == (8192, 0.5, 0.5)


def test_one_hole_is_a_miss_and_is_named() -> None:
    verdict, reason = verdict_of(report_of(HOLE), 0.9, partial=False)
    assert verdict == "missed"
    assert "needle at 8K, depth 50% with 50%" in reason


def test_every_place_at_the_floor_is_a_pass() -> None:
    good = answers({(0.0, 2048): [1.0], (1.0, 2048): [1.0]})
    assert verdict_of(report_of(good), 0.9, partial=False)[0] == "met"
    assert verdict_of(report_of(good), 0.9, partial=True)[0] == "undecided"


def test_what_was_not_answered_is_no_pass() -> None:
    some = answers({(0.0, 2048): [1.0, None], (1.0, 2048): [1.0]})
    assert verdict_of(report_of(some), 0.9, partial=False) == ("undecided", "1 questions were not answered")
    none = answers({(0.0, 2048): [None]})
    assert verdict_of(report_of(none), 0.9, partial=False)[0] == "undecided"
    assert verdict_of((), 0.9, partial=False)[0] == "undecided"


def view() -> ProbeView:
    kinds = report_of([*HOLE, *answers({(0.5, 2048): [1.0], (0.5, 8192): [None]}, kind="many")])
    verdict, reason = verdict_of(kinds, 0.9, partial=False)
    return ProbeView(title="<m> at x", kinds=kinds, verdict=verdict, reason=reason, floor_ratio=0.9, notes=("a note",))


def test_the_text_is_a_table_of_depth_by_length() -> None:
    text = render_probes(view())
    assert "   depth      2K      8K" in text
    assert "     50%    100%     50%" in text
    assert "     all    100%       –" in text


def test_the_page_has_a_heat_map_for_each_kind_with_its_numbers_and_escapes_the_title() -> None:
    page = probe_page(view())
    assert page.count('class="cell"') == 8
    assert page.count(">50%</text>") >= 2, "the hole, and the depth's name"
    assert "<m>" not in page
    assert "<script" not in page
