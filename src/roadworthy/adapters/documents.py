"""Deployment documents from files or standard input, checked against schema and catalog in one pass."""

from __future__ import annotations

import sys
from pathlib import Path

from roadworthy.adapters.files import decode, read_text
from roadworthy.catalog.vocabulary import CatalogVocabulary
from roadworthy.core.errors import ProbeError, Problem
from roadworthy.spec.load import check_text, load_text
from roadworthy.spec.values import Deployment, looks_like_a_path
from roadworthy.spec.yaml_text import MAX_TEXT_BYTES

_WHAT = "a deployment document"


def load_document(path: Path | str) -> Deployment:
    """The deployment in the file at ``path``; ``-`` reads standard input.

    Raises:
        SpecError: no such file, or problems in it; all of them are named.
        ProbeError: the file is there and cannot be read.
    """
    return load_text(_read(path), source=_source(path), vocabulary=_vocabulary(path))


def read_document(path: Path | str) -> str:
    """The text at ``path``, not looked into. Raises as ``load_document``."""
    return _read(path)


def parse_document(text: str, path: Path | str) -> Deployment:
    """The deployment in ``text``, which was read from ``path``. Raises SpecError for problems in it."""
    return load_text(text, source=_source(path), vocabulary=_vocabulary(path))


def check_document(path: Path | str) -> tuple[Deployment | None, tuple[Problem, ...]]:
    """Like :func:`load_document`, with the problems handed back; a file that cannot be had still raises."""
    return check_text(_read(path), source=_source(path), vocabulary=_vocabulary(path))


def document_folder(path: Path | str) -> Path:
    """What relative paths in the document start from: its own folder, or the current one for standard input."""
    return Path.cwd() if str(path) == "-" else Path(path).parent


def _source(path: Path | str) -> str:
    return "<stdin>" if str(path) == "-" else str(path)


def _read(path: Path | str) -> str:
    # one byte over the document's limit is enough to tell that it is over; the document's own check words it
    if str(path) != "-":
        return read_text(path, what=_WHAT, limit_bytes=MAX_TEXT_BYTES)
    try:
        data = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise ProbeError(
            f"standard input: cannot read: {error.strerror or error}", hint="name a file instead"
        ) from error
    return decode(data, source="<stdin>", what=_WHAT, limit_bytes=MAX_TEXT_BYTES)


def _vocabulary(path: Path | str) -> CatalogVocabulary:
    folder = document_folder(path)

    def is_checkpoint(config: str) -> bool:
        place = folder / Path(config).expanduser() if config.startswith("~") else folder / config
        try:
            if place.is_dir():
                return looks_like_a_path(config) or (place / "config.json").is_file()
            return place.is_file()
        except (OSError, ValueError):
            return False

    return CatalogVocabulary(is_checkpoint=is_checkpoint)
