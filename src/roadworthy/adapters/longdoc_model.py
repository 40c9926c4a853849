"""A chat model behind the OpenAI API: the gateway, vLLM itself, or anything that speaks it.

Beside chat there are the two plugs of search, ``/v1/embeddings`` and ``/v1/rerank``.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import ssl
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any
from urllib.parse import urlsplit

from roadworthy.adapters.urls import NoRedirect, http_parts
from roadworthy.core.errors import ProbeError, RoadworthyError, Temporary
from roadworthy.longdoc.converse import Message, Spoken, TooLong

TIMEOUT_S = 600.0
"""For the next bytes, not for the whole answer: a long prompt in a queue takes its time."""

MOST_TRIES = 4
LONGEST_WAIT_S = 30.0
MOST_BYTES = 64 * 2**20
KEY_VARIABLE = "ROADWORTHY_KEY"

RERANK_PATHS = ("/v1/rerank", "/rerank", "/v2/rerank", "/v1/score", "/score")

_TOO_LONG = (
    "context length", "maximum model length", "max_model_len", "context_length", "too long", "input tokens",
    "must have less than", "sequence length", "maximum length",
)  # fmt: skip
_MANY = ("array", "batch", "too many", "list length")
_AGAIN = (408, 425, 429, 500, 502, 503, 504)


class NotThere(ProbeError):
    """Neither the path nor the model is known there."""


class TooMuch(ProbeError):
    """A request of several texts that was refused as it is; fewer at once may go through."""


class ModelClient:
    """One endpoint and one model.

    Args:
        url: with or without ``/v1``.
        model: None takes the only one, or the first, that the endpoint lists.
        session: sent as ``x-session-id``, so that the rounds of a question meet the same prefix cache.
        sleep: waits seconds; what the server asks for in ``Retry-After``.
        called: what errors call the endpoint; its URL unless given.

    Raises:
        SpecError: ``url`` is no URL.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        key: str | None = None,
        session: str = "",
        timeout_s: float = TIMEOUT_S,
        sleep: Callable[[float], None] = time.sleep,
        called: str | None = None,
    ) -> None:
        self.url = _base(url)
        self._called = called or self.url
        self._model, self._key, self._session = model, key, session
        self._timeout_s, self._sleep = timeout_s, sleep
        handlers: list[urllib.request.BaseHandler] = [NoRedirect()]
        if urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1"):
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy knows another localhost
        self._opener = urllib.request.build_opener(*handlers)
        self._cards: list[dict[str, Any]] | None = None
        self._scores_by: str | None = None

    @property
    def model(self) -> str:
        """The name that requests carry. Raises ProbeError where none is given and the endpoint lists none."""
        if self._model is None:
            cards = self._listed()
            if not cards:
                raise ProbeError(f"{self._called} lists no model", hint="name one with --model")
            self._model = str(cards[0].get("id", ""))
        return self._model

    def listed(self) -> list[str]:
        """Names of the models that the endpoint lists."""
        return [str(card.get("id", "")) for card in self._listed()]

    def window_tokens(self) -> int | None:
        """``max_model_len`` of the model as the endpoint lists it; None where it does not say."""
        for card in self._listed():
            length = card.get("max_model_len")
            if card.get("id") == self.model and isinstance(length, int) and length > 0:
                return length
        return None

    def chat(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        io_wait_s: float = 0.0,
        heard: Callable[[str], None] = lambda _: None,
    ) -> Spoken:
        """Speak at temperature 0; ``heard`` gets every piece of text as it arrives.

        Raises:
            TooLong: more tokens than the model takes.
            Temporary: the endpoint is busy beyond a few tries, or broke off.
            ProbeError: it is not there, or refuses.
        """
        body = {
            "model": self.model, "messages": [{"role": one.role, "content": one.content} for one in messages],
            "max_tokens": max_tokens, "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        headers = {"x-roadworthy-io-wait-ms": str(max(0, round(io_wait_s * 1000)))}
        with self._opened("/v1/chat/completions", body, headers) as answer:
            try:
                return _spoken(_events(answer), heard)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise Temporary(
                    f"{self._called} broke off in the middle of an answer: {error or type(error).__name__}",
                    hint="ask again; the log of the gateway or engine says why",
                ) from None

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text, in order, of ``/v1/embeddings``."""
        data = self._data("/v1/embeddings", {"model": self.model, "input": list(texts), "encoding_format": "float"})
        try:
            rows = sorted(data["data"], key=lambda row: int(row["index"]))
            vectors = [_numbers(row["embedding"]) for row in rows]
        except (KeyError, TypeError, ValueError, struct.error):
            vectors = []
        if len(vectors) != len(texts) or len({len(one) for one in vectors}) > 1:
            raise ProbeError(f"{self._called}/v1/embeddings: no vector for each of {len(texts)} texts")
        return vectors

    def rerank(self, question: str, texts: Sequence[str]) -> list[float]:
        """A relevance for each text, in order: of ``/v1/rerank`` (as vLLM, Jina, Cohere and TEI have it) where there
        is one, else of ``/v1/score``."""
        if self._scores_by is None:
            self._scores_by = self._reranks(question, texts)
        path, body = self._scores_by, self._rerank_body(self._scores_by, question, texts)
        data = self._data(path, body)
        if isinstance(data, dict):
            data = data.get("results", data.get("data"))
        try:
            scores = {int(row["index"]): _relevance(row) for row in data}
        except (KeyError, TypeError, ValueError):
            scores = {}
        if sorted(scores) != list(range(len(texts))):
            raise ProbeError(f"{self._called}{path}: no score for each of {len(texts)} texts")
        if not all(map(math.isfinite, scores.values())):
            raise ProbeError(f"{self._called}{path}: scores that are no numbers (NaN or infinite)")
        return [scores[place] for place in range(len(texts))]

    def _reranks(self, question: str, texts: Sequence[str]) -> str:
        """The first path that is there."""
        missing: RoadworthyError | None = None
        for path in RERANK_PATHS:
            try:
                self._data(path, self._rerank_body(path, question, texts[:1]))
            except NotThere as error:
                missing = missing or error
            else:
                return path
        raise ProbeError(f"{missing}", hint=f"name a reranker that is served there; tried {', '.join(RERANK_PATHS)}")

    def _rerank_body(self, path: str, question: str, texts: Sequence[str]) -> dict[str, Any]:
        if path.endswith("score"):
            return {"model": self.model, "text_1": question, "text_2": list(texts)}
        return {"model": self.model, "query": question, "documents": list(texts), "top_n": len(texts)}

    def _listed(self) -> list[dict[str, Any]]:
        if self._cards is None:
            data = self._data("/v1/models", None)
            cards = data.get("data") if isinstance(data, dict) else None
            self._cards = [one for one in cards if isinstance(one, dict)] if isinstance(cards, list) else []
        return self._cards

    def _data(self, path: str, body: Mapping[str, Any] | None) -> Any:
        with self._opened(path, body, {}) as answer:
            try:
                return json.loads(answer.read(MOST_BYTES))
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise ProbeError(
                    f"{self._called}{path}: no JSON came: {error}", hint="is this an OpenAI API?"
                ) from None

    def _opened(self, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]) -> Any:
        for attempt in range(1, MOST_TRIES + 1):
            request = urllib.request.Request(
                self.url + path, data=None if body is None else json.dumps(body).encode(),
                headers={"Accept": "*/*", "User-Agent": "roadworthy", **headers},
            )  # fmt: skip
            if body is not None:
                request.add_header("Content-Type", "application/json")
            if self._key:
                request.add_header("Authorization", f"Bearer {self._key}")
            if self._session:
                request.add_header("x-session-id", self._session)
            try:
                return self._opener.open(request, timeout=self._timeout_s)
            except urllib.error.HTTPError as error:
                with error:
                    refused = self._refused(path, error.code, error.read(MOST_BYTES))
                    if not isinstance(refused, Temporary) or attempt == MOST_TRIES:
                        raise refused from None
                    self._sleep(_wait_s(error.headers.get("Retry-After"), attempt))
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)
                why = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
                raise ProbeError(
                    f"{self._called} does not answer: {why}",
                    hint="check the certificate"
                    if isinstance(reason, ssl.SSLError)
                    else "is the gateway running there?",
                ) from None
        raise AssertionError("the last try returns or raises")

    def _refused(self, path: str, status: int, body: bytes) -> RoadworthyError:
        message, hint = _error_of(body)
        said = f"{self._called}{path}: HTTP {status}" + (f": {message}" if message else "")
        several = path.endswith("embeddings") and status in (400, 413, 422)
        if several and any(word in message.lower() for word in _MANY):
            return TooMuch(said, hint=hint)
        if status in (400, 413, 422) and any(word in message.lower() for word in _TOO_LONG):
            return TooLong(said, hint="give a smaller --budget")
        if several:
            return TooMuch(said, hint=hint or "does that model make embeddings?")
        if status in (404, 405, 501):
            return NotThere(said, hint=hint or "is the model served there, under this name?")
        if status in _AGAIN:
            return Temporary(said, hint=hint or "try again later")
        if status in (401, 403):
            return ProbeError(said, hint=hint or f"--key, or export {KEY_VARIABLE}")
        return ProbeError(said, hint=hint)


def _numbers(embedding: Any) -> list[float]:
    """Of a list, in which some servers write null for NaN, or of base64."""
    if isinstance(embedding, str):
        data = base64.b64decode(embedding, validate=True)
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    return [math.nan if one is None else float(one) for one in embedding]


def _relevance(row: Mapping[str, Any]) -> float:
    found = row["relevance_score"] if "relevance_score" in row else row["score"]
    return math.nan if found is None else float(found)


def _base(url: str) -> str:
    parts = http_parts(url, hint="the data port of a gateway, or of an engine")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


def _wait_s(retry_after: str | None, attempt: int) -> float:
    try:
        asked_s = float(retry_after) if retry_after is not None else 0.5 * 2**attempt
    except ValueError:
        asked_s = 0.5 * 2**attempt
    return min(LONGEST_WAIT_S, max(0.0, asked_s))


def _error_of(body: bytes) -> tuple[str, str]:
    """Message and hint of an error body in the OpenAI shape, vLLM's own or none."""
    try:
        data = json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace").strip()[:300], ""
    error = data.get("error", data) if isinstance(data, dict) else data
    if not isinstance(error, dict):
        return str(error)[:300], ""
    return str(error.get("message") or error.get("detail") or "")[:500], str(error.get("hint") or "")


def _events(answer: IO[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON of server-sent events. Raises ValueError where the stream ends without its end mark."""
    for raw in answer:
        line = raw.decode("utf-8", "replace").strip()
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        event = json.loads(data)
        if isinstance(event, dict):
            yield event
    raise ValueError("the stream ended early")


def _spoken(events: Iterator[dict[str, Any]], heard: Callable[[str], None]) -> Spoken:
    pieces: list[str] = []
    cut = False
    usage: dict[str, Any] = {}
    for event in events:
        if "error" in event:
            raise ValueError(_error_of(json.dumps(event).encode())[0])
        usage = event.get("usage") or usage
        for choice in event.get("choices") or ():
            piece = (choice.get("delta") or {}).get("content")
            if isinstance(piece, str) and piece:
                pieces.append(piece)
                heard(piece)
            cut |= choice.get("finish_reason") == "length"
    details = usage.get("prompt_tokens_details") or {}
    return Spoken(
        text="".join(pieces), cut=cut, prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"), cached_tokens=details.get("cached_tokens"),
    )  # fmt: skip
