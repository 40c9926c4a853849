"""Which texts begin alike: a tree of segments, so that prefix caching costs a prompt's segments and not its tokens.

vLLM names a full block by a hash of everything up to its end. Here a :class:`Text` is one segment after certain other
text, so (text, number of the block) names a block just as well: two prompts share a block exactly if their paths
through the tree agree up to its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from roadworthy.twin.requests import Sequence
    from roadworthy.twin.runs import Run


class Text:
    """One segment after the text of ``parent`` up to token ``start``.

    ``runs`` are the cached blocks that end in it, by cache group and in the order in which they were cached.
    ``users`` counts requests whose path ends here; ``writers`` are decoding requests that fill blocks here and have
    not told (see :mod:`roadworthy.twin.lane`).
    """

    __slots__ = ("children", "key", "parent", "runs", "start", "users", "writers")

    def __init__(self, parent: Text | None, key: Hashable, start: int) -> None:
        self.parent = parent
        self.key = key
        self.start = start
        self.children: dict[tuple[int, Hashable], Text] = {}
        self.runs: dict[int, list[Run]] = {}
        self.users = 0
        self.writers: list[Sequence] | None = None

    def forget_if_unused(self) -> None:
        """Leave the tree when nobody is here and nothing is cached, and so with every text before."""
        text = self
        while not (text.users or text.children or text.runs) and (parent := text.parent) is not None:
            parent.children.pop((text.start, text.key), None)
            text = parent


class Path:
    """A request's way through the tree: its texts in order, and the token at which each of them ends."""

    __slots__ = ("ends", "texts")

    def __init__(self, root: Text, pieces: Iterable[tuple[Hashable, int]]) -> None:
        """Follow ``pieces``, each an identity and its tokens, and add to the tree what is new."""
        self.texts: list[Text] = []
        self.ends: list[int] = []
        text, at = root, 0
        for identity, tokens in pieces:
            if tokens <= 0:
                continue
            key = (at, identity)
            child = text.children.get(key)
            if child is None:
                child = text.children[key] = Text(text, identity, at)
            at += tokens
            self.texts.append(child)
            self.ends.append(at)
            text = child
        text.users += 1

    def leave(self) -> None:
        """Say that the request is gone."""
        if self.texts:
            last = self.texts[-1]
            last.users -= 1
            last.forget_if_unused()
