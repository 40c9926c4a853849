"""Pieces of work on several processes: order, errors, and nothing left behind."""

from __future__ import annotations

import math
import operator
import time
from multiprocessing import active_children
from types import MappingProxyType

import pytest

from roadworthy.adapters.processes import each


@pytest.mark.parametrize("processes", [1, 2])
def test_outcomes_come_in_the_order_of_the_pieces(processes: int) -> None:
    assert list(each(math.sqrt, [9, 4, 1], processes=processes)) == [3.0, 2.0, 1.0]


def test_read_only_mappings_travel() -> None:
    pieces = [MappingProxyType({"a": 1}), MappingProxyType({"a": 2})]
    assert list(each(operator.itemgetter("a"), pieces, processes=2)) == [1, 2]


def test_an_error_of_one_piece_ends_the_others_and_is_raised_here() -> None:
    started_s = time.monotonic()
    with pytest.raises(TypeError):
        list(each(time.sleep, ["not a time", 60], processes=2))
    assert time.monotonic() - started_s < 40, "the sixty seconds were not waited for"
    assert not active_children()


def test_whoever_stops_listening_leaves_no_process() -> None:
    outcomes = each(time.sleep, [0, 60, 60], processes=2)
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert not active_children()
