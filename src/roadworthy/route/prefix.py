"""Which beginnings of prompts an engine should still hold, from bytes alone.

A prompt is cut at fixed bounds, and the bytes up to each bound give one key: equal keys, equal beginnings. Bounds lie
1 KiB apart at first and from 16 KiB on an eighth of the way, so that a prompt of 64 KiB has 29 keys and one of 8
MiB 70: what remembering it costs grows with the logarithm of its length, and a match is known to an eighth. A
prompt below 1 KiB has none: what could be saved of it is less than what one request more on an engine costs.

A key is 64 bits: the upper half names the tenant and the model, since neither shares blocks with another, the lower
half is the CRC-32 of the bytes. A collision can only send a request of the same tenant to an engine that does not hold
its prefix, so nothing is gained by a slower hash: CRC-32 runs at 3 GB/s and chains by itself.

The bytes are the request's own JSON from the prompt's field on. No tokenizer and no parser is involved, so a client
that writes its conversation differently each time (other spacing, another order of fields inside messages) gets no
match; the engine, which sees the rendered text, may still hit its cache.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Sequence

STEP_BYTES = 1024
STEP_RATIO = 8
LARGEST_PROMPT_BYTES = 8 * 2**20
PROMPT_FIELDS = (b'"messages"', b'"prompt"', b'"input"')
FIELD_WITHIN_BYTES = 4096
"""Where the prompt's field is looked for. When it starts later (a long list of tools before it), all of the body
counts."""


def _bounds() -> tuple[int, ...]:
    bounds, at = [], 0
    while at < LARGEST_PROMPT_BYTES:
        at += max(STEP_BYTES, at // STEP_RATIO // STEP_BYTES * STEP_BYTES)
        bounds.append(at)
    return tuple(bounds)


BOUNDS_BYTES = _bounds()
"""Bytes that each key of a prompt covers, by its index."""

_SPANS_BYTES = tuple(after - before for before, after in zip((0, *BOUNDS_BYTES), BOUNDS_BYTES, strict=False))


def salt_of(tenant_id: str, model: str) -> int:
    """The upper half of the keys of one tenant's prompts to one model."""
    text = f"{tenant_id}\0{model}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=4).digest(), "big") << 32


def prompt_start(body: bytes) -> int:
    """Where the prompt begins in a request's body; 0 when its field is not near the front."""
    for field in PROMPT_FIELDS:  # a request has one of them
        at = body.find(field, 0, FIELD_WITHIN_BYTES)
        if at >= 0:
            return at
    return 0


def prefix_keys(body: bytes, salt: int, start: int = 0) -> tuple[int, ...]:
    """Keys of the beginnings of ``body[start:]``, shortest first; empty below 1 KiB."""
    view = memoryview(body)
    keys, crc, at = [], 0, start
    for bound in BOUNDS_BYTES[: bisect_right(BOUNDS_BYTES, len(body) - start)]:
        end = start + bound
        crc = crc32(view[at:end], crc)
        keys.append(salt | crc)
        at = end
    return tuple(keys)


class EngineIndex:
    """What one engine should hold, least recently used first out.

    A prompt's longest beginnings are forgotten before its short ones, as the engine frees a sequence's tail first. So
    whatever is known of a prompt is an unbroken run of keys from the first on, unless the engine itself told otherwise.

    Args:
        entries: most keys remembered.
        capacity_bytes: most bytes of prompts they may stand for: what the engine's KV pool holds. None means unknown,
            and then only ``entries`` bounds it.
    """

    __slots__ = ("_bytes", "_keys", "capacity_bytes", "entries")

    def __init__(self, *, entries: int, capacity_bytes: int | None = None) -> None:
        self.entries = entries
        self.capacity_bytes = capacity_bytes
        self._keys: OrderedDict[int, int] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: int) -> bool:
        return key in self._keys

    @property
    def held_bytes(self) -> int:
        """Bytes of prompts that the remembered keys stand for, what prompts share counted once."""
        return self._bytes

    def matched(self, keys: Sequence[int]) -> int:
        """How many of ``keys`` the engine should hold, from the first on."""
        held = self._keys
        for count, key in enumerate(keys):
            if key not in held:
                return count
        return len(keys)

    def matched_bytes(self, keys: Sequence[int]) -> int:
        """How many bytes of a prompt with these keys the engine should hold."""
        count = self.matched(keys)
        return BOUNDS_BYTES[count - 1] if count else 0

    def add(self, keys: Sequence[int]) -> None:
        """A prompt with these keys was computed there, or is about to be."""
        held = self._keys
        for index in range(len(keys) - 1, -1, -1):
            key = keys[index]
            if key in held:
                held.move_to_end(key)
            else:
                held[key] = index
                self._bytes += _SPANS_BYTES[index]
        while len(held) > self.entries or (self.capacity_bytes is not None and self._bytes > self.capacity_bytes):
            _, index = held.popitem(last=False)
            self._bytes -= _SPANS_BYTES[index]

    def forget(self, key: int) -> None:
        """The engine no longer holds what ``key`` stands for, nor, therefore, anything longer of it."""
        index = self._keys.pop(key, None)
        if index is not None:
            self._bytes -= _SPANS_BYTES[index]

    def clear(self) -> None:
        self._keys.clear()
        self._bytes = 0


def matched_bytes(count: int) -> int:
    """Bytes that the first ``count`` keys of a prompt cover."""
    return BOUNDS_BYTES[count - 1] if count else 0
