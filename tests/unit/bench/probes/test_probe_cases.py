"""Probe texts: the facts are in them, at their depth, and nowhere else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.bench.probes.cases import KINDS, MANY, ProbeCase, ProbeKind, build_case, grid


def words(text: str) -> int:
    return len(text.split())


def case(kind: ProbeKind, *, length: int = 2000, depth: float = 0.5, repeat: int = 0, seed: int = 1) -> ProbeCase:
    return build_case(kind, length_tokens=length, depth_ratio=depth, repeat=repeat, seed=seed, tokens_of=words)


kinds = st.sampled_from(KINDS)
depths = st.floats(0, 1)


@given(kinds, depths, st.integers(300, 5000), st.integers(0, 5))
def test_a_text_is_as_long_as_planned_and_holds_what_is_asked(
    kind: ProbeKind, depth: float, length: int, seed: int
) -> None:
    made = case(kind, depth=depth, length=length, seed=seed)
    assert words(made.text) + words(made.question) == pytest.approx(length, abs=25)
    for number in (*made.right, *made.wrong):
        assert made.text.count(number) == 1
    assert not any(number in made.question for number in made.right)


@given(kinds, depths)
def test_the_filler_holds_no_number_of_its_own(kind: ProbeKind, depth: float) -> None:
    made = case(kind, depth=depth)
    assert set(re.findall(r"\d+", made.text)) == {*made.right, *made.wrong}


@given(st.sampled_from(["needle", "overwrite", "alias"]), depths)
def test_the_fact_stands_at_its_depth(kind: ProbeKind, depth: float) -> None:
    made = case(kind, depth=depth)
    assert made.text.index(made.right[0]) / len(made.text) == pytest.approx(depth, abs=0.05)


@given(st.floats(0.1, 1))
def test_what_was_overwritten_comes_first(depth: float) -> None:
    made = case("overwrite", depth=depth)
    assert made.text.index(made.wrong[0]) < made.text.index(made.right[0])


def test_many_facts_are_spread_over_the_whole_text() -> None:
    made = case("many")
    places = sorted(made.text.index(number) / len(made.text) for number in made.right)
    assert len(places) == MANY
    assert places == pytest.approx([0.125, 0.375, 0.625, 0.875], abs=0.05)


def test_an_alias_is_asked_by_a_name_that_is_not_near_the_fact() -> None:
    made = case("alias", depth=0.1, length=4000)
    name = made.question.rpartition("called ")[2].partition("?")[0]
    fact = made.text.index(made.right[0])
    assert name not in made.text[max(0, fact - 200) : fact + 200]
    assert made.text.count(name) == 1


def test_the_same_arguments_give_the_same_text_and_others_another() -> None:
    assert case("needle") == case("needle")
    for other in (case("needle", repeat=1), case("needle", seed=2), case("needle", depth=0.25)):
        assert other.text != case("needle").text


def test_depths_run_from_the_beginning_to_the_end() -> None:
    assert grid(5) == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert grid(1) == (0.5,)
