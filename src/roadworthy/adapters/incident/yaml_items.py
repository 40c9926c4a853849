"""The items of a list that kubectl prints as YAML, one at a time as its lines stream by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ITEM_MOST_BYTES = 4 * 2**20


class YamlItems:
    """Feed it lines; it yields what :class:`roadworthy.diagnose.arrays.ArrayObjects` does for JSON."""

    def __init__(self) -> None:
        self._rest = b""
        self._item: list[bytes] = []
        self._started, self._line = 0, 0
        self._among_items = False
        self.damaged = False

    def feed(self, piece: bytes) -> Iterator[tuple[Any, int]]:
        """(item, line that it starts on) for all that another item or the list's end follows."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            yield from self._next(line)

    def end(self) -> Iterator[tuple[Any, int]]:
        """The last item, where the list ends with it."""
        yield from self._next(self._rest)
        yield from self._done()

    def finished(self) -> bool:
        """Whether every item could be read."""
        return not self.damaged

    def _next(self, line: bytes) -> Iterator[tuple[Any, int]]:
        self._line += 1
        if line.startswith(b"- ") or (line and line[:1] not in b" \t#\r"):
            yield from self._done()
            self._among_items = line.startswith((b"items:", b"- "))
            if line.startswith(b"- "):
                self._item, self._started = [b"  " + line[2:]], self._line
        elif self._item and self._among_items:
            self._item.append(line)

    def _done(self) -> Iterator[tuple[Any, int]]:
        lines, self._item = self._item, []
        if not lines:
            return
        text = b"\n".join(lines)
        try:
            if len(text) > ITEM_MOST_BYTES:
                raise yaml.YAMLError
            item = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (yaml.YAMLError, ValueError, RecursionError):
            self.damaged = True
            return
        yield item, self._started
