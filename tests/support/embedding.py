"""An embedding endpoint whose vectors see shared characters, or nothing at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from fakes.engine import Asked, plain

if TYPE_CHECKING:
    from fakes.engine import Answer

DIMENSION = 512

Embed = Callable[[Sequence[str]], list[list[float]]]


def by_pairs(texts: Sequence[str], size: int = DIMENSION) -> list[list[float]]:
    """Vectors of pairs of characters: near where texts share words, which is all that a test needs."""
    vectors = []
    for text in texts:
        vector = [0.0] * size
        for at in range(len(text) - 1):
            vector[crc32(text[at : at + 2].lower().encode()) % size] += 1.0
        vectors.append(vector)
    return vectors


def by_chance(texts: Sequence[str]) -> list[list[float]]:
    """Vectors that have nothing to do with what the texts say."""
    return [[float(crc32(f"{at} {text}".encode()) % 2001 - 1000) for at in range(64)] for text in texts]


def all_alike(texts: Sequence[str]) -> list[list[float]]:
    return [[1.0] * 64 for _ in texts]


def embedding(
    embed: Embed = by_pairs, *, most: int = 0, longest: int = 0, fails_after: int = 0, told: list[Any] | None = None
) -> Answer:
    """An endpoint.

    Args:
        most: texts that it takes at once.
        longest: characters of a text that it takes.
        fails_after: requests; then it only fails.
        told: gets the body of each request that is answered.
    """
    seen = 0

    async def answer(asked: Asked) -> None:
        nonlocal seen
        seen += 1
        body: Any = asked.json()
        texts = body["input"]
        if fails_after and seen > fails_after:
            await plain(400, b'{"error": {"message": "CUDA error: device-side assert"}}')(asked)
        elif most and len(texts) > most:
            await plain(422, json.dumps({"error": {"message": f"batch size > {most}"}}).encode())(asked)
        elif longest and any(len(text) > longest for text in texts):
            message = f"This model's maximum context length is {longest} tokens."
            await plain(400, json.dumps({"error": {"message": message}}).encode())(asked)
        else:
            if told is not None:
                told.append(body)
            rows = [{"index": at, "embedding": one} for at, one in enumerate(embed(texts))]
            await plain(200, json.dumps({"data": rows[::-1]}).encode())(asked)

    return answer
