"""Reads answers of a Prometheus as they stream by: `query_range` and `query` (also of Thanos, Mimir, VictoriaMetrics),
and VictoriaMetrics' export of one series a line. One series is held at a time, whatever the size of the answer."""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any

from roadworthy.diagnose.metrics.series import series_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.metrics.series import Series

ANSWER = re.compile(
    rb'^\s*\{(?=.{0,600}?"result(?:Type)?"\s*:\s*(?:"(?:matrix|vector)"|\[\s*\{\s*"(?:metric|values?)"))', re.DOTALL
)
EXPORT = re.compile(rb'^\s*\{\s*"metric"\s*:\s*\{')
RESULT = re.compile(r'"result"\s*:\s*\[')
BETWEEN = re.compile(r"[\s,]*")
SERIES_MOST_CHARACTERS = 64 * 2**20
"""A Prometheus gives at most 11,000 points a series, some 300 kB."""

KEEP_BEFORE = 64
"""Characters kept while looking for the next result: its key may be cut in two."""


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
        self._text, self._line, self._inside = "", 1, False
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self._json = json.JSONDecoder()
        self.damaged = False

    def feed(self, piece: bytes) -> Iterator[Series]:
        """Series that are complete with this piece."""
        self._text += self._decode.decode(piece)
        while not self.damaged:
            at = self._next()
            if at is None:
                return
            try:
                found, end = self._json.raw_decode(self._text, at)
            except ValueError:
                self.damaged = len(self._text) - at > SERIES_MOST_CHARACTERS
                return
            line = self._line
            self._pass(end)
            one = self._series(found, line)
            if one is not None:
                yield one

    def finished(self) -> bool:
        """Whether the answer was whole: nothing of it was left over."""
        return not self.damaged and not self._inside and not self._text.lstrip().startswith("{")

    def _next(self) -> int | None:
        """Where the next series starts; what lies before is passed over."""
        while True:
            if not self._inside:
                export = EXPORT.match(self._text[:200].encode("utf-8", "replace"))
                if export:
                    self._pass(BETWEEN.match(self._text).end())  # type: ignore[union-attr]
                    return 0
                found = RESULT.search(self._text)
                if found is None:
                    if not self._text.lstrip().startswith("{"):
                        self._pass(max(0, len(self._text) - KEEP_BEFORE))
                    elif len(self._text) > SERIES_MOST_CHARACTERS:
                        self.damaged = True
                    return None
                self._pass(found.end())
                self._inside = True
            self._pass(BETWEEN.match(self._text).end())  # type: ignore[union-attr]
            if not self._text:
                return None
            if self._text[0] == "]":
                self._inside = False
                self._pass(1)
                continue
            if self._text[0] != "{":
                self.damaged = True
                return None
            return 0

    def _pass(self, end: int) -> None:
        self._line += self._text.count("\n", 0, end)
        self._text = self._text[end:]

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
