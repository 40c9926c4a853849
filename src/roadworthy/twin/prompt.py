"""What a prompt is to the twin: lengths and identities, not text.

Two prompts share cached blocks exactly as far as their segments agree, so hashing a block costs the segments it
touches and not its tokens.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple


class Segment(NamedTuple):
    """``tokens`` tokens of the text named ``id``, from its beginning.

    Equal ids mean equal text: a system prompt of 70 tokens is the first 70 tokens of the same one of 100.
    """

    id: str
    tokens: int


def segment_tokens(segments: tuple[Segment, ...]) -> int:
    """Tokens of all segments together."""
    return sum(segment.tokens for segment in segments)


def block_contents(segments: tuple[Segment, ...], block_tokens: int) -> Iterator[Hashable]:
    """What each full block of ``block_tokens`` holds, in order; equal values mean equal text.

    A value names the pieces (segment id, offset in it, tokens) that the block is cut from. Neighbouring pieces of
    one segment do not occur, so the same text cut from the same segments always gives the same value.
    """
    pieces: list[tuple[str, int, int]] = []
    room = block_tokens
    for name, tokens in segments:
        offset = 0
        while tokens - offset >= room:
            pieces.append((name, offset, room))
            yield tuple(pieces)
            pieces.clear()
            offset += room
            room = block_tokens
        if tokens > offset:
            pieces.append((name, offset, tokens - offset))
            room -= tokens - offset
