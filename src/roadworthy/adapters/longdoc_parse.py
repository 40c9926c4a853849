"""One file into units, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.adapters.longdoc_read.read import read_document
from roadworthy.adapters.longdoc_store import MOST_ABOUT, digest_of
from roadworthy.adapters.longdoc_tokens import counter
from roadworthy.longdoc.lexical import TermCounts, count_terms
from roadworthy.longdoc.pages import paged
from roadworthy.longdoc.split import split

if TYPE_CHECKING:
    from PIL.Image import Image

    from roadworthy.adapters.longdoc_read.pdf import PagesDone, Recognise
    from roadworthy.longdoc.values import Unit

OCR_WANTED = "ocr wanted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseTask:
    """What is to be parsed.

    Args:
        settings: beside the file's bytes, what shapes what is stored.
        stored: digest of what is stored under that name; empty where nothing is.
        ocr: whether pages that are pictures can be read, though not in this process.
        tokenizer: that sizes are counted with; empty to estimate them.
        alone: whether it is tried by itself, because a process died over it and others.
    """

    path: Path
    name: str
    settings: str
    stored: str = ""
    ocr: bool = False
    tokenizer: str = ""
    alone: bool = False

    def again_alone(self) -> ParseTask:
        return replace(self, alone=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What came of it: ``outcome`` is ``parsed``, ``unchanged``, ``failed`` or :data:`OCR_WANTED`."""

    outcome: str
    digest: str = ""
    kind: str = ""
    characters: int = 0
    about: str = ""
    tokens: int = 0
    pages: int = 0
    ocr_pages: tuple[int, ...] = ()
    unread_pages: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    units: tuple[Unit, ...] = ()
    terms: TermCounts = field(default_factory=lambda: count_terms(()))
    error: str = ""
    hint: str = ""


class _OcrWanted(Exception):
    """A page is a picture, and this process reads none."""


def parse(task: ParseTask) -> Parsed:
    """Parse a file; runs in a worker."""
    from roadworthy.adapters.longdoc_read.values import UnreadableError

    try:
        data = task.path.read_bytes()
    except OSError as error:
        return Parsed(outcome="failed", error=error.strerror or str(error))
    try:
        return parse_task(task, data, recognise=_none_here if task.ocr else None)
    except _OcrWanted:
        return Parsed(outcome=OCR_WANTED)
    except UnreadableError as error:
        return Parsed(outcome="failed", error=str(error), hint=error.hint)
    except MemoryError:
        return Parsed(outcome="failed", error="it takes more memory than there is", hint="split the file")


def parse_task(
    task: ParseTask, data: bytes, *, recognise: Recognise | None, progress: PagesDone | None = None
) -> Parsed:
    """Parse what was read of its file. Raises UnreadableError where nothing can be had out of it."""
    return parse_bytes(
        data, settings=task.settings, stored=task.stored, tokenizer=task.tokenizer, recognise=recognise,
        progress=progress,
    )  # fmt: skip


def settings_of(*, vectors: bool, more: Iterable[str] = ()) -> str:
    """What shapes what is stored of a document beside its bytes, with the version of how it is read."""
    return ",".join(("2", str(vectors), *more))


def parse_bytes(
    data: bytes,
    *,
    settings: str,
    stored: str,
    tokenizer: str = "",
    recognise: Recognise | None = None,
    progress: PagesDone | None = None,
) -> Parsed:
    """Parse a document, unless it is the ``stored`` one. Raises UnreadableError where nothing can be had out of it."""
    digest = digest_of(data, settings=settings)
    if digest == stored:
        return Parsed(outcome="unchanged", digest=digest)
    count = counter(tokenizer)
    read = read_document(data, recognise=recognise, progress=progress)
    units, notes = split(read.text, count)
    units = paged(units, read.page_starts)
    if read.unread_pages:
        digest += ", in part"  # never taken for what is there already: with OCR installed, the rest can be had
    return Parsed(
        outcome="parsed", digest=digest, kind=read.kind, characters=len(read.text),
        about=read.text[:MOST_ABOUT], tokens=count(read.text),
        pages=read.pages, ocr_pages=read.ocr_pages, unread_pages=read.unread_pages,
        notes=(*read.notes, *(note.message for note in notes)), units=units,
        terms=count_terms(" ".join((*unit.path, unit.label, unit.title, unit.text)) for unit in units),
    )  # fmt: skip


def _none_here(pictures: Iterable[tuple[int, Image | None]]) -> Iterator[tuple[int, str]]:
    for number, picture in pictures:
        if picture is not None:
            raise _OcrWanted
        yield number, ""
