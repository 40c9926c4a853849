"""What is known of a request when it is over: the one value that metrics, and later the ledger and the log, read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request, over. Never holds text of a prompt or an answer.

    Args:
        tenant_id: ``-`` when the key was not known.
        model: as asked; empty when the body was not read.
        endpoint: the engine that answered, or the last one tried; empty when none was.
        ending: low-cardinality, fit for a label.
        status: HTTP status the client saw or would have seen; 499 when it left before any.
        attempts: engines that it was sent to.
        ttft_s: request complete to first event relayed; None without one.
        duration_s: request complete to the end.
        output_tokens: as the engine counted; where ``tokens_estimated``, the number of stream events instead.
    """

    tenant_id: str
    model: str
    endpoint: str
    ending: Ending
    status: int
    stream: bool = False
    attempts: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    ttft_s: float | None = None
    duration_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    tokens_estimated: bool = False
