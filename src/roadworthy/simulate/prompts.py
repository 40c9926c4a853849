"""The keys that routing would have for a prompt whose text does not exist.

The schedule knows a prompt as segments, lengths of named texts. At ``BYTES_PER_TOKEN`` they stand for as many bytes,
cut at the same bounds as a real body: two prompts share a key exactly as far as their segments agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from roadworthy.route.prefix import BOUNDS_BYTES

if TYPE_CHECKING:
    from roadworthy.twin.prompt import Segment

BYTES_PER_TOKEN = 4
"""English text has about four bytes a token; it is what routing assumes before it has seen ``usage``."""


_FIRST_BOUND_TOKENS = BOUNDS_BYTES[0] // BYTES_PER_TOKEN


def own_key(prompt_tokens: int, salt: int, order: int) -> tuple[int, ...]:
    """What stands for the keys of a prompt that shares no text with any other: they are looked for and never found,
    and for that one is as good as all of them. ``order`` tells it from the others; none where it is too short for keys.
    """
    return (salt | order,) if prompt_tokens >= _FIRST_BOUND_TOKENS else ()


def prompt_keys(segments: tuple[Segment, ...], salt: int) -> tuple[int, ...]:
    """Keys of the beginnings of a prompt, as ``route.prefix.prefix_keys`` would cut it."""
    if len(segments) == 1 and segments[0].tokens < _FIRST_BOUND_TOKENS:
        return ()
    keys: list[int] = []
    crc = at_tokens = start_tokens = 0
    bounds = iter(BOUNDS_BYTES)
    bound_tokens = next(bounds) // BYTES_PER_TOKEN
    for name, tokens in segments:
        end_tokens = start_tokens + tokens
        while at_tokens < end_tokens:
            to_tokens = min(end_tokens, bound_tokens)
            crc = crc32(f"{name}:{at_tokens - start_tokens}:{to_tokens - at_tokens};".encode(), crc)
            at_tokens = to_tokens
            if at_tokens == bound_tokens:
                keys.append(salt | crc)
                bound_tokens = next(bounds, 1 << 62) // BYTES_PER_TOKEN
        start_tokens = end_tokens
    return tuple(keys)
