"""Ids of requests: of their time, so that an index takes them in order, and else random."""

from __future__ import annotations

import re

from roadworthy.gateway.data.request import RequestIds


def test_an_id_is_32_hexadecimal_digits_and_no_two_are_alike() -> None:
    ids = RequestIds(1.8e9)
    found = [ids.next(at / 1000) for at in range(3000)]
    assert all(re.fullmatch(rb"[0-9a-f]{32}", one) for one in found)
    assert len({one[8:] for one in found}) == len(found), "what is random differs by itself"


def test_ids_of_later_moments_stand_behind_those_of_earlier_ones() -> None:
    ids = RequestIds(1.8e9)
    found = [ids.next(float(second)) for second in range(100)]
    assert found == sorted(found)


def test_ids_of_one_moment_tell_nothing_of_their_order() -> None:
    ids = RequestIds(0.0)
    found = [ids.next(1.0) for _ in range(50)]
    assert len({one[:8] for one in found}) == 1
    assert found != sorted(found)
