"""Reads answers of a Prometheus as they stream by: `query_range` and `query` (also of Thanos, Mimir, VictoriaMetrics),
and VictoriaMetrics' export of one series a line. One series is held at a time, whatever the size of the answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from roadworthy.diagnose.arrays import ArrayObjects
from roadworthy.diagnose.metrics.series import series_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.metrics.series import Series

ANSWER = re.compile(
    rb'^\s*\{(?=.{0,600}?"result(?:Type)?"\s*:\s*(?:"(?:matrix|vector)"|\[\s*\{\s*"(?:metric|values?)"))', re.DOTALL
)
EXPORT = re.compile(rb'^\s*\{\s*"metric"\s*:\s*\{')


def is_answer(head: bytes) -> bool:
    """Whether a file that starts so is an answer of a Prometheus, whatever its name."""
    return bool(ANSWER.search(head) or EXPORT.search(head))


class AnswerReader:
    """Series of one answer, fed piece by piece; pieces may be cut anywhere.

    Args:
        file: for the evidence.
        name: of series that have none, such as those of an expression.
    """

    def __init__(self, file: str, *, name: str = "") -> None:
        self._file, self._name = file, name
        self._objects: ArrayObjects | None = None

    def feed(self, piece: bytes) -> Iterator[Series]:
        """Series that are complete with this piece; the first piece tells which form it is."""
        if self._objects is None:
            self._objects = ArrayObjects("" if EXPORT.search(piece) else "result")
        for found, line in self._objects.feed(piece):
            one = self._series(found, line)
            if one is not None:
                yield one

    def finished(self) -> bool:
        """Whether the answer was whole."""
        return self._objects is not None and self._objects.finished()

    def _series(self, found: Any, line: int) -> Series | None:
        if not isinstance(found, dict) or not isinstance(found.get("metric"), dict):
            return None
        labels = {str(key): str(value) for key, value in found["metric"].items()}
        try:
            points = _points(found)
        except (TypeError, ValueError):
            return None
        return series_of(labels, points, file=self._file, line=line, name=self._name)


def _points(found: dict[str, Any]) -> list[tuple[float, float]]:
    values = found.get("values")
    if isinstance(found.get("timestamps"), list) and isinstance(values, list):  # VictoriaMetrics counts milliseconds
        pairs = zip(found["timestamps"], values, strict=False)
        return [(float(time_ms) / 1000, float(value)) for time_ms, value in pairs if value is not None]
    if isinstance(values, list):
        return [(float(time_s), float(value)) for time_s, value in values]
    if isinstance(found.get("value"), list):
        time_s, value = found["value"]
        return [(float(time_s), float(value))]
    return []
