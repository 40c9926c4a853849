"""An embedding behind ``/v1/embeddings``: batches that shrink where they are refused, texts that are cut where they are
too long, and vectors that are looked at before anybody relies on them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy
from numpy.typing import NDArray

from roadworthy.adapters.longdoc_model import TooMuch
from roadworthy.core.errors import ProbeError, SpecError
from roadworthy.longdoc.converse import TooLong

if TYPE_CHECKING:
    from roadworthy.longdoc.values import Unit

Floats = NDArray[numpy.float32]

TEXTS_AT_ONCE = 32
CHARACTERS_AT_ONCE = 48_000
FEWEST_CHARACTERS = 64
"""A text so short is not cut any further: then it is not its length that the endpoint minds."""

REEMBED = "`roadworthy doc embed --embeddings URL --embedding-model NAME` makes all vectors anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """Which embedding made a library's vectors.

    Args:
        model: as the endpoint names it.
        url: where it answered when the vectors were made.
        dimension: numbers of a vector; 0 while none was made.
        query_prefix, passage_prefix: what the model wants before questions and before texts, such as ``query: ``.
    """

    model: str
    url: str = ""
    dimension: int = 0
    query_prefix: str = ""
    passage_prefix: str = ""

    @property
    def identity(self) -> str:
        """Two with the same one make vectors that can stand beside each other."""
        return "\0".join((self.model, self.query_prefix, self.passage_prefix))


class Endpoint(Protocol):
    """What is asked for vectors (:class:`roadworthy.adapters.longdoc_model.ModelClient`)."""

    url: str

    def embed(self, texts: Sequence[str]) -> list[list[float]]: ...


class Served:
    """Vectors of one model behind an endpoint.

    Raises, from its methods:
        SpecError: vectors of another length than the library's.
        ProbeError: the endpoint is not there, refuses, or what it sends is no vector.
    """

    def __init__(self, endpoint: Endpoint, model: ServedModel) -> None:
        self._endpoint, self.model = endpoint, model
        self.dimension = model.dimension
        self._at_once = TEXTS_AT_ONCE

    def key(self, text: str) -> str:
        """Names ``text``'s vector, of this model and no other."""
        return hashlib.sha256(f"{self.model.identity}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()

    def passages(self, texts: Sequence[str]) -> Iterator[Floats]:
        """One normalised vector a text, in order, as they come."""
        yield from self._in_batches(texts, self.model.passage_prefix)

    def questions(self, texts: Sequence[str]) -> Iterator[Floats]:
        """The same of questions."""
        yield from self._in_batches(texts, self.model.query_prefix)

    def question(self, text: str) -> Floats:
        """One question's."""
        return next(self._in_batches([text], self.model.query_prefix))

    def _in_batches(self, texts: Sequence[str], prefix: str) -> Iterator[Floats]:
        at = 0
        while at < len(texts):
            batch = _batch(texts, at, self._at_once)
            yield from self._vectors([prefix + text for text in batch])
            at += len(batch)

    def _vectors(self, texts: Sequence[str]) -> list[Floats]:
        try:
            return [self._checked(one) for one in self._endpoint.embed(texts)]
        except (TooLong, TooMuch) as error:
            if len(texts) > 1:
                half = len(texts) // 2
                if isinstance(error, TooMuch):  # of texts, so that the next ones come in as few
                    self._at_once = max(1, min(self._at_once, half))
                return [*self._vectors(texts[:half]), *self._vectors(texts[half:])]
            if isinstance(error, TooMuch) or len(texts[0]) < 2 * FEWEST_CHARACTERS:
                raise
            return [self._of_halves(texts[0])]

    def _of_halves(self, text: str) -> Floats:
        """Of a text beyond the model's length: both halves, weighted by theirs."""
        middle = len(text) // 2
        space = text.rfind(" ", middle - 200, middle + 1)
        middle = space if space > 0 else middle
        first, second = text[:middle], self.model.passage_prefix + text[middle:].lstrip()
        joint = len(first) * self._vectors([first])[0] + len(second) * self._vectors([second])[0]
        found: Floats = joint / max(float(numpy.linalg.norm(joint)), 1e-9)
        return found

    def _checked(self, numbers: Sequence[float]) -> Floats:
        where = f"{self._endpoint.url}/v1/embeddings"
        vector = numpy.array(numbers, dtype=numpy.float32)
        if self.dimension and len(vector) != self.dimension:
            raise SpecError(
                f"{where}: {self.model.model} gives vectors of {len(vector)} numbers, the library's have "
                f"{self.dimension}",
                hint=f"name the model that made them; {REEMBED}",
            )
        norm = float(numpy.linalg.norm(vector)) if len(vector) else 0.0
        if not math.isfinite(norm) or norm < 1e-9:
            what = "numbers that are none (NaN or infinite)" if len(vector) and norm != 0 else "a vector of nothing"
            raise ProbeError(
                f"{where}: {self.model.model} sent {what}",
                hint="the engine's log says why; half precision overflows with some models: --dtype float32",
            )
        self.dimension = len(vector)
        found: Floats = vector / numpy.float32(norm)
        return found


def _batch(texts: Sequence[str], at: int, most: int) -> Sequence[str]:
    end, characters = at, 0
    while end < len(texts) and end - at < most and (end == at or characters + len(texts[end]) <= CHARACTERS_AT_ONCE):
        characters += len(texts[end])
        end += 1
    return texts[at:end]


def embedded_text(unit: Unit) -> str:
    """What of a unit is embedded, by any model."""
    return f"{unit.title} {unit.text}".strip()
