"""Any file into text: what it is decides, not what it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.adapters.longdoc_read.sniff import kind_of
from roadworthy.adapters.longdoc_read.values import ReadDocument, UnreadableError

if TYPE_CHECKING:
    from roadworthy.adapters.longdoc_read.pdf import PagesDone, Recognise


def read_document(
    data: bytes, *, recognise: Recognise | None = None, progress: PagesDone | None = None
) -> ReadDocument:
    """The text of a file.

    Args:
        recognise: OCR for pages that are pictures.
        progress: hears of pages done.

    Raises:
        UnreadableError: nothing can be had out of it; says why and what to do.
    """
    if not data:
        raise UnreadableError("the file is empty")
    kind = kind_of(data)
    if kind == "pdf":
        from roadworthy.adapters.longdoc_read.pdf import read_pdf

        read = read_pdf(data, recognise=recognise, progress=progress)
    elif kind in ("docx", "xlsx", "pptx"):
        from roadworthy.adapters.longdoc_read import office

        read = {"docx": office.read_docx, "xlsx": office.read_xlsx, "pptx": office.read_pptx}[kind](data)
    elif kind == "html":
        from roadworthy.adapters.longdoc_read.markup import read_html

        read = read_html(data)
    elif kind == "text":
        from roadworthy.adapters.longdoc_read.plain import read_text

        read = read_text(data)
    elif kind == "image":
        from roadworthy.adapters.longdoc_read.picture import read_picture

        read = read_picture(data, recognise)
    else:
        raise UnreadableError(_WHY_NOT[kind], hint=_HINTS[kind])
    if not read.text.strip():
        what = f": {'; '.join(read.notes)}" if read.notes else ""
        raise UnreadableError(f"no text in this {kind} file{what}")
    return read


_WHY_NOT = {
    "legacy-office": "an Office file of the format before 2007",
    "archive": "an archive without a document that is read here",
    "binary": "neither text nor a format that is read here",
}
_HINTS = {
    "legacy-office": "save it as .docx, .xlsx or .pptx, such as: soffice --convert-to docx FILE",
    "archive": "unpack it and name the files",
    "binary": "PDF, Word, Excel, PowerPoint, HTML, text and pictures are read",
}
