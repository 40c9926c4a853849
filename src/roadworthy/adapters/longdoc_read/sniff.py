"""What a file is, by its bytes: names lie."""

from __future__ import annotations

import io
import zipfile
from typing import Literal

Kind = Literal["pdf", "docx", "xlsx", "pptx", "html", "image", "text", "legacy-office", "archive", "binary"]

_IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\x00", b"MM\x00*", b"GIF87a", b"GIF89a", b"BM")
_OFFICE = {"word/document.xml": "docx", "xl/workbook.xml": "xlsx", "ppt/presentation.xml": "pptx"}
_LOOKED_AT = 8192


def kind_of(data: bytes) -> Kind:
    """The kind of ``data``. ``binary`` is what nobody here reads, ``archive`` a ZIP without a document in it."""
    start = data[:_LOOKED_AT]
    if b"%PDF-" in start[:1024]:
        return "pdf"
    if start.startswith(b"PK\x03\x04"):
        return _zip_kind(data)
    if start.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return "legacy-office"
    if start.startswith(_IMAGES) or (start[:4] == b"RIFF" and start[8:12] == b"WEBP"):
        return "image"
    head = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype html", b"<html")) or (head.startswith(b"<?xml") and b"<html" in head[:1024]):
        return "html"
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "text"
    return "binary" if b"\x00" in start else "text"


def _zip_kind(data: bytes) -> Kind:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, ValueError, OSError):
        return "archive"
    for name, kind in _OFFICE.items():
        if name in names:
            return kind  # type: ignore[return-value]
    return "archive"
