"""The turns of vLLM's core; `scripts/twin_fidelity.py` and its short form hold them to vLLM's own loop."""

from __future__ import annotations

import pytest

from roadworthy.plan.timing import POLL_S
from roadworthy.twin.core_loop import CoreLoop


def test_one_place_is_taken_by_the_batch_under_way() -> None:
    loop = CoreLoop(1)
    assert loop.free_places(loop.take_turn()) == 0
    assert not loop.result(0), "no turn was in vain"


def test_turns_in_vain_fill_the_queue_a_sleep_apart() -> None:
    loop = CoreLoop(4)
    first = loop.take_turn()
    assert loop.free_places(first) == 3
    assert loop.waits_from_s(first, 1.0) == pytest.approx(1.0 + 2 * POLL_S)


@pytest.mark.parametrize(
    ("after_s", "look_s"), [(0.0, 0.001), (0.0004, 0.001), (0.001, 0.001), (0.0015, 0.002), (0.0021, None), (1, None)]
)
def test_new_requests_are_seen_in_the_next_turn_until_the_queue_is_full(after_s: float, look_s: float | None) -> None:
    loop = CoreLoop(4)
    first = loop.take_turn()
    loop.waits_from_s(first, 0.0)
    assert loop.next_look_s(first, after_s) == (None if look_s is None else pytest.approx(look_s))


def test_turns_in_vain_take_the_places_of_batches() -> None:
    loop = CoreLoop(4)
    first = loop.take_turn()
    loop.waits_from_s(first, 0.0)
    assert loop.next_look_s(first, 0.002) == pytest.approx(0.002)
    loop.take_turn()
    assert loop.free_places(first) == 0, "a batch, two in vain and a batch"


def test_a_result_waited_for_in_vain_costs_a_sleep_and_frees_what_stood_before_the_next() -> None:
    loop = CoreLoop(3)
    first = loop.take_turn()
    loop.waits_from_s(first, 0.0)
    assert loop.result(first)
    again = loop.take_turn()
    assert loop.free_places(again) == 2


def test_asynchronous_scheduling_has_no_turn_to_look_in_once_it_found_nothing() -> None:
    loop = CoreLoop(2)
    last = loop.take_turn()
    assert loop.waits_from_s(last, 5.0) == 5.0
    assert loop.next_look_s(last, 5.0) is None
