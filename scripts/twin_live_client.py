"""Requests at their moments to a live engine, and how they went."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request of a schedule."""

    at_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How it went: seconds from its scheduled moment."""

    ttft_s: float
    e2e_s: float
    output_tokens: int

    @property
    def tpot_s(self) -> float:
        return (self.e2e_s - self.ttft_s) / max(1, self.output_tokens - 1)


def median(answers: Sequence[Answer], name: str) -> float:
    return statistics.median(getattr(answer, name) for answer in answers)


def live(url: str, asked: Sequence[Asked], seed: int) -> list[Answer]:
    """Send every request at its moment and read the streams; prompts are drawn with ``seed``, before the clock starts.

    Raises:
        ConnectionError: the engine answered one without a token.
    """
    parts = urlsplit(url)
    host, port = str(parts.hostname), int(parts.port or 80)
    sent = [_request(host, one, random.Random(seed * 10_000 + number)) for number, one in enumerate(asked)]

    async def all_of_them() -> list[Answer]:
        start_s = time.perf_counter() + 0.05
        streams = (_stream(host, port, one, start_s, text) for one, text in zip(asked, sent, strict=True))
        return list(await asyncio.gather(*streams))

    return asyncio.run(all_of_them())


def _request(host: str, asked: Asked, rng: random.Random) -> bytes:
    """The request as it goes over the wire: random tokens, so that no two prompts share a cached block."""
    body = json.dumps(
        {
            "model": "tiny", "prompt": [rng.randrange(8, 500) for _ in range(asked.prompt_tokens)], "stream": True,
            "max_tokens": asked.output_tokens, "ignore_eos": True, "temperature": 0,
        }
    ).encode()  # fmt: skip
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _stream(host: str, port: int, asked: Asked, start_s: float, request: bytes) -> Answer:
    at_s = start_s + asked.at_s
    await asyncio.sleep(max(0.0, at_s - time.perf_counter()))
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    first_s = last_s = 0.0
    tail = b""
    while data := await reader.read(1 << 16):
        now_s = time.perf_counter()
        if b"data: {" in tail[-8:] + data:
            first_s, last_s = first_s or now_s, now_s
        tail = (tail + data)[-64:]
        if b"[DONE]" in tail:
            break
    writer.close()
    if not first_s:
        raise ConnectionError(f"{host}:{port} answered without a token: {tail!r}")
    return Answer(ttft_s=first_s - at_s, e2e_s=last_s - at_s, output_tokens=asked.output_tokens)
