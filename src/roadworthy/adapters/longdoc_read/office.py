"""Word, Excel and PowerPoint files: headings, paragraphs, tables, slides, in their order."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import Any

from roadworthy.adapters.longdoc_read.values import ReadDocument, UnreadableError

MOST_UNPACKED_BYTES = 512 * 1024 * 1024
"""A file that unpacks to more is taken for a bomb."""

MOST_CELLS = 2_000_000


def read_docx(data: bytes) -> ReadDocument:
    """Headings as Markdown has them (``## Title``), table rows with bars between cells."""
    import docx
    from docx.table import Table

    _check_size(data)
    document = _opened(lambda: docx.Document(io.BytesIO(data)), "Word")
    lines: list[str] = []
    for block in document.iter_inner_content():
        if isinstance(block, Table):
            lines.append("\n".join(_bars([cell.text for cell in row.cells]) for row in block.rows))
        else:
            text = block.text.strip()
            if text:
                lines.append(f"{'#' * _level(block.style)} {text}" if _level(block.style) else text)
    return ReadDocument(kind="docx", text="\n\n".join(lines))


def _level(style: Any) -> int:
    """1 to 6 for a heading, 0 for other paragraphs; by the style's own name, which is English in every language."""
    name = (style.name or "") if style is not None else ""
    if name == "Title":
        return 1
    number = name.removeprefix("Heading ")
    return min(6, int(number)) if name.startswith("Heading ") and number.isdigit() else 0


def read_xlsx(data: bytes) -> ReadDocument:
    """A heading for each sheet, then a line for each row, every value with its column's name."""
    import openpyxl

    _check_size(data)
    book = _opened(lambda: openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True), "Excel")
    parts: list[str] = []
    cells = 0
    notes: tuple[str, ...] = ()
    for sheet in book.worksheets:
        parts.append(f"# {sheet.title}")
        names: list[str] | None = None
        for row in sheet.iter_rows(values_only=True):
            values = ["" if value is None else str(value).strip() for value in row]
            cells += len(values)
            if cells > MOST_CELLS:
                notes = (f"only the first {MOST_CELLS:,} cells were read",)
                break
            if not any(values):
                continue
            if names is None:
                names = values
                parts.append(_bars(values))
                continue
            named = (
                f"{name}: {value}" if name else value
                for name, value in zip([*names, *[""] * len(values)], values, strict=False)
                if value
            )
            parts.append("; ".join(named))
    return ReadDocument(kind="xlsx", text="\n\n".join(parts), notes=notes)


def read_pptx(data: bytes) -> ReadDocument:
    """A page for each slide: its title as a heading, its texts and tables, then the speaker's notes."""
    import pptx

    _check_size(data)
    show = _opened(lambda: pptx.Presentation(io.BytesIO(data)), "PowerPoint")
    text, starts = "", []
    for number, slide in enumerate(show.slides, 1):
        parts = list(_slide(slide, number))
        text += "\n\n" if text else ""
        starts.append(len(text))
        text += "\n\n".join(parts)
    return ReadDocument(kind="pptx", text=text, page_starts=tuple(starts), pages=len(starts))


def _slide(slide: Any, number: int) -> Iterator[str]:
    title = slide.shapes.title
    yield f"# {title.text.strip()}" if title is not None and title.text.strip() else f"# Slide {number}"
    for shape in slide.shapes:
        if title is not None and shape.shape_id == title.shape_id:
            continue
        if shape.has_text_frame and shape.text_frame.text.strip():
            yield shape.text_frame.text.strip()
        elif shape.has_table:
            yield "\n".join(_bars([cell.text for cell in row.cells]) for row in shape.table.rows)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        notes = slide.notes_slide.notes_text_frame.text.strip()
        if notes:
            yield notes


def _bars(cells: list[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()) for cell in cells) + " |"


def _check_size(data: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        unpacked_bytes = sum(one.file_size for one in archive.infolist())
    if unpacked_bytes > MOST_UNPACKED_BYTES:
        raise UnreadableError(
            f"it unpacks to {unpacked_bytes:,} bytes", hint=f"files of up to {MOST_UNPACKED_BYTES:,} bytes are read"
        )


def _opened(open_it: Any, what: str) -> Any:
    """The libraries raise whatever their parsers do."""
    try:
        return open_it()
    except Exception as error:
        raise UnreadableError(
            f"not a readable {what} file: {error}", hint="open it elsewhere and save it again"
        ) from error
