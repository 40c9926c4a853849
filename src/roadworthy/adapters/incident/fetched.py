"""The folder that everything fetched from live sources goes to first: what is diagnosed now can be diagnosed elsewhere.

`hosts/NAME`, `pods/NAMESPACE/NAME`, `engines/ADDRESS`, `gateways/ADDRESS`, `prometheus/ADDRESS`; what could not be
looked at is in a file of its own, so that whoever reads the folder later knows too.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from roadworthy.adapters.files import write_atomically
from roadworthy.adapters.incident.programs import Programs
from roadworthy.core.errors import ProbeError, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_LOOKED_AT = "could-not-look.json"
PRIVATE = 0o700
ONE_MOST_BYTES = 512 * 2**20
"""Of one output; a longer log is cut at its end, and said so."""


@dataclass(slots=True)
class Fetched:
    """Where fetched files go. Threads may use one together."""

    folder: Path
    programs: Programs = field(default_factory=Programs)
    files: int = 0
    _missed: list[tuple[str, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def could_not_look(self, what: str, reason: str) -> None:
        """Note that ``what`` was asked for and not seen: that is never "fine"."""
        with self._lock:
            self._missed.append((what, reason))

    @property
    def missed(self) -> tuple[tuple[str, str], ...]:
        return tuple(self._missed)

    def put(self, name: str, text: str) -> None:
        """Save one text; an empty one leaves no file."""
        if text:
            with self.writing(name) as file:
                file.write(text.encode("utf-8", "replace"))

    def path_of(self, name: str) -> Path:
        """Where ``name`` lies; always below the folder, whatever a host calls its files."""
        return self.folder.joinpath(*(safe_part(part) for part in name.split("/")))

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """A file to write to, there from the first byte on: a log that breaks off is evidence too."""
        path = self.path_of(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
            with path.open("wb") as file:
                yield file
        except OSError as error:
            raise ProbeError(f"{path}: cannot write: {error.strerror or error}", hint="name another folder") from error
        if path.stat().st_size:
            with self._lock:
                self.files += 1
        else:
            path.unlink()

    def close(self) -> None:
        """Write down what was missed."""
        if self._missed:
            listed = [{"what": what, "reason": reason} for what, reason in self._missed]
            write_atomically(self.folder / NOT_LOOKED_AT, json.dumps(listed, indent=2) + "\n")


def safe_part(part: str) -> str:
    """One part of a path that leads nowhere else and that every file system takes."""
    kept = "".join(letter if letter.isalnum() or letter in "-_.@=" else "_" for letter in part)[:120]
    return kept if kept.strip(".") else "_"


@contextmanager
def fetching(keep: Path | None) -> Iterator[Fetched]:
    """A folder to fetch into: ``keep``, which must be new or empty, or one that goes away afterwards.

    Raises:
        SpecError: ``keep`` holds something.
    """
    if keep is None:
        folder = Path(tempfile.mkdtemp(prefix="roadworthy-diagnose-"))
        try:
            yield Fetched(folder=folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
        occupied = any(keep.iterdir())
    except OSError as error:
        raise ProbeError(f"{keep}: cannot write: {error.strerror or error}", hint="name another folder") from error
    if occupied:
        raise SpecError(f"{keep}: not empty", hint="name a new folder, so that two incidents do not mix")
    yield Fetched(folder=keep)
