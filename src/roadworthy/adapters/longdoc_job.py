"""A long job's results, one line each, on disk before the next is asked for: what was done is never done again."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roadworthy.core.errors import ProbeError, SpecError

_BEGINS = b'{"key": "'
"""Of every line, also of a torn one; what begins otherwise is not ours to cut."""


def job_path(home: Path, document: str, *about: str) -> Path:
    """Where results about ``document`` lie when nobody says; by its name, so that they go when it goes."""
    digest = hashlib.sha256("\0".join(about).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return home / "jobs" / f"{_of(document)}-{digest}.jsonl"


def drop_jobs(home: Path, document: str) -> None:
    """Delete all results about ``document`` that lie where :func:`job_path` puts them."""
    for path in (home / "jobs").glob(f"{_of(document)}-*.jsonl"):
        path.unlink(missing_ok=True)


def _of(document: str) -> str:
    return hashlib.sha256(document.encode("utf-8", "surrogateescape")).hexdigest()[:16]


class JobFile:
    """Results by key in a file of JSON lines. A line that a crash left torn is taken off and done again.

    Raises:
        SpecError: the file holds something else, or another run is writing it.
        ProbeError: it cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: dict[str, Any] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as error:
            raise ProbeError(f"{path}: {error.strerror or error}", hint="choose another file with --job") from error
        try:
            self._claim()
            self._read()
        except BaseException:
            self._file.close()
            raise

    def _claim(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SpecError(
                f"{self.path}: another run is at this job", hint="wait for it, or name another --job"
            ) from None

    def _read(self) -> None:
        self._file.seek(0)
        good = 0
        for line in self._file:
            try:
                record = json.loads(line)
                key, value = record["key"], record["value"]
            except (ValueError, KeyError, TypeError):
                if line.endswith(b"\n") or not line.startswith(_BEGINS[: len(line)]):
                    raise SpecError(
                        f"{self.path}: holds something else than results of a job",
                        hint="choose another file with --job",
                    ) from None
                break
            if not line.endswith(b"\n"):
                break
            self.done[str(key)] = value
            good += len(line)
        self._file.truncate(good)

    def add(self, key: str, value: Mapping[str, Any]) -> None:
        """Keep one result; on disk when this returns."""
        line = json.dumps({"key": key, "value": value}, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        try:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ProbeError(
                f"{self.path}: {error.strerror or error}", hint="what was done is kept: run it again"
            ) from error
        self.done[key] = value

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> JobFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
