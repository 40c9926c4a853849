"""Ledger rows that no store could take, kept in a folder of JSON lines until the next start."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.core.errors import ProbeError, Temporary
from roadworthy.route.ledger import LedgerRow

if TYPE_CHECKING:
    from collections.abc import Sequence

SUFFIX = ".ledger.jsonl"


class Spool:
    """Files in ``folder``. Several processes may share it: a row that two of them bill still counts once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: list[Path] = []

    def write(self, rows: Sequence[LedgerRow]) -> None:
        """Keep ``rows`` in a file of their own, whole or not at all. Raises Temporary."""
        name = f"{time.time_ns()}-{os.getpid()}"
        temporary = self.folder / f"{name}.part"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with temporary.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(row)) + "\n" for row in rows)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.folder / f"{name}{SUFFIX}")
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            hint = "free space, or name another folder"
            raise Temporary(f"{self.folder}: {error.strerror or error}", hint=hint) from error

    def read(self) -> list[LedgerRow]:
        """Every row that is kept; the files stay until ``forget``. Raises ProbeError for one that cannot be read."""
        rows: list[LedgerRow] = []
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            try:
                rows.extend(LedgerRow(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())
            except FileNotFoundError:
                continue  # another process has billed it
            except (OSError, ValueError, TypeError) as error:
                raise ProbeError(f"{path}: {error}", hint="move the file away, and bill its rows by hand") from error
            self._read.append(path)
        return rows

    def forget(self) -> None:
        """Delete what was read: it is billed now."""
        for path in self._read:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        self._read.clear()
