"""What a prompt is to the twin: lengths and identities, not text.

Two prompts share cached blocks exactly as far as their segments agree (:mod:`roadworthy.twin.texts`), so a prompt costs
its segments and not its tokens.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Segment(NamedTuple):
    """``tokens`` tokens of the text named ``id``, from its beginning.

    Equal ids mean equal text: a system prompt of 70 tokens is the first 70 tokens of the same one of 100. Neighbouring
    segments of one prompt have different ids.
    """

    id: str
    tokens: int


new_segment: Callable[[tuple[str, int]], Segment] = partial(tuple.__new__, Segment)
"""A segment of its two values, at half the price of the named tuple's own constructor."""


def segment_tokens(segments: tuple[Segment, ...]) -> int:
    """Tokens of all segments together."""
    return sum(segment.tokens for segment in segments)
