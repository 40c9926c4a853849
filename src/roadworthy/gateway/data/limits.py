"""Every limit of the data port, in one place."""

from __future__ import annotations

from dataclasses import dataclass, fields

from roadworthy.core.units import KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a client or an engine may do before it is cut off. All must be above zero.

    Args:
        head_bytes: request line and headers; beyond it 431.
        headers: how many; beyond it 431.
        head_timeout_s: from the first byte of a head to its end; then 408.
        body_bytes: request body, decoded; beyond it 413.
        body_timeout_s: longest silence inside a body; then 408.
        keep_alive_s: longest silence between requests, or before the first; then closed without a word.
        pipelined_requests: parsed from one read and not yet answered; beyond it 400.
        pipelined_bytes: read ahead while a request is in progress; beyond it we stop reading.
        linger_s: how long a refused body is read and thrown away, so that the refusal arrives before a reset.
        write_buffer_bytes: waiting for a slow client; beyond it the engine's connection is no longer read.
        client_stall_s: a client that takes nothing for so long while data waits is cut off.
        connect_timeout_s: to open a connection to an engine.
        known_head_bytes: a head up to that long is kept with its connection, so that the next one like it need not be
            parsed.
        first_byte_s: longest wait for an engine's first byte; then 504. A plain answer's first byte comes with its last
            token.
        engine_silence_s: longest silence of an engine, before its first byte or between two; then 504.
        engine_idle_s: an unused connection is closed after it. Below vLLM's own 5 s (``VLLM_HTTP_TIMEOUT_KEEP_ALIVE``),
            so that the engine seldom closes first.
        plain_answer_bytes: largest answer that is not a stream; it is held whole so that a cut one can be told.
        peek_bytes: held back of a stream while looking for its first event, or for the end of an event.
        hard_failures: how often one request may meet an engine that died or answered 5xx; engines that merely
            refuse are all tried.
        sweep_s: how often the limits in seconds are looked at; they are that exact.
    """

    head_bytes: int = 32 * KIB
    headers: int = 100
    head_timeout_s: float = 10.0
    body_bytes: int = 8 * MIB
    body_timeout_s: float = 30.0
    keep_alive_s: float = 75.0
    pipelined_requests: int = 64
    pipelined_bytes: int = 64 * KIB
    linger_s: float = 2.0
    write_buffer_bytes: int = 64 * KIB
    client_stall_s: float = 120.0
    connect_timeout_s: float = 2.0
    known_head_bytes: int = 2 * KIB
    first_byte_s: float = 600.0
    engine_silence_s: float = 600.0
    engine_idle_s: float = 4.0
    plain_answer_bytes: int = 64 * MIB
    peek_bytes: int = 64 * KIB
    hard_failures: int = 2
    sweep_s: float = 0.25

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"limit {field.name}: {getattr(self, field.name)}, wanted above zero")
