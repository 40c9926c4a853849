"""Hears what engines publish of their prefix caches, and tells routing.

vLLM with ``--kv-events-config '{"enable_kv_cache_events": true}'`` publishes every block that it stores or evicts over
ZeroMQ: three frames (topic, a sequence number of 8 bytes, MessagePack). The publisher keeps nothing for those who come
late, so what was stored before we connected stays unknown. A gap in the numbers means that events were dropped, and
numbers that start anew mean another process, with an empty cache.

The token ids, most of a message, are skipped unread. Events are maps since vLLM 0.24 and were arrays before; both are
read. Only what an engine holds on its device in one group of full attention counts: blocks of a window leave while the
prefix stays usable, and the several groups of a hybrid model store the same prefix.

Everything runs on the gateway's loop. ZeroMQ has a thread of its own for the network; what is left for the loop is some
20 us a message, and an engine publishes at most one a step.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from roadworthy.core.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import zmq

MESSAGES_A_TURN = 64
"""Read in one turn of the loop at most, so that a burst of events delays no token."""

MESSAGES_HELD = 10_000
"""Waiting in our socket; what comes beyond it is dropped, and told by the gap."""

LOOK_EVERY_S = 1.0
"""ZeroMQ's descriptor tells of changes only; this look finds what fell between two of them."""

_MASK = (1 << 64) - 1
_FULL_KINDS = frozenset({None, "full_attention", "mla_attention", "sink_full_attention"})
_ON_DEVICE = frozenset({None, "GPU"})

Hash = bytes | int


class _Stored(msgspec.Struct, tag="BlockStored", gc=False):
    block_hashes: list[Hash]
    block_size: int
    parent_block_hash: Hash | None = None
    medium: str | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    session_id: str | None = None


class _Removed(msgspec.Struct, tag="BlockRemoved", gc=False):
    block_hashes: list[Hash]
    medium: str | None = None
    group_idx: int | None = None


class _Cleared(msgspec.Struct, tag="AllBlocksCleared", gc=False):
    pass


class _StoredArray(msgspec.Struct, tag="BlockStored", array_like=True, gc=False):
    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: msgspec.Raw
    block_size: int
    lora_id: msgspec.Raw = msgspec.Raw(b"\xc0")
    medium: str | None = None


class _RemovedArray(msgspec.Struct, tag="BlockRemoved", array_like=True, gc=False):
    block_hashes: list[Hash]
    medium: str | None = None


class _ClearedArray(msgspec.Struct, tag="AllBlocksCleared", array_like=True, gc=False):
    pass


class _Batch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[_Stored | _Removed | _Cleared]


class _ArrayBatch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[_StoredArray | _RemovedArray | _ClearedArray]


_READ_MAPS = msgspec.msgpack.Decoder(_Batch)
_READ_ARRAYS = msgspec.msgpack.Decoder(_ArrayBatch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Blocks stored after ``parent``; ``request_id`` is what came with the request as its session."""

    blocks: tuple[int, ...]
    parent: int | None
    block_tokens: int
    request_id: str | None = None
    group: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Blocks evicted."""

    blocks: tuple[int, ...]
    group: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """The whole cache was dropped."""


Event = Stored | Removed | Cleared


def read_events(payload: bytes) -> list[Event]:
    """The events in one message, those that do not count left out. Raises ValueError when it is none."""
    batch: _Batch | _ArrayBatch
    try:
        batch = _READ_MAPS.decode(payload)
    except msgspec.MsgspecError:
        try:
            batch = _READ_ARRAYS.decode(payload)
        except msgspec.MsgspecError as error:
            raise ValueError(f"not a batch of KV events: {error}") from error
    events: list[Event] = []
    for one in batch.events:
        if isinstance(one, _Cleared | _ClearedArray):
            events.append(Cleared())
        elif one.medium not in _ON_DEVICE:
            continue
        elif isinstance(one, _Stored):
            if one.kv_cache_spec_kind in _FULL_KINDS:
                events.append(
                    Stored(
                        blocks=_numbers(one.block_hashes),
                        parent=None if one.parent_block_hash is None else _number(one.parent_block_hash),
                        block_tokens=one.block_size,
                        request_id=one.session_id,
                        group=one.group_idx,
                    )
                )
        elif isinstance(one, _StoredArray):
            parent = None if one.parent_block_hash is None else _number(one.parent_block_hash)
            events.append(Stored(blocks=_numbers(one.block_hashes), parent=parent, block_tokens=one.block_size))
        else:
            group = one.group_idx if isinstance(one, _Removed) else None
            events.append(Removed(blocks=_numbers(one.block_hashes), group=group))
    return events


def _numbers(hashes: list[Hash]) -> tuple[int, ...]:
    return tuple([_number(one) for one in hashes])


def _number(block: Hash) -> int:
    """64 bits of a hash, as vLLM shortens its own: a smaller thing to remember."""
    return (int.from_bytes(block[-8:], "big") if isinstance(block, bytes) else block) & _MASK


class Listener(Protocol):
    """Whom events are told, such as ``route.state.RoutingState``."""

    def kv_live(self, url: str, live: bool) -> None: ...
    def kv_dropped(self, url: str) -> None: ...
    def kv_missed(self, url: str) -> None: ...
    def kv_stored(
        self, url: str, request_id: str | None, parent: int | None, blocks: Sequence[int], block_tokens: int
    ) -> None: ...
    def kv_removed(self, url: str, blocks: Sequence[int]) -> None: ...
    def engine_gone(self, url: str) -> None: ...


class EventStream:
    """What one publisher sends, in order; ``rank`` keeps equal blocks of an engine's data-parallel ranks apart."""

    def __init__(self, url: str, rank: int, listener: Listener) -> None:
        self.url = url
        self._mix = rank << 56
        self._listener = listener
        self._group: int | None = None
        self.expected: int | None = None  # number of the next message
        self.messages = self.missed = self.unreadable = 0

    def message(self, frames: Sequence[bytes]) -> None:
        """One message, whatever is in it."""
        self.messages += 1
        if len(frames) != 3 or len(frames[1]) != 8:
            self.unreadable += 1
            return
        self._in_order(int.from_bytes(frames[1], "big"))
        try:
            events = read_events(frames[2])
        except ValueError:
            self.unreadable += 1
            self._listener.kv_missed(self.url)
            return
        for event in events:
            self._tell(event)

    def _in_order(self, number: int) -> None:
        listener, expected = self._listener, self.expected
        self.expected = number + 1
        if expected is None:
            listener.kv_live(self.url, True)
        elif number < expected:  # the engine started anew
            self._group = None
            listener.engine_gone(self.url)
        elif number > expected:
            self.missed += number - expected
            listener.kv_missed(self.url)

    def _tell(self, event: Event) -> None:
        if isinstance(event, Cleared):
            self._listener.kv_dropped(self.url)
            return
        if isinstance(event, Stored) and self._group is None:
            self._group = event.group
        if event.group != self._group:
            return
        mix = self._mix
        blocks = [one ^ mix for one in event.blocks] if mix else event.blocks
        if isinstance(event, Removed):
            self._listener.kv_removed(self.url, blocks)
        else:
            parent = None if event.parent is None else event.parent ^ mix
            self._listener.kv_stored(self.url, event.request_id, parent, blocks, event.block_tokens)


class KvEvents:
    """Subscriptions to all engines that publish, from ``start`` to ``stop``.

    Args:
        addresses: by engine URL, where it publishes, one address for each data-parallel rank.
    """

    def __init__(self, addresses: Mapping[str, Sequence[str]], listener: Listener) -> None:
        self._addresses = {url: tuple(places) for url, places in addresses.items() if places}
        self._listener = listener
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._sockets: list[tuple[zmq.Socket[bytes], EventStream]] = []
        self._looking: asyncio.Task[None] | None = None

    @property
    def streams(self) -> tuple[EventStream, ...]:
        return tuple(stream for _, stream in self._sockets)

    def missed(self) -> dict[str, int]:
        """Messages lost so far, by engine that publishes."""
        lost = dict.fromkeys(self._addresses, 0)
        for stream in self.streams:
            lost[stream.url] += stream.missed + stream.unreadable
        return lost

    def start(self) -> None:
        """Connect in the background; an engine that is not there yet is waited for. Call it on the running loop.

        Raises:
            Unsupported: the extra ``kv-events`` is not installed.
        """
        if not self._addresses:
            return
        zmq = _zmq()
        loop = asyncio.get_running_loop()
        self._context = zmq.Context(io_threads=1)
        for url, places in self._addresses.items():
            for rank, place in enumerate(places):
                socket = self._context.socket(zmq.SUB)
                socket.setsockopt(zmq.LINGER, 0)
                socket.setsockopt(zmq.RCVHWM, MESSAGES_HELD)
                socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)  # milliseconds
                socket.setsockopt(zmq.IPV6, 1)
                socket.setsockopt(zmq.SUBSCRIBE, b"")  # whatever topic the engine was given
                socket.connect(place)
                stream = EventStream(url, rank, self._listener)
                self._sockets.append((socket, stream))
                loop.add_reader(socket.fileno(), self._read, socket, stream)
        self._looking = asyncio.create_task(self._look())

    async def stop(self) -> None:
        """Close everything. Calling it again does nothing."""
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        loop = asyncio.get_running_loop()
        for socket, _ in self._sockets:
            loop.remove_reader(socket.fileno())
            socket.close(linger=0)
        self._sockets = []
        context, self._context = self._context, None
        if context is not None:
            context.term()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for socket, stream in self._sockets:
                self._read(socket, stream)

    def _read(self, socket: zmq.Socket[bytes], stream: EventStream) -> None:
        if socket.closed:
            return
        zmq = _zmq()
        for _ in range(MESSAGES_A_TURN):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            stream.message(frames)
        asyncio.get_running_loop().call_soon(self._read, socket, stream)  # the descriptor will not tell again


def _zmq() -> Any:
    """The library, which only those need whose engines publish."""
    try:
        import zmq
    except ImportError as error:
        raise Unsupported(
            "engine.endpoints: kv_events are named, and the library that receives them is not installed",
            hint="pip install 'roadworthy[gateway,kv-events]', or leave kv_events out",
        ) from error
    return zmq
