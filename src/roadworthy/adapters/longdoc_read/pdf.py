"""PDF: the text layer page by page; a page that is a picture is left to OCR, where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from roadworthy.adapters.longdoc_read.values import ReadDocument, UnreadableError
from roadworthy.longdoc.pages import flowing

if TYPE_CHECKING:
    from PIL.Image import Image

FEWEST_CHARACTERS = 20
"""A page with fewer, and a picture on it, is taken for a scan."""

OCR_DPI = 200
MOST_PIXELS = 40_000_000
"""Of a page as it is drawn for OCR; a larger one is drawn smaller."""

Recognise = Callable[[Iterable[tuple[int, "Image | None"]]], Iterator[tuple[int, str]]]
"""Lines of print for each picture, in order (``ocr.Recogniser.pages``)."""

PagesDone = Callable[[int, int], None]
"""Hears of pages done, of how many."""


def read_pdf(data: bytes, *, recognise: Recognise | None = None, progress: PagesDone | None = None) -> ReadDocument:
    """The words of a PDF.

    Args:
        recognise: None where no OCR is at hand: pages that are pictures are then named as unread.

    Raises:
        UnreadableError: encrypted, damaged, or without pages.
    """
    document = _opened(data)
    try:
        count = len(document)
        if not count:
            raise UnreadableError("a PDF without pages")
        texts: list[str] = []
        scans: list[int] = []
        for number in range(count):
            text, is_scan = _page_text(document, number)
            texts.append(text)
            if is_scan:
                scans.append(number)
            if progress is not None and not is_scan:
                progress(number + 1 - len(scans), count)
        recognised, unread = _recognised(document, scans, recognise, progress, count)
    finally:
        document.close()
    for number, text in recognised.items():
        texts[number] = text
    flow = flowing(texts)
    return ReadDocument(
        kind="pdf", text=flow.text, page_starts=flow.page_starts, pages=count,
        ocr_pages=tuple(number + 1 for number in recognised), unread_pages=tuple(number + 1 for number in unread),
        notes=_notes(unread),
    )  # fmt: skip


def _notes(unread: Sequence[int]) -> tuple[str, ...]:
    if not unread:
        return ()
    pages = ", ".join(str(number + 1) for number in unread[:10]) + (", ..." if len(unread) > 10 else "")
    return (f"{len(unread)} pages are pictures and were not read ({pages}): install the extra ocr, or tesseract-ocr",)


def _opened(data: bytes) -> Any:
    import pypdfium2

    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise UnreadableError(
                "the PDF is encrypted", hint="take the password off, such as: qpdf --decrypt"
            ) from error
        raise UnreadableError(f"not a readable PDF: {error}", hint="open it elsewhere and save it again") from error


def _page_text(document: Any, number: int) -> tuple[str, bool]:
    """A page's words, and whether it is a picture that has none. A page that is damaged counts as one without words."""
    import pypdfium2

    try:
        page = document[number]
        try:
            layer = page.get_textpage()
            try:
                text: str = layer.get_text_bounded()
            finally:
                layer.close()
            if sum(map(len, text.split())) >= FEWEST_CHARACTERS:
                return text, False
            pictures = page.get_objects(filter=[pypdfium2.raw.FPDF_PAGEOBJ_IMAGE], max_depth=3)
            return text, any(True for _ in pictures)
        finally:
            page.close()
    except pypdfium2.PdfiumError:
        return "", True


def _recognised(
    document: Any, scans: Sequence[int], recognise: Recognise | None, progress: PagesDone | None, count: int
) -> tuple[dict[int, str], list[int]]:
    found: dict[int, str] = {}
    if recognise is None:
        return found, list(scans)
    unread = []
    for done, (number, text) in enumerate(recognise(_pictures(document, scans)), 1):
        if text.strip():
            found[number] = text
        else:
            unread.append(number)
        if progress is not None:
            progress(count - len(scans) + done, count)
    return found, unread


def _pictures(document: Any, scans: Sequence[int]) -> Iterator[tuple[int, Image | None]]:
    """Pages as grey pictures, one at a time."""
    import pypdfium2

    for number in scans:
        try:
            page = document[number]
            width, height = page.get_size()
            scale = OCR_DPI / 72
            if width * height * scale**2 > MOST_PIXELS:
                scale = (MOST_PIXELS / (width * height)) ** 0.5
            picture = page.render(scale=scale, grayscale=True).to_pil()
            page.close()
        except pypdfium2.PdfiumError:
            yield number, None
        else:
            yield number, picture
