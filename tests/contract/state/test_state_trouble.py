"""The state when its store is locked, full, gone, damaged or silent: said in one line, and nothing billed is lost."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roadworthy.adapters.state.state import open_state
from roadworthy.adapters.state.writer import LedgerWriter, ledger_writer
from roadworthy.core.errors import Temporary
from roadworthy.route.ledger import LedgerRow
from support.stores import Server, running_postgres

LIMIT_S = 30.0
ALL = {"since_day": "1970-01-01", "until_day": "9999-12-31"}


def row(number: int) -> LedgerRow:
    return LedgerRow(
        request_id=f"r{number}", tenant_id="acme", model="m", started_s=1.0, prompt_tokens=1, output_tokens=1
    )


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Another process is in the middle of a transaction that writes."""
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        holder.execute("ROLLBACK")
        holder.close()


def until(writer: LedgerWriter, settled: int) -> None:
    waited = threading.Event()
    for _ in range(int(LIMIT_S / 0.01)):
        if writer.settled >= settled:
            return
        waited.wait(0.01)
    raise AssertionError(f"{writer.settled} of {settled} rows are settled: {writer.failing}")


def until_failing(writer: LedgerWriter) -> str:
    waited = threading.Event()
    for _ in range(int(LIMIT_S / 0.01)):
        if writer.failing:
            return writer.failing
        waited.wait(0.01)
    raise AssertionError("the writer never noticed")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "state.db"
    open_state(f"sqlite:///{path}").close()
    return path


def test_a_locked_file_is_told_as_such_and_read_all_the_same(file: Path) -> None:
    state = open_state(f"sqlite:///{file}", lock_timeout_s=0.05)
    with locked(file):
        with pytest.raises(Temporary, match=r"state\.db: database is locked") as caught:
            state.write_ledger([row(1)])
        assert "another process holds the lock" in caught.value.hint
        assert state.usage(**ALL) == ()
    assert state.write_ledger([row(1)]) == 1
    state.close()


def test_the_ledger_waits_for_a_lock_and_bills_once_when_it_is_gone(file: Path) -> None:
    writer = LedgerWriter(lambda: open_state(f"sqlite:///{file}", lock_timeout_s=0.05))
    with locked(file):
        writer.put([row(1), row(2)])
        assert "database is locked" in until_failing(writer)
        assert (writer.settled, writer.waiting) == (0, 2)
    until(writer, 2)
    writer.close()
    state = open_state(f"sqlite:///{file}")
    assert [usage.requests for usage in state.usage(**ALL)] == [2]
    state.close()


FULL = """
import json, resource, sys
from roadworthy.adapters.state.state import open_state
from roadworthy.core.errors import Temporary
from roadworthy.route.ledger import LedgerRow
state = open_state(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
written, told = 0, None
while told is None and written < 100_000:
    rows = [
        LedgerRow(
            request_id=f"r{written + at}", tenant_id="acme", model="m", started_s=1.0, prompt_tokens=1, output_tokens=1
        )
        for at in range(200)
    ]
    try:
        written += state.write_ledger(rows)
    except Temporary as error:
        told = [str(error), error.hint]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
(usage,) = state.usage(since_day="1970-01-01", until_day="9999-12-31")
again = state.write_ledger(rows)
print(json.dumps({"written": written, "told": told, "billed": usage.requests, "again": again}))
"""


def test_a_full_disk_takes_whole_batches_or_none_and_goes_on_when_there_is_room(file: Path) -> None:
    """The limit on a file's size stands for the disk: the same write fails."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, f"sqlite:///{file}"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    message, hint = found["told"]
    assert "disk" in message
    assert "free space" in hint
    assert found["written"] == found["billed"] > 0
    assert found["again"] == 200


def test_a_full_tmpfs_is_told_and_nothing_is_half_written(tmp_path: Path) -> None:
    home = tmp_path / "small"
    home.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(home)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no right to mount a tmpfs here")
    try:
        state = open_state(f"sqlite:///{home}/state.db")
        written = 0

        def fill() -> None:
            nonlocal written
            while written < 100_000:
                written += state.write_ledger([row(written + at) for at in range(500)])

        with pytest.raises(Temporary, match="disk"):
            fill()
        (usage,) = state.usage(**ALL)
        assert usage.requests == written > 0
        state.close()
    finally:
        subprocess.run(["umount", str(home)], check=True)


def test_a_file_that_is_deleted_is_not_written_to_behind_everybodys_back(file: Path) -> None:
    state = open_state(f"sqlite:///{file}")
    state.write_ledger([row(1)])
    kept = file.with_name("kept.db")
    file.rename(kept)
    with pytest.raises(Temporary, match="the file is gone"):
        state.write_ledger([row(2)])
    assert not file.exists()
    state.close()


def test_a_file_that_is_replaced_by_its_backup_is_gone_on_with(file: Path) -> None:
    state = open_state(f"sqlite:///{file}")
    state.write_ledger([row(1)])
    backup = sqlite3.connect(file.with_name("backup.db"))
    with sqlite3.connect(file) as source:
        source.backup(backup)
    source.close()
    backup.close()
    state.write_ledger([row(2)])
    for path in file.parent.glob("state.db*"):
        path.unlink()
    shutil.move(file.with_name("backup.db"), file)
    assert state.write_ledger([row(2), row(3)]) == 2
    assert {one["request_id"] for one in state.ledger(since_s=0, until_s=2)} == {"r1", "r2", "r3"}
    state.close()


def test_the_ledger_goes_on_in_a_new_file_when_the_old_one_was_deleted(file: Path) -> None:
    said: list[str] = []
    writer = ledger_writer(f"sqlite:///{file}", say=said.append)
    writer.put([row(1)])
    until(writer, 1)
    for path in file.parent.glob("state.db*"):
        path.unlink()
    writer.put([row(2)])
    until(writer, 2)
    writer.close()
    assert "the file is gone" in said[0]
    state = open_state(f"sqlite:///{file}")
    assert [one["request_id"] for one in state.ledger(since_s=0, until_s=2)] == ["r2"]
    state.close()


@pytest.mark.parametrize("content", [b"this is no database, and longer than a page header" * 100, b"\x00" * 100])
def test_a_file_that_is_no_database_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.db").write_bytes(content)
    with pytest.raises(Temporary, match=r"state\.db: file is not a database") as caught:
        open_state(f"sqlite:///{tmp_path}/state.db")
    assert "restore it" in caught.value.hint


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Temporary, match="unable to open database file"):
        open_state(f"sqlite:///{tmp_path}/missing/state.db")


def test_a_process_killed_in_the_middle_of_a_write_leaves_whole_batches(file: Path) -> None:
    program = """
import sys
from roadworthy.adapters.state.state import open_state
from roadworthy.route.ledger import LedgerRow
state, at = open_state(sys.argv[1]), 0
while True:
    state.write_ledger([
        LedgerRow(
            request_id=f"r{at + more}", tenant_id="acme", model="m", started_s=1.0, prompt_tokens=1, output_tokens=1
        )
        for more in range(100)
    ])
    at += 100
    print(at, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program, f"sqlite:///{file}"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        told = 0
        for _ in range(5):
            told = int(writer.stdout.readline())
        writer.kill()
        rest = writer.stdout.read().split()
    told = int(rest[-1]) if rest else told
    state = open_state(f"sqlite:///{file}")
    (usage,) = state.usage(**ALL)
    assert usage.requests >= told
    assert usage.requests % 100 == 0
    assert usage.requests == len(state.ledger(since_s=0, until_s=2, limit=10**6))
    state.close()


@pytest.fixture
def own_postgres() -> Iterator[Server]:
    with running_postgres() as server:
        yield server


def test_postgresql_that_stops_freezes_and_comes_back(own_postgres: Server) -> None:
    state = open_state(own_postgres.url, answer_timeout_s=0.3)
    writer = LedgerWriter(lambda: open_state(own_postgres.url, answer_timeout_s=0.3))
    writer.put([row(1)])
    until(writer, 1)

    own_postgres.freeze()
    with pytest.raises(Temporary, match="postgresql://roadworthy@"):
        state.usage(**ALL)
    writer.put([row(2)])
    assert until_failing(writer)
    own_postgres.thaw()
    until(writer, 2)

    own_postgres.stop()
    with pytest.raises(Temporary) as caught:
        state.write_ledger([row(9)])
    assert "\n" not in str(caught.value)
    writer.put([row(3)])
    assert until_failing(writer)
    own_postgres.start()
    until(writer, 3)
    writer.close()
    assert [usage.requests for usage in state.usage(**ALL)] == [3]
    state.close()


def test_a_closing_process_does_not_wait_for_a_frozen_server_and_keeps_its_rows(
    own_postgres: Server, tmp_path: Path
) -> None:
    writer = ledger_writer(own_postgres.url, spool=tmp_path)
    writer.put([row(1)])
    until(writer, 1)
    own_postgres.freeze()
    writer.put([row(2), row(3)])
    writer.close(0.3)
    assert writer.spooled == 2
    own_postgres.thaw()
    writer._thread.join(LIMIT_S)
    later = ledger_writer(own_postgres.url, spool=tmp_path)
    later.put([row(4)])
    until(later, 1)
    later.close()
    state = open_state(own_postgres.url)
    assert [usage.requests for usage in state.usage(**ALL)] == [4]
    state.close()
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_is_not_there_is_named(postgres_server: Server) -> None:
    with pytest.raises(Temporary, match='database "nowhere" does not exist'):
        open_state(f"{postgres_server.url.rpartition('/')[0]}/nowhere")
