"""Reads one streamed chat completion: bytes with the time they were read in, an Outcome out.

Pure on purpose: it is fed by a socket in `load_client` and byte by byte in tests. An event that carries tokens is one
whose first choice has text, reasoning or a tool call in its delta. vLLM opens a chat stream with a role and an empty
text, possibly before the first token exists, so that event is not counted; an empty text later on is a token whose
characters are not complete yet, so that one is.
"""

from __future__ import annotations

import json
from typing import Any

from roadworthy.bench.client import Outcome

MAX_ERROR_CHARS = 160
MAX_ERROR_BODY_BYTES = 65536
_TOKEN_KEYS = ("content", "reasoning", "reasoning_content", "tool_calls")
_TEXT_MARK = b'"content":"'
_QUOTE = ord('"')


def is_simulated(label: str) -> bool:
    """Whether an engine's own label (``Server``, a model's owner, a fingerprint) says that it is a simulation."""
    return "simulated" in label.lower()


class AnswerReader:
    """Collects one answer. Call ``head`` once, ``feed`` for each piece of the body, then ``outcome`` once.

    Args:
        keep_text: whether the outcome has the text; without it the text of most events is never looked at.
    """

    __slots__ = ("_cached", "_data", "_done", "_error", "_is_stream", "_keep_text", "_n_in", "_n_out", "_simulated",
                 "_status", "_tail", "_text", "_times_s")  # fmt: skip

    def __init__(self, *, keep_text: bool = True) -> None:
        self._keep_text = keep_text
        self._status = 0
        self._is_stream = False
        self._simulated = False
        self._tail = b""
        self._data: list[bytes] = []
        self._times_s: list[float] = []
        self._text: list[str] = []
        self._n_in: int | None = None
        self._n_out: int | None = None
        self._cached: int | None = None
        self._done = False
        self._error = ""

    def head(self, status: int, *, content_type: str, server: str) -> None:
        """The status and the headers that matter."""
        self._status = status
        self._is_stream = status == 200 and content_type.startswith("text/event-stream")
        self._simulated = is_simulated(server)
        if status == 200 and not self._is_stream:
            self._error = _clean(f"answered {content_type or 'no content type'}, not an event stream")

    def feed(self, data: bytes, now_s: float) -> None:
        """A piece of the body, cut anywhere, read at ``now_s``."""
        if not self._is_stream:
            if len(self._tail) < MAX_ERROR_BODY_BYTES:
                self._tail += data
            return
        if (
            not self._keep_text
            and not self._tail
            and not self._data
            and data.startswith(b"data: {")
            and data.find(b"\n") == len(data) - 2
            and data.endswith(b"}\n\n")
            and _is_usual(data)
        ):
            self._times_s.append(now_s)
            return
        lines = (self._tail + data if self._tail else data).split(b"\n")
        self._tail = lines.pop()
        for line in lines:
            if line.endswith(b"\r"):
                line = line[:-1]
            if line.startswith(b"data:"):
                self._data.append(line[5:])
            elif not line and self._data:
                event = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                self._data.clear()
                self._event(event.strip(), now_s)

    def outcome(self, now_s: float, *, cut: str = "") -> Outcome:
        """What it came to. ``cut`` says why the answer stopped before its end, empty when it did not."""
        return Outcome(
            token_times_s=tuple(self._times_s),
            t_end_s=now_s,
            text="".join(self._text),
            n_in=self._n_in,
            n_out=self._n_out,
            cached_tokens=self._cached,
            simulated=self._simulated,
            error=self._failure(cut),
        )

    def _failure(self, cut: str) -> str:
        if self._error:
            return self._error
        if self._status and self._status != 200:
            return _clean(f"HTTP {self._status}: {_message(self._tail)}")
        if self._done:
            return ""
        return cut or "the stream ended without [DONE]"

    def _event(self, data: bytes, now_s: float) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        if not self._keep_text and data.startswith(b"{") and data.endswith(b"}") and _is_usual(data):
            self._times_s.append(now_s)  # several events in one read
            return
        try:
            event = json.loads(data)
            self._read(event, now_s)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            self._error = self._error or _clean(f"an event that is no completion chunk: {_text(data)}")

    def _read(self, event: dict[str, Any], now_s: float) -> None:
        if "error" in event:
            error = event["error"]
            code = error.get("code") if isinstance(error, dict) else None
            self._error = _clean(f"error event{f' {code}' if code else ''}: {_error_text(error)}")
            return
        choices = event.get("choices")
        if choices:
            self._delta(choices[0]["delta"], now_s)
        usage = event.get("usage")
        if usage:
            self._n_in, self._n_out = usage["prompt_tokens"], usage["completion_tokens"]
            self._simulated |= is_simulated(event.get("system_fingerprint") or "")
            details = usage.get("prompt_tokens_details")
            if details:
                self._cached = details.get("cached_tokens")

    def _delta(self, delta: dict[str, Any], now_s: float) -> None:
        text = delta.get("content")
        if text:
            self._text.append(text)
        elif not _carries_tokens(delta):
            return
        self._times_s.append(now_s)


def _is_usual(event: bytes) -> bool:
    """Whether ``event`` surely carries a piece of text and nothing else that counts."""
    at = event.find(_TEXT_MARK)
    if at < 0 or event[at + len(_TEXT_MARK)] == _QUOTE:
        return False
    return not (b'"usage":{' in event or b'"error":' in event or b'"role":' in event)


def _carries_tokens(delta: dict[str, Any]) -> bool:
    """Whether a delta without text stands for tokens: reasoning, a tool call, or the empty piece of a character."""
    if "role" in delta:
        return any(delta.get(key) for key in _TOKEN_KEYS)
    return any(delta.get(key) is not None for key in _TOKEN_KEYS)


def _message(body: bytes) -> str:
    try:
        document = json.loads(body)
        return _error_text(document.get("error", document))
    except (ValueError, AttributeError):
        return _text(body) or "empty answer"


def _error_text(error: object) -> str:
    if isinstance(error, dict):
        return str(error.get("message") or error.get("type") or error)
    return str(error)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()


def _clean(text: str) -> str:
    """One line of printable characters of a sensible length: it ends up on a terminal."""
    printable = "".join(char if char.isprintable() else " " for char in text[: 4 * MAX_ERROR_CHARS])
    return " ".join(printable.split())[:MAX_ERROR_CHARS]
