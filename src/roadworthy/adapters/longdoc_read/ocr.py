"""Words out of pictures, in worker processes, page by page; what was recognised once is not recognised again.

Latin script goes to tesseract, Chinese to RapidOCR (extra ``ocr``; its wheel carries the models): each reads the
other's script worse or not at all. Which one a page needs is what tesseract's script detection says.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from roadworthy.adapters.processes import cores, spawned_pool
from roadworthy.longdoc.numerals import CHINESE

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from PIL.Image import Image

Engine = Literal["tesseract", "rapidocr"]

PAGE_LIMIT_S = 120.0
"""A page that takes longer is given up."""

FORMAT = "2"
"""Of what is kept of a page; another one is recognised anew."""

OCR_CACHE = Path("cache/ocr")
"""Below a store's home: recognised pages, until a document is removed."""

_NUMBER_WITHOUT_SPACE = re.compile(rf"^(第[{CHINESE}]+(?:编|分编|章|节|条))(?=[^\s　、，。至或和及与规的所中])")
_INDENT_HEIGHTS = 0.8


def engines() -> tuple[Engine, ...]:
    """Those installed here."""
    found: list[Engine] = []
    if shutil.which("tesseract"):
        found.append("tesseract")
    if all(importlib.util.find_spec(name) for name in ("rapidocr", "onnxruntime")):
        found.append("rapidocr")
    return tuple(found)


class Recogniser:
    """OCR over many pages.

    Args:
        cache: folder in which recognised pages are kept.
        workers: processes; None for one for each core.
    """

    def __init__(self, cache: Path, *, workers: int | None = None) -> None:
        self._cache = cache
        self._workers = workers or cores()
        self._engines = engines()
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Recogniser:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def pages(self, pictures: Iterable[tuple[int, Image | None]]) -> Iterator[tuple[int, str]]:
        """Lines of print of each page, in order; an empty text where none were found. No more pictures are drawn than
        the workers are busy with."""
        waiting: deque[tuple[int, Path | None, Future[str] | str]] = deque()
        for number, picture in pictures:
            waiting.append((number, *self._begun(picture)))
            if len(waiting) > 2 * self._workers:
                yield self._finished(*waiting.popleft())
        while waiting:
            yield self._finished(*waiting.popleft())

    def _begun(self, picture: Image | None) -> tuple[Path | None, Future[str] | str]:
        if picture is None:
            return None, ""
        drawn = io.BytesIO()
        picture.save(drawn, "PNG", compress_level=1)
        data = drawn.getvalue()
        name = hashlib.sha256(f"{FORMAT} {self._engines}".encode() + data).hexdigest()
        kept = self._cache / f"{name}.txt"
        if kept.is_file():
            return None, kept.read_text(encoding="utf-8")
        if self._pool is None:
            self._pool = spawned_pool(self._workers)
        return kept, self._pool.submit(recognise, data, self._engines)

    def _finished(self, number: int, kept: Path | None, begun: Future[str] | str) -> tuple[int, str]:
        if isinstance(begun, str):
            return number, begun
        text = begun.result()
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            unfinished = kept.with_suffix(f".{os.getpid()}")
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(kept)
        return number, text


def open_recogniser(cache: Path) -> AbstractContextManager[Recogniser | None]:
    """OCR, where there is some."""
    return Recogniser(cache) if engines() else nullcontext()


def drop_recognised(home: Path) -> None:
    """Delete all recognised pages of a store: nobody knows of which document each was. What is stored stays."""
    shutil.rmtree(home / OCR_CACHE, ignore_errors=True)


def recognise(picture: bytes, installed: Sequence[Engine]) -> str:
    """Lines of print in one picture (PNG); runs in a worker."""
    if "tesseract" in installed and ("rapidocr" not in installed or not _is_han(picture)):
        return _by_tesseract(picture)
    return _by_rapidocr(picture) if "rapidocr" in installed else ""


def _is_han(picture: bytes) -> bool:
    said = _tesseract(picture, "--psm", "0")
    return re.search(r"^Script: (Han|Japanese|Korean|Hangul)", said, re.MULTILINE) is not None or "Script:" not in said


def _by_tesseract(picture: bytes) -> str:
    return _tesseract(picture, "-l", "eng", "--psm", "3").replace("\f", "\n")


def _tesseract(picture: bytes, *options: str) -> str:
    """What it prints; nothing where it fails or takes too long."""
    try:
        done = subprocess.run(
            ["tesseract", "stdin", "stdout", *options], input=picture, capture_output=True, timeout=PAGE_LIMIT_S,
            env={**os.environ, "OMP_THREAD_LIMIT": "1"}, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.decode("utf-8", "replace")


_engine: Any = None


def _by_rapidocr(picture: bytes) -> str:
    global _engine  # noqa: PLW0603  one model for each worker process
    import numpy
    from PIL import Image

    if _engine is None:
        import logging

        logging.disable(logging.WARNING)
        from rapidocr import RapidOCR

        _engine = RapidOCR(params={"EngineConfig.onnxruntime.intra_op_num_threads": 1})
    found = _engine(numpy.asarray(Image.open(io.BytesIO(picture)).convert("RGB")))
    if found.boxes is None or not len(found.boxes):
        return ""
    boxes = [
        (float(box[:, 0].min()), float(box[:, 1].min()), float(box[:, 1].max()), str(text))
        for box, text in zip(found.boxes, found.txts, strict=True)
    ]
    return "\n".join(lines_of(boxes))


def lines_of(boxes: Sequence[tuple[float, float, float, str]]) -> list[str]:
    """Lines from boxes (left, top, bottom, text): those at one height are one line. An article's number that lost the
    space behind it gets it back where its line is indented, as a paragraph's first is."""
    rows: list[list[tuple[float, float, float, str]]] = []
    for box in sorted(boxes, key=lambda one: (one[1] + one[2]) / 2):
        middle = (box[1] + box[2]) / 2
        if rows and middle < rows[-1][0][1] + 0.7 * (rows[-1][0][2] - rows[-1][0][1]):
            rows[-1].append(box)
        else:
            rows.append([box])
    left = sorted(min(one[0] for one in row) for row in rows)[len(rows) // 10] if rows else 0.0
    lines = []
    for row in rows:
        row.sort()
        text = "　".join(one[3].strip() for one in row)
        height = row[0][2] - row[0][1]
        if row[0][0] > left + _INDENT_HEIGHTS * height:
            text = _NUMBER_WITHOUT_SPACE.sub("\\1　", text)
        lines.append(text)
    return lines
