"""Switching a new file to the write-ahead log while somebody else has it."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from roadworthy.adapters.state.wal import write_ahead


def test_it_waits_for_whoever_has_the_file(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.2, other.execute, ("COMMIT",))
    release.start()
    ours = sqlite3.connect(file, timeout=0)
    write_ahead(ours, within_s=30)
    assert ours.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    release.join()
    ours.close()
    other.close()


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    ours = sqlite3.connect(file, timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        write_ahead(ours, within_s=0.05)
    ours.close()
    other.close()
