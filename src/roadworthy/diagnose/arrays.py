"""The objects of a JSON array, one at a time as its text streams by: answers are larger than what we hold."""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

BETWEEN, LOOSE = re.compile(r"[\s,]*"), re.compile(r"[\s,\[\]]*")
OBJECT_MOST_CHARACTERS = 64 * 2**20
KEEP_BEFORE = 64
"""Characters kept while looking for the next array: its key may be cut in two."""


class ArrayObjects:
    """Objects of every array that follows ``key``, fed with pieces cut anywhere.

    Args:
        key: name of the arrays; an empty one takes the objects that the text itself is made of: lines of JSON, or one
            array of them.
    """

    def __init__(self, key: str) -> None:
        self._key = re.compile(rf'"{re.escape(key)}"\s*:\s*\[') if key else None
        self._text, self._at, self._line = "", 0, 1
        self._inside = self._entered = not key
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self._json = json.JSONDecoder()
        self.damaged = False

    def feed(self, piece: bytes) -> Iterator[tuple[Any, int]]:
        """(object, line that it starts on) for all that are complete with this piece."""
        self._text = self._text[self._at :] + self._decode.decode(piece)
        self._at = 0
        while not self.damaged and self._at_object():
            try:
                found, end = self._json.raw_decode(self._text, self._at)
            except ValueError:
                self.damaged = len(self._text) - self._at > OBJECT_MOST_CHARACTERS
                return
            line = self._line
            self._pass(end)
            yield found, line

    def finished(self) -> bool:
        """Whether the text was whole: no array was left open, no object half told."""
        if self.damaged or not self._entered:
            return False
        return not self._inside or (self._key is None and not self._text[self._at :].strip())

    def _at_object(self) -> bool:
        """Whether the text now goes on with an object of an array; what lies before is passed over."""
        while self._inside or self._enter():
            between = LOOSE if self._key is None else BETWEEN
            self._pass(between.match(self._text, self._at).end())  # type: ignore[union-attr]
            following = self._text[self._at : self._at + 1]
            if following in ("", "{"):
                return bool(following)
            if following != "]":
                self.damaged = True
                return False
            self._inside = False
            self._pass(self._at + 1)
        return False

    def _enter(self) -> bool:
        found = self._key.search(self._text, self._at) if self._key is not None else None
        if found is None:
            self._pass(max(self._at, len(self._text) - KEEP_BEFORE))
            return False
        self._pass(found.end())
        self._inside = self._entered = True
        return True

    def _pass(self, end: int) -> None:
        self._line += self._text.count("\n", self._at, end)
        self._at = end
