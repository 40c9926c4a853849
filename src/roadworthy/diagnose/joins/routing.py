"""What routers and proxies say about where requests go and how their answers come back."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from roadworthy.diagnose.values import derived

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.values import Clue, ClueBook, Document, Line

BINDING = re.compile(
    r"\b(?:session|conversation|conv|chat)(?:_?id)?[=: ]+\"?(?P<session>[\w.-]+).*?"
    r"\b(?:worker|replica|backend|instance|target|upstream|endpoint|pod)(?:_?id)?[=: ]+\"?(?P<worker>[\w.:/-]+)",
    re.IGNORECASE,
)


def bindings(book: ClueBook) -> Iterator[Clue]:
    """``router.replicas-disagree``: two routers bind one session to two workers; neither knows of the other."""
    seen: dict[str, dict[str, tuple[Document, Line, str]]] = defaultdict(dict)
    for document in book.documents:
        for line in document.numbered():
            if found := BINDING.search(line.text):
                seen[found["session"]].setdefault(found["worker"], (document, line, document.file))
    for session, workers in seen.items():
        if len({file for _, _, file in workers.values()}) > 1:
            (document, line, _), (_, other, _) = list(workers.values())[:2]
            yield document.clue("router.replicas-disagree", line, other, session=session, workers=" and ".join(workers))
            return


def proxies(book: ClueBook) -> Iterator[Clue]:
    """``proxy.nowhere-buffering``: every proxy of the path has it off; one that has it on is enough to buffer."""
    off = book.first("proxy.buffering-off")
    if off is not None and not book.has("proxy.buffering-on", "proxy.buffering-default"):
        yield derived(off, "proxy.nowhere-buffering")


JOINS = (bindings, proxies)
