"""Engines' KV events as they come over the wire, in both of vLLM's forms."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import zmq

from roadworthy.core.errors import Unsupported
from roadworthy.gateway.kv_events import (
    MESSAGES_A_TURN,
    Cleared,
    EventStream,
    KvEvents,
    Removed,
    Stored,
    read_events,
)
from support.gateway import run, until

URL = "http://engine:1"


def packed(*events: object) -> bytes:
    return msgspec.msgpack.encode([1.5, list(events), 0])


def stored(*blocks: int, parent: int | None = None, **more: Any) -> dict[str, Any]:
    return {
        "type": "BlockStored", "block_hashes": list(blocks), "parent_block_hash": parent,
        "token_ids": list(range(16 * len(blocks))), "block_size": 16, "lora_id": None, "medium": "GPU",
        "lora_name": None, **more,
    }  # fmt: skip


class Heard:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def kv_live(self, url: str, live: bool) -> None:
        self.calls.append(("live", live))

    def kv_missed(self, url: str) -> None:
        self.calls.append(("missed",))

    def kv_dropped(self, url: str) -> None:
        self.calls.append(("dropped",))

    def engine_gone(self, url: str) -> None:
        self.calls.append(("gone",))

    def kv_stored(
        self, url: str, request_id: str | None, parent: int | None, blocks: Sequence[int], block_tokens: int
    ) -> None:
        self.calls.append(("stored", request_id, parent, tuple(blocks), block_tokens))

    def kv_removed(self, url: str, blocks: Sequence[int]) -> None:
        self.calls.append(("removed", tuple(blocks)))


def heard(*messages: tuple[int, bytes], rank: int = 0) -> list[tuple[Any, ...]]:
    listener = Heard()
    stream = EventStream(URL, rank, listener)
    for number, payload in messages:
        stream.message([b"topic", number.to_bytes(8, "big"), payload])
    return listener.calls


def test_events_as_maps_are_read_and_token_ids_skipped() -> None:
    payload = packed(
        stored(1, 2, parent=9, session_id="r1", group_idx=0, kv_cache_spec_kind="full_attention", extra_keys=[None]),
        {"type": "BlockRemoved", "block_hashes": [3], "medium": "GPU", "group_idx": 0},
        {"type": "AllBlocksCleared"},
    )
    assert read_events(payload) == [
        Stored(blocks=(1, 2), parent=9, block_tokens=16, request_id="r1", group=0),
        Removed(blocks=(3,), group=0),
        Cleared(),
    ]


def test_events_as_arrays_of_older_engines_are_read() -> None:
    payload = packed(
        ["BlockStored", [1, 2], None, [5, 6, 7], 16, None, "GPU", None],
        ["BlockStored", [3], 2, [5, 6, 7], 16, None],
        ["BlockRemoved", [1], "GPU"],
        ["AllBlocksCleared"],
    )
    assert read_events(payload) == [
        Stored(blocks=(1, 2), parent=None, block_tokens=16),
        Stored(blocks=(3,), parent=2, block_tokens=16),
        Removed(blocks=(1,)),
        Cleared(),
    ]


def test_hashes_of_32_bytes_are_known_by_their_last_64_bits_as_vllm_shortens_them() -> None:
    long = bytes(range(32))
    short = int.from_bytes(long, "big") & ((1 << 64) - 1)
    event = stored(1) | {"block_hashes": [long], "parent_block_hash": long}
    assert read_events(packed(event)) == [Stored(blocks=(short,), parent=short, block_tokens=16)]


@pytest.mark.parametrize("kind", ["sliding_window", "mamba", "chunked_local_attention", "unknown"])
def test_blocks_of_other_than_full_attention_do_not_count(kind: str) -> None:
    assert read_events(packed(stored(1, kv_cache_spec_kind=kind))) == []


def test_blocks_that_are_not_on_the_device_do_not_count() -> None:
    assert read_events(packed(stored(1) | {"medium": "CPU"})) == []
    assert read_events(packed({"type": "BlockRemoved", "block_hashes": [1], "medium": "CPU"})) == []


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\xc1", b"garbage", msgspec.msgpack.encode({"a": 1}), msgspec.msgpack.encode([1.0, "x"]),
        packed({"type": "Unheard"}), packed({"type": "BlockStored"}), packed(["BlockStored", "x"]),
        packed(stored(1) | {"block_hashes": ["text"]}),
    ],
)  # fmt: skip
def test_what_is_no_batch_of_events_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="not a batch"):
        read_events(payload)


class TestOrder:
    def test_the_first_message_says_that_events_come(self) -> None:
        assert heard((7, packed(stored(1, session_id="r1")))) == [("live", True), ("stored", "r1", None, (1,), 16)]

    def test_a_gap_in_the_numbers_is_told_before_what_came_after_it(self) -> None:
        calls = heard((1, packed()), (2, packed()), (5, packed(stored(1))))
        assert calls == [("live", True), ("missed",), ("stored", None, None, (1,), 16)]

    def test_numbers_that_start_anew_mean_another_process(self) -> None:
        calls = heard((40, packed()), (0, packed(stored(1))))
        assert calls == [("live", True), ("gone",), ("stored", None, None, (1,), 16)]

    def test_a_message_that_cannot_be_read_is_a_gap(self) -> None:
        assert heard((0, b"garbage")) == [("live", True), ("missed",)]

    def test_a_message_of_another_shape_is_counted_and_changes_nothing(self) -> None:
        listener = Heard()
        stream = EventStream(URL, 0, listener)
        for frames in ([], [b"x"], [b"t", b"1", packed()], [b"t", bytes(8), packed(), b"more"]):
            stream.message(frames)
        assert (stream.unreadable, listener.calls) == (4, [])

    def test_of_several_groups_the_first_one_counts(self) -> None:
        full = {"kv_cache_spec_kind": "full_attention"}
        calls = heard(
            (
                0,
                packed(
                    stored(1, group_idx=0, kv_cache_spec_kind="mamba"),
                    stored(2, group_idx=1, **full),
                    stored(2, group_idx=2, **full),
                    {"type": "BlockRemoved", "block_hashes": [2], "medium": "GPU", "group_idx": 2},
                    {"type": "BlockRemoved", "block_hashes": [2], "medium": "GPU", "group_idx": 1},
                ),
            )
        )
        assert calls == [("live", True), ("stored", None, None, (2,), 16), ("removed", (2,))]

    def test_equal_blocks_of_two_ranks_are_different_blocks(self) -> None:
        message = (0, packed(stored(2, parent=1)))
        (_, (_, _, parent, blocks, _)) = heard(message)
        (_, (_, _, other_parent, other_blocks, _)) = heard(message, rank=1)
        assert (parent, blocks) != (other_parent, other_blocks)
        assert parent != other_parent

    def test_a_dropped_cache_is_told(self) -> None:
        assert heard((0, packed({"type": "AllBlocksCleared"}))) == [("live", True), ("dropped",)]


def test_messages_come_over_a_real_socket_in_order_more_than_one_turn_takes_and_nothing_stays_open() -> None:
    messages = 3 * MESSAGES_A_TURN + 5

    async def test() -> None:
        listener, context = Heard(), zmq.Context()
        publisher = context.socket(zmq.PUB)
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        events = KvEvents({URL: [f"tcp://127.0.0.1:{port}"], "http://silent:1": []}, listener)
        events.start()
        try:
            assert len(events.streams) == 1
            number = 0
            while not listener.calls:  # a subscription takes a moment, and what is sent before is lost
                publisher.send_multipart([b"", number.to_bytes(8, "big"), packed()])
                number += 1
                await asyncio.sleep(0.01)
            for block in range(messages):
                publisher.send_multipart([b"kv", (number + block).to_bytes(8, "big"), packed(stored(block))])
            await until(lambda: sum(call[0] == "stored" for call in listener.calls) == messages)
            assert [call[3][0] for call in listener.calls if call[0] == "stored"] == list(range(messages))
            assert events.streams[0].missed == 0
            assert events.missed() == {URL: 0}
            publisher.send_multipart([b"", (number + messages + 3).to_bytes(8, "big"), packed()])
            await until(lambda: events.missed() == {URL: 3})
        finally:
            await events.stop()
            await events.stop()
            publisher.close(linger=0)
            context.term()

    run(test)


def test_without_an_address_nothing_is_opened() -> None:
    async def test() -> None:
        events = KvEvents({URL: []}, Heard())
        events.start()
        assert events.streams == ()
        await events.stop()

    run(test)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)

    async def test() -> None:
        events = KvEvents({URL: ["tcp://127.0.0.1:1"]}, Heard())
        with pytest.raises(Unsupported) as refused:
            events.start()
        assert "kv-events" in refused.value.hint
        await events.stop()

    run(test)
