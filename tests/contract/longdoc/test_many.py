"""Many files at once: every one is stored or named, and a run that was killed is gone on with."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from roadworthy.adapters import longdoc_many
from roadworthy.adapters.longdoc_many import ManyFiles
from roadworthy.adapters.longdoc_store import FILE, DocumentStore
from support.deadly_parser import dies
from support.pdf_file import pdf_of

LAW = "\n\n".join(f"第{number}条　{words}{{0}}。" for number, words in zip("一二三四五六", "天地玄黄宇宙", strict=True))


def folder(root: Path, count: int) -> Path:
    """``count`` files of several kinds, every tenth of them broken."""
    files = root / "files"
    files.mkdir()
    for number in range(count):
        if number % 10 == 9:
            (files / f"{number:03}.pdf").write_bytes(b"%PDF-1.7 broken")
        elif number % 3 == 0:
            pages = [[f"{at}.1 Clause {at} of agreement {number} binds."] for at in range(1, 4)]
            (files / f"{number:03}.pdf").write_bytes(pdf_of(pages))
        elif number % 3 == 1:
            (files / f"{number:03}.md").write_text(LAW.format(number))
        else:
            (files / f"{number:03}.html").write_text(f"<html><body><h1>Rule {number}</h1><p>Words.</p></body></html>")
    return files


def command(files: Path, home: Path) -> list[str]:
    return [
        sys.executable, "-m", "roadworthy", "doc", "ingest", str(files), "--home", str(home), "--no-vectors", "--json",
        "--workers", "2",
    ]  # fmt: skip


def test_every_file_is_stored_or_named_and_the_run_says_how_fast(tmp_path: Path) -> None:
    files, home = folder(tmp_path, 40), tmp_path / "home"
    done = subprocess.run([*command(files, home), "--engine", "5"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    failed = [one for one in told["documents"] if "error" in one]
    assert [Path(one["document"]).name for one in failed] == ["009.pdf", "019.pdf", "029.pdf", "039.pdf"]
    assert all(one["hint"] for one in failed)
    summary = told["summary"]
    assert (summary["files"], summary["failed"]) == (40, 4)
    assert summary["pages"] == 12 * 3 + 24  # a file without pages counts as one
    assert summary["pages_per_s"] == pytest.approx(summary["pages"] / summary["seconds"], rel=0.01)
    assert summary["io_wall"]["bottleneck"] == "engine"
    assert "the engine is the bottleneck" in done.stderr


def test_a_killed_run_leaves_whole_files_and_the_next_one_reads_the_others_only(tmp_path: Path) -> None:
    files, home = folder(tmp_path, 60), tmp_path / "home"
    running = subprocess.Popen(command(files, home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stored = 0
    while stored < 5 and running.poll() is None:
        stored = _stored(home)
        time.sleep(0.01)  # of another process
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = _stored(home)
    assert 5 <= before < 54
    with DocumentStore(home) as store:
        assert all(one.units for one in store.documents())
    done = subprocess.run(command(files, home), capture_output=True, text=True, check=False)
    outcomes = [one.get("outcome") for one in json.loads(done.stdout)["documents"]]
    assert outcomes.count("unchanged") == before
    assert outcomes.count("stored") == 54 - before
    assert _stored(home) == 54


def _stored(home: Path) -> int:
    try:
        with sqlite3.connect(f"file:{home / FILE}?mode=ro", uri=True) as database:
            return int(database.execute("SELECT count(*) FROM document").fetchone()[0])
    except sqlite3.Error:
        return 0


def test_a_file_that_kills_its_process_is_named_and_the_others_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = []
    for number in range(6):
        paths.append(tmp_path / f"{number}.md")
        paths[-1].write_text(LAW.format("deadly" if number == 2 else number))
    monkeypatch.setattr(longdoc_many, "parse", dies)
    with DocumentStore(tmp_path / "home") as store:
        outcomes = ManyFiles(store, vectors=False, workers=2).run(paths)
        assert len(store.documents()) == 5
    assert [one.get("outcome") for one in outcomes] == ["stored", "stored", None, "stored", "stored", "stored"]
    assert "died" in str(outcomes[2]["error"])


def test_no_more_files_are_opened_than_can_be_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longdoc_many, "UNITS_WAITING", 1)
    monkeypatch.setattr(longdoc_many.embeddings, "available", lambda: True)
    paths = []
    for number in range(8):
        paths.append(tmp_path / f"{number}.md")
        paths[-1].write_text(LAW.format(number))
    seen: list[int] = []
    with DocumentStore(tmp_path / "home") as store:
        many: Any = ManyFiles(store, vectors=True, workers=1)
        monkeypatch.setattr(
            many, "_embed", lambda work, places: (seen.append(len(many._works)), _embedded(work, places))
        )
        many.run(paths)
        assert len(store.documents()) == 8
    assert max(seen) <= 3  # those that were being parsed when the first one came


def _embedded(work: Any, places: list[int]) -> None:
    import numpy

    for at in places:
        work.vectors[at] = numpy.ones(384, dtype=numpy.float32)


def test_what_a_new_version_did_not_change_is_not_embedded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longdoc_many.embeddings, "available", lambda: True)
    path = tmp_path / "law.md"
    made: list[int] = []

    def ingest() -> None:
        with DocumentStore(tmp_path / "home") as store:
            many: Any = ManyFiles(store, vectors=True, workers=1)
            monkeypatch.setattr(many, "_embed", lambda work, places: (made.extend(places), _embedded(work, places)))
            many.run([path])

    path.write_text(LAW.format("日月"))
    ingest()
    assert made == [0, 1, 2, 3, 4, 5]
    made.clear()
    path.write_text(LAW.format("日月").replace("玄日月", "玄星辰"))
    ingest()
    assert made == [2]
