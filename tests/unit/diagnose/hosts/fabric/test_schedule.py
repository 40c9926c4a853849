"""Rounds of disjoint pairs, by law."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from roadworthy.diagnose.hosts.fabric.schedule import rounds


@given(st.integers(0, 40))
def test_every_pair_meets_once_and_nobody_is_in_two_pairs_of_a_round(number: int) -> None:
    found = rounds(list(range(number)))
    assert sorted(tuple(sorted(pair)) for one in found for pair in one) == sorted(combinations(range(number), 2))
    for one in found:
        members = [item for pair in one for item in pair]
        assert len(members) == len(set(members))


@given(st.integers(1, 20))
def test_an_even_number_takes_one_round_less_than_it_has_hosts(half: int) -> None:
    assert len(rounds(list(range(2 * half)))) == 2 * half - 1
    assert len(rounds(list(range(2 * half + 1)))) == 2 * half + 1


@given(st.integers(2, 24))
def test_everyone_comes_first_about_as_often(number: int) -> None:
    firsts = [pair[0] for one in rounds(list(range(number))) for pair in one]
    counts = [firsts.count(item) for item in range(number)]
    assert max(counts) - min(counts) <= 2
