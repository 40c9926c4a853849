"""What is known of a request when it is over: the one value that metrics, the log, traces and the ledger read.

A struct of msgspec instead of a dataclass: as frozen, and made at a tenth of the cost, once for every request.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Ending = Literal[
    "ok",
    "refused",  # by us: key, limits, malformed
    "rejected",  # by the engine: a 4xx, the client's mistake
    "no_engine",  # none reachable, or all full
    "engine_error",  # died or 5xx, before or in the middle of the answer
    "engine_timeout",
    "client_left",
    "client_stalled",
    "shutdown",
]


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request, over. Never holds text of a prompt or an answer.

    Args:
        request_id: ours, sent to the client and to the engine; empty when the head was not even read.
        tenant_id: ``-`` when the key was not known.
        operation: the route's; empty when there is no such path.
        model: as asked; empty when the body was not read.
        endpoint: the engine that answered, or the last one tried; empty when none was.
        decision: how it was routed, and ``by`` what; the error's code where it was not.
        ending: low-cardinality, fit for a label.
        status: HTTP status the client saw or would have seen; 499 when it left before any.
        attempts: engines that it was sent to.
        started_s: of the clock that only rises, when the whole request had been read.
        ttft_s: request complete to first event relayed; None without one.
        duration_s: request complete to the end.
        waited_s: of ``duration_s``, before the engine that answered got it: queue, connect, attempts that failed.
        itl_p99_s: of the gaps between events; None with fewer than 20 of them.
        output_tokens: as the engine counted; where ``tokens_estimated``, the number of stream events instead.
        cached_tokens: of ``prompt_tokens``, those not computed, where the engine tells
            (``--enable-prompt-tokens-details``).
        queue_s, prefill_s, decode_s: by the engine's clock, where it tells (``--enable-per-request-metrics``); queue is
            before its scheduler took the request, prefill from there to the first token, decode from there to the last.
        kv_blocks_estimate: blocks that prompt and output fill, an upper bound that ignores sharing; 0 when not known.
        io_wait_s: what a trusted caller said it waited for, in its ``x-roadworthy-io-wait-ms``.
        queue_class: in which it waited or would have; empty where it was refused before.
        borrowed: it ran beyond its tenant's KV quota, in what others left free.
        why: what a business rule did with it, in words; empty for nothing.
    """

    request_id: str = ""
    tenant_id: str
    operation: str = ""
    model: str
    endpoint: str
    decision: str = ""
    by: str = ""
    ending: Ending
    status: int
    stream: bool = False
    attempts: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    started_s: float = 0.0
    ttft_s: float | None = None
    duration_s: float = 0.0
    waited_s: float = 0.0
    itl_p99_s: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    tokens_estimated: bool = False
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    kv_blocks_estimate: int = 0
    io_wait_s: float | None = None
    queue_class: str = ""
    borrowed: bool = False
    why: str = ""
    trace: str = ""
