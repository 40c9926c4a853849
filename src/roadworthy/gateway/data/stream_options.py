"""``stream_options`` of a request: what the client asks to see of token counts, and what the engine is asked."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Raw, UnsetType

from roadworthy.gateway.data.errors import BadRequest

Asked = Literal["nothing", "final", "running"]
"""What a client sees of counts: none, one at the end, one in every event."""

RUNNING = b'"stream_options":{"include_usage":true,"continuous_usage_stats":true},'
FINAL = b'"stream_options":{"include_usage":true},'
"""The fields that make vLLM count in every event, and at the end alone."""


class Counting(msgspec.Struct, frozen=True, gc=False):
    """How one stream is counted.

    Args:
        running: in every event; else at the end.
        asked: what the client sees of it.
        choices_each: choices of one prompt.
        one_choice: there is one choice of one prompt, as nearly always.
    """

    running: bool = True
    asked: Asked = "nothing"
    choices_each: int = 1
    one_choice: bool = True

    @property
    def field(self) -> bytes:
        """What is put in front of the engine's request."""
        return RUNNING if self.running else FINAL


class _Options(msgspec.Struct, gc=False):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


_decode = msgspec.json.Decoder(_Options | None, strict=False).decode  # as vLLM reads it: 1 is true


def asked(raw: Raw | UnsetType) -> Asked:
    """What the client asked for, by vLLM's reading: the running count comes only with the final one.

    Raises:
        BadRequest: no object, or a switch that is neither true nor false.
    """
    if isinstance(raw, UnsetType):
        return "nothing"
    try:
        options = _decode(bytes(raw))
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(
            f"stream_options: {error}", code="invalid_value", param="stream_options",
            hint='such as {"include_usage": true}',
        ) from error  # fmt: skip
    if options is None or not options.include_usage:
        return "nothing"
    return "running" if options.continuous_usage_stats else "final"
