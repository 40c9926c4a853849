"""SQLite's write-ahead log, switched on where several open a new file at once."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

_PAUSE_S = 0.005


def write_ahead(connection: Any, *, within_s: float) -> None:
    """Switch ``connection`` to the write-ahead log.

    The change wants the file to itself, and SQLite answers "locked" at once, without the waiting that it does
    elsewhere, while another connection makes the same change. Raises sqlite3.OperationalError when that lasts longer
    than ``within_s``.
    """
    until_s = time.monotonic() + within_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= until_s:
                raise
            time.sleep(_PAUSE_S)
        else:
            return
