"""Responses as bytes: vLLM's chunks and objects, cut so that a token costs one join.

Everything of a stream's chunk but the token and its counts is the same for a whole request, and is made once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roadworthy.adapters.twin_server.asked import Asked
    from roadworthy.twin.requests import Finished

FINGERPRINT = "simulated"
DONE = b"data: [DONE]\n\n"
BUSY = {
    "error": {
        "message": "The engine is currently busy and cannot accept new requests. Please try again later or on a "
        "different instance.",
        "type": "Service Unavailable",
        "param": None,
        "code": 503,
    }
}
REFUSED_STREAM = b"data: " + json.dumps(BUSY).encode() + b"\n\n" + DONE
"""A refused stream in vLLM: status 200, the error as its first event, and the usual end."""


def compact(value: object) -> bytes:
    """JSON without spaces, as vLLM writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def usage(prompt_tokens: int, output_tokens: int) -> dict[str, Any]:
    """Token counts in vLLM's order of keys."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
    }


class ChunkWriter:
    """The chunks of one stream, in order: ``first``, one ``token`` each, ``last``."""

    def __init__(self, asked: Asked, response_id: str, created_s: int) -> None:
        self._asked = asked
        self._chat = asked.kind == "chat"
        self._written = 0
        what = "chat.completion.chunk" if self._chat else "text_completion"
        head = compact({"id": response_id, "object": what, "created": created_s, "model": asked.model})
        self._head = b"data: " + head[:-1] + b',"choices":['
        self._before = self._head + (b'{"index":0,"delta":{"content":"' if self._chat else b'{"index":0,"text":"')
        self._after = b'"},"logprobs":null,"finish_reason":' if self._chat else b'","logprobs":null,"finish_reason":'
        ids = b',"token_ids":null}]' if self._chat else b',"prompt_token_ids":null,"token_ids":null}]'
        # only the last chat chunk has a stop_reason, every completion chunk has one
        self._more = b"null" + (b"" if self._chat else b',"stop_reason":null') + ids
        self._ids = ids

    def first(self) -> bytes:
        """The chunk before the first token: chat names the role, completions send nothing."""
        if not self._chat:
            return b""
        choice = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        return self._head + choice + self._counts() + b',"prompt_token_ids":null,"prompt_text":null}\n\n'

    def token(self, text: str, finished: Finished | None) -> bytes:
        """The chunk of one token; filler needs no escaping."""
        self._written += 1
        end = self._more if finished is None else b'"' + finished.reason.encode() + b'","stop_reason":null' + self._ids
        counts = self._counts() if self._asked.continuous_usage else b""
        return b"".join((self._before, text.encode(), self._after, end, counts, b"}\n\n"))

    def last(self) -> bytes:
        """Usage, when it was asked for, and the end."""
        if not self._asked.include_usage:
            return DONE
        counts = compact(usage(len(self._asked.prompt), self._written))
        fingerprint = f',"system_fingerprint":"{FINGERPRINT}"}}\n\n'.encode()
        return self._head + b'],"usage":' + counts + fingerprint + DONE

    def _counts(self) -> bytes:
        if not self._asked.continuous_usage:
            return b""
        counts = usage(len(self._asked.prompt), self._written)
        return b',"usage":' + compact({**counts, "completion_tokens_details": None})


def whole(asked: Asked, response_id: str, created_s: int, text: str, finished: Finished) -> bytes:
    """The object that answers a request without ``stream``."""
    choice: dict[str, Any] = {"index": 0}
    if asked.kind == "chat":
        choice["message"] = {
            "role": "assistant", "content": text, "refusal": None, "annotations": None, "audio": None,
            "function_call": None, "reasoning": None,
        }  # fmt: skip
    else:
        choice["text"] = text
    choice |= {"logprobs": None, "finish_reason": finished.reason, "stop_reason": None, "token_ids": None}
    choice |= {} if asked.kind == "chat" else {"prompt_logprobs": None, "prompt_token_ids": None}
    counts = usage(finished.prompt_tokens, finished.output_tokens)
    details = {"cached_tokens": finished.cached_tokens} if finished.cached_tokens else None
    return compact(
        {
            "id": response_id,
            "object": "chat.completion" if asked.kind == "chat" else "text_completion",
            "created": created_s,
            "model": asked.model,
            "choices": [{**choice, "routed_experts": None}],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": {**counts, "prompt_tokens_details": details, "completion_tokens_details": None},
            "kv_transfer_params": None,
            "metrics": None,
        }
    )
