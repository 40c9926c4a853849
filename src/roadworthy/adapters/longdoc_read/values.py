"""What a file gives, and what one that gives nothing says."""

from __future__ import annotations

from dataclasses import dataclass, field

from roadworthy.core.errors import RoadworthyError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDocument:
    """One file, read.

    Args:
        kind: what it was taken for, such as ``pdf``.
        text: line ends are LF.
        page_starts: the character of ``text`` at which each page begins; empty for formats without pages.
        pages: how many there were, read or not.
        ocr_pages: pages, counted from 1, whose words were recognised rather than read.
        unread_pages: pages that hold a picture, and no words that could be had.
        notes: what an operator should know of it.
    """

    kind: str
    text: str
    page_starts: tuple[int, ...] = ()
    pages: int = 0
    ocr_pages: tuple[int, ...] = ()
    unread_pages: tuple[int, ...] = ()
    notes: tuple[str, ...] = field(default=())


class UnreadableError(RoadworthyError):
    """A file out of which no text can be had. The message says why, the hint what to do."""
