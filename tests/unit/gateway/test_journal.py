"""The journal: what a process owes can be read by another once its owner is dead, and by nobody before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from roadworthy.core.errors import ProbeError
from roadworthy.gateway.billing import bill_left_behind
from roadworthy.gateway.journal import WORKER_DIED, Journal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roadworthy.route.ledger import LedgerRow

OWNER = """
import sys, pathlib
from roadworthy.gateway.journal import Journal
journal = Journal(pathlib.Path(sys.argv[1]), worker="3")
for name in ("ended", "streams", "written"):
    slot = journal.begin(name, "acme", "m" * 300, "http://e:1", "chat", 1000.25)
    cells = journal.cells(slot)
    if name == "ended":
        journal.end(slot, prompt_tokens=7, output_tokens=9, cached_tokens=2, status=200, estimated=False, ending="ok")
    elif name == "written":
        journal.release([slot])
    else:
        journal.counted(slot)
        for tokens in range(1, 42):
            cells[0], cells[1] = 5, tokens
print("ready", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_owes_is_billed_once_by_the_next(tmp_path: Path) -> None:
    billed: list[LedgerRow] = []
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        assert bill_left_behind(tmp_path, billed.extend) == 0
        os.kill(owner.pid, signal.SIGKILL)
    assert bill_left_behind(tmp_path, billed.extend) == 2
    ended, streams = sorted(billed, key=lambda row: row.request_id)
    assert (ended.prompt_tokens, ended.output_tokens, ended.cached_tokens, ended.ending) == (7, 9, 2, "ok")
    assert (streams.prompt_tokens, streams.output_tokens, streams.ending) == (5, 41, WORKER_DIED)
    for row in billed:
        assert (row.tenant_id, row.endpoint, row.operation, row.worker) == ("acme", "http://e:1", "chat", "3")
        assert row.started_s == 1000.25
        assert not row.estimated
        assert row.model.startswith("mmm")
    assert bill_left_behind(tmp_path, billed.extend) == 0
    assert list(tmp_path.iterdir()) == []


def test_rows_that_cannot_be_written_stay_for_the_next_try(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.begin("r", "acme", "m", "http://e:1", "chat", 1.0)
    journal.close(keep=True)

    def fails(rows: Sequence[LedgerRow]) -> None:
        raise ProbeError(f"{len(rows)} rows, and the store is gone")

    with pytest.raises(ProbeError, match="1 rows"):
        bill_left_behind(tmp_path, fails)
    billed: list[LedgerRow] = []
    assert bill_left_behind(tmp_path, billed.extend) == 1
    assert [row.request_id for row in billed] == ["r"]


def test_slots_are_used_again_and_what_comes_on_top_is_counted(tmp_path: Path) -> None:
    journal = Journal(tmp_path, slots=2)
    first = journal.begin("a", "t", "m", "e", "chat", 1.0)
    second = journal.begin("b", "t", "m", "e", "chat", 1.0)
    assert first is not None
    assert second is not None
    assert (journal.begin("c", "t", "m", "e", "chat", 1.0), journal.left_out, journal.taken) == (None, 1, 2)
    journal.cells(first)[1] = 12
    journal.release([first])
    again = journal.begin("d", "t", "m", "e", "chat", 1.0)
    assert again == first
    assert list(journal.cells(first)) == [0, 0]
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_kind_and_one_cut_short_owe_nothing(tmp_path: Path) -> None:
    (tmp_path / "1-a.journal").write_bytes(b"something else")
    (tmp_path / "2-b.journal").write_bytes(b"")
    journal = Journal(tmp_path)
    journal.begin("r", "acme", "m", "http://e:1", "chat", 1.0)
    journal.close(keep=True)
    (path,) = (one for one in tmp_path.glob("*.journal") if one.stat().st_size > 100)
    path.write_bytes(path.read_bytes()[:700])
    billed: list[LedgerRow] = []
    assert bill_left_behind(tmp_path, billed.extend) == 0


def test_a_folder_that_cannot_be_made_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProbeError, match="journal") as told:
        Journal(tmp_path / "file" / "folder")
    assert "gateway.state_url" in told.value.hint
