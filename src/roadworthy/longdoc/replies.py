"""What a model wrote, as values: JSON objects are taken out of whatever stands around them, as they are completed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MOST_CHARACTERS = 200_000
"""Of one object; what is longer is no answer."""

_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


class Objects:
    """Complete JSON objects out of text that arrives in pieces; objects inside a list or an object named in ``within``
    are given one by one, when the outer one is complete."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._depth = 0
        self._in_text = self._escaped = False

    def feed(self, piece: str) -> Iterator[dict[str, Any]]:
        """Objects that ``piece`` completes; what only looks like one is passed over."""
        for letter in piece:
            if not self._depth:
                if letter == "{":
                    self._depth, self._open = 1, [letter]
                continue
            self._open.append(letter)
            if self._in_text:
                self._in_text = self._escaped or letter != '"'
                self._escaped = letter == "\\" and not self._escaped
                continue
            if letter == '"':
                self._in_text, self._escaped = True, False
            elif letter in "{}":
                self._depth += 1 if letter == "{" else -1
                if not self._depth:
                    yield from self._done()
            if len(self._open) > MOST_CHARACTERS:
                self._depth, self._open, self._in_text = 0, [], False

    def _done(self) -> Iterator[dict[str, Any]]:
        text, self._open = "".join(self._open), []
        try:
            value = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict):
            yield value


class WithoutThoughts:
    """Text without what stands between ``<think>`` and ``</think>``, piece by piece."""

    def __init__(self) -> None:
        self._held = ""
        self._thinking = False

    def feed(self, piece: str) -> str:
        """What of the text up to here is no thought."""
        self._held += piece
        said = ""
        while True:
            tag = "</think>" if self._thinking else "<think>"
            before, found, after = self._held.partition(tag)
            if not found:
                kept = _held_back(self._held, tag)
                out, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
                return said if self._thinking else said + out
            said += "" if self._thinking else before
            self._thinking, self._held = not self._thinking, after

    def end(self) -> str:
        """What was held back because it might have begun a tag."""
        held, self._held = self._held, ""
        return "" if self._thinking else held


def _held_back(text: str, tag: str) -> int:
    """How many characters at the end of ``text`` may be the beginning of ``tag``."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-size:])), 0)


def objects(text: str) -> list[dict[str, Any]]:
    """All JSON objects of a whole answer."""
    return list(Objects().feed(_THOUGHT.sub("", text)))


def texts(value: object, *, most: int, longest: int) -> list[str]:
    """The strings of a list that should be one of strings; anything else is left out."""
    found = value if isinstance(value, list) else [value]
    return [one.strip()[:longest] for one in found if isinstance(one, str) and one.strip()][:most]
