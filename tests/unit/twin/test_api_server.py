"""The API server before a core: what it adds when it has room, and what waits when it has none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roadworthy.twin.api_server import ApiServerTime, Served, served
from roadworthy.twin.engine import Engine
from support.twin import STEP_S, config, drain, ends, request

NOTHING = ApiServerTime(request_s=0, request_turns=1, message_s=0, token_s=0, chunk_s=0)


def crowd(count: int, tokens: int = 20) -> dict[str, Served]:
    """So many requests at once, through a server that takes nothing for them but 1 ms a write."""
    arrivals = [(0.0, request(str(number), 1, tokens)) for number in range(count)]
    return served(config(max_num_seqs=64), replace(NOTHING, chunk_s=1e-3), arrivals)


def test_a_server_that_takes_no_time_adds_none() -> None:
    arrivals = [(0.3 * number, request(str(number), 40, 5 + number)) for number in range(6)]
    core = Engine(config(), detail="tokens")
    outputs = []
    for at_s, one in arrivals:
        outputs += core.advance(at_s)
        core.add(one, at_s)
    outputs += drain(core)
    alone = ends(outputs)
    found = served(config(), NOTHING, arrivals)
    assert set(found) == set(alone)
    for name, one in found.items():
        assert (one.first_s, one.last_s) == (
            pytest.approx(alone[name].first_token_s),
            pytest.approx(alone[name].last_token_s),
        )


def test_one_request_pays_for_itself_and_for_each_of_its_tokens() -> None:
    time = ApiServerTime(request_s=0.004, request_turns=4, message_s=0.0002, token_s=0.0003, chunk_s=0.0005)
    one = served(config(), time, [(1.0, request("a", 10, 3))])["a"]
    assert one.chunks_s == pytest.approx([1.004 + (step + 1) * STEP_S + 0.001 for step in range(3)])
    assert one.core.queued_s == pytest.approx(1.004)


def test_streams_that_are_woken_again_before_they_write_write_once() -> None:
    assert len(crowd(1)["0"].chunks_s) == 20
    many = crowd(40)
    assert max(len(one.chunks_s) for one in many.values()) < 20
    assert all(one.last_s >= one.core.last_token_s for one in many.values())


def test_turns_let_the_streams_of_others_go_first() -> None:
    busy = [(0.0, request(str(number), 1, 200)) for number in range(30)]
    late = (1.005, request("late", 1, 2))  # while the streams write for three quarters of each step
    waits_s = []
    for turns in (1, 3, 6):
        time = replace(NOTHING, request_s=0.006, request_turns=turns, chunk_s=STEP_S / 40)
        waits_s.append(served(config(max_num_seqs=64), time, [*busy, late])["late"].core.queued_s - 1.005)
    assert waits_s == sorted(waits_s)
    assert waits_s[2] > waits_s[0] + 30 * STEP_S / 40


def test_two_servers_share_the_work_of_one_core() -> None:
    time = replace(NOTHING, token_s=STEP_S / 20)
    arrivals = [(0.0, request(str(number), 1, 50)) for number in range(24)]
    one, two = (served(config(max_num_seqs=64), time, arrivals, servers=servers) for servers in (1, 2))
    assert set(one) == set(two)
    assert max(late(answer) for answer in one.values()) > 5 * STEP_S
    assert max(late(answer) for answer in two.values()) < 2 * STEP_S


def late(answer: Served) -> float:
    return answer.last_s - answer.core.last_token_s


def test_tokens_wait_when_there_are_more_than_the_server_reads() -> None:
    time = replace(NOTHING, token_s=STEP_S / 20)
    found = served(config(max_num_seqs=64), time, [(0.0, request(str(number), 1, 50)) for number in range(40)])
    assert min(late(one) for one in found.values()) > 40 * STEP_S  # twice as many as it can read, for 50 steps


def test_arrivals_are_in_order() -> None:
    with pytest.raises(ValueError, match="a later one comes sooner"):
        served(config(), NOTHING, [(1.0, request("a", 1, 1)), (0.5, request("b", 1, 1))])


@pytest.mark.parametrize(
    ("change", "said"), [({"token_s": -1e-6}, "token_s -1e-06 is negative"), ({"request_turns": 0}, "is not positive")]
)
def test_times_that_cannot_be(change: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(NOTHING, **change)  # type: ignore[arg-type]
