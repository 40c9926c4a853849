"""Tokens and phases as the engine reports them, in any of its dialects."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

_Count = Annotated[int, Meta(ge=0, le=2**53)]


class _Details(msgspec.Struct, gc=False):
    cached_tokens: _Count | None = None


class _Counts(msgspec.Struct, gc=False):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Details | None = None
    # responses, messages
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None


class _Phases(msgspec.Struct, gc=False):
    """vLLM's ``--enable-per-request-metrics``; its first token is counted from *scheduled*, not from *received*."""

    queue_time_ms: float | None = None
    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None


class _Answer(msgspec.Struct, gc=False):
    usage: _Counts | None = None
    metrics: _Phases | None = None
    response: _Answer | None = None  # the last event of a response
    message: _Answer | None = None  # the first event of a message


_decode = msgspec.json.Decoder(_Answer).decode


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What one request took, by the engine's count; phases in seconds where it tells them."""

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None


def usage_of(answer: bytes) -> Usage | None:
    """The usage in one JSON object (a plain answer, or an event's payload); None when there is none.

    Only the engine's own fields are read, by their place: what a client wrote and the engine repeats (metadata, tools)
    is never taken for them.
    """
    try:
        value = _decode(answer)
    except (msgspec.DecodeError, RecursionError):
        return None
    counts = value.usage
    if counts is None:
        value = value.response or value.message or value
        counts = value.usage
        if counts is None:
            return None
    prompt, output, cached = counts.prompt_tokens, counts.completion_tokens, None
    if prompt is None:
        prompt, output, cached = counts.input_tokens, counts.output_tokens, counts.cache_read_input_tokens
        if prompt is None:
            if output is None:
                return None
            prompt = 0  # the end of a message: its prompt was told at its start
        # messages: input_tokens leaves the cached ones out
        prompt += (cached or 0) + (counts.cache_creation_input_tokens or 0)
    details = counts.prompt_tokens_details or counts.input_tokens_details
    if details is not None:
        cached = details.cached_tokens
    phases = value.metrics
    if phases is None:
        return Usage(prompt or 0, output or 0, cached or 0)
    return Usage(
        prompt or 0,
        output or 0,
        cached or 0,
        _seconds(phases.queue_time_ms),
        _seconds(phases.time_to_first_token_ms),
        _seconds(phases.generation_time_ms),
    )


def last_usage(tail: bytes) -> Usage | None:
    """The last usage in the end of a stream; chunk framing between its events does no harm."""
    end = len(tail)
    while (at := tail.rfind(b'"usage"', 0, end)) >= 0:
        start = tail.rfind(b"\n", 0, at) + 1
        stop = tail.find(b"\n", at)
        line = tail[start : stop if stop >= 0 else len(tail)].strip()
        if line.startswith(b"data:") and (usage := usage_of(line[5:])) is not None:
            return usage
        end = start
    return None


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
