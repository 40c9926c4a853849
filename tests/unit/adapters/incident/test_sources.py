"""Incidents in every wrapping: archives, compressed logs, odd encodings, journals; bombs, damage and junk are named."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
import zstandard

from roadworthy.adapters.incident.read import Reading, read_incident
from roadworthy.adapters.incident.sources import safe_name, sources
from roadworthy.core.errors import ProbeError

XID = "[771.120] NVRM: Xid (PCI:0000:dd:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


def names(reading: Reading) -> set[str]:
    return {one.lines[0].file for one in reading.examination.book().all("gpu.xid")}


def tar(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_of_any_compression_is_read_member_by_member(tmp_path: Path, mode: str) -> None:
    path = tar(
        tmp_path / "incident.tar",
        {"node-a/dmesg.txt": XID.encode(), "node-a/old.log.gz": gzip.compress(XID.encode())},
        mode,
    )
    assert names(read_incident([path])) == {"node-a/dmesg.txt", "node-a/old.log"}


def test_a_zip_and_a_tar_inside_it_are_read(tmp_path: Path) -> None:
    inner = tar(tmp_path / "inner.tgz", {"dmesg.txt": XID.encode()})
    path = tmp_path / "incident.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(inner, "inner.tgz")
        archive.writestr("plain.log", XID)
    assert names(read_incident([path])) == {"plain.log", "dmesg.txt"}


def test_rotated_and_compressed_logs_of_a_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "kern.log.1").write_text(XID)
    (tmp_path / "kern.log.2.gz").write_bytes(gzip.compress(XID.encode()))
    (tmp_path / "kern.log.3.xz").write_bytes(lzma.compress(XID.encode()))
    assert names(read_incident([tmp_path])) == {"kern.log.1", "kern.log.2", "kern.log.3"}


def test_names_in_an_archive_lead_nowhere(tmp_path: Path) -> None:
    path = tar(tmp_path / "evil.tgz", {"../../etc/passwd": XID.encode(), "/root/x.log": XID.encode()})
    assert names(read_incident([path])) == {"etc/passwd", "root/x.log"}
    assert not (tmp_path.parent / "etc").exists()
    assert safe_name("..\\..\\a") == "a"


def test_a_member_named_like_its_archive_is_not_taken_for_the_plain_file(tmp_path: Path) -> None:
    path = tar(tmp_path / "incident", {"incident": XID.encode()}, "w")
    (tmp_path / "plain.log").write_text(XID)
    found = {one.name: one.path for one in sources([path, tmp_path / "plain.log"], lambda *_: None)}
    assert found == {"incident": None, "plain.log": tmp_path / "plain.log"}


def test_a_bomb_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(300 * 2**20), compresslevel=9))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(80 * 2**20))
    (tmp_path / "dmesg.txt").write_text(XID)
    reading = read_incident([tmp_path])
    assert names(reading) == {"dmesg.txt"}
    assert {name for name, _ in reading.skipped} == {"bomb", "zeros"}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_texts_of_other_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "dmesg.txt").write_bytes((XID * 3).encode(encoding))
    assert names(read_incident([tmp_path])) == {"dmesg.txt"}


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "core.bin").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(XID.encode() * 1000)[:-20])
    (tmp_path / "cut.tgz").write_bytes(
        tar(tmp_path / "whole.tar.gz", {"a.log": XID.encode() * 5000}).read_bytes()[:200]
    )
    (tmp_path / "empty.log").touch()
    (tmp_path / "latin.log").write_bytes(b"temp\xe9rature\n" + XID.encode())
    reading = read_incident([tmp_path])
    assert "latin.log" in names(reading)
    assert {"core.bin", "cut", "cut.tgz"} & {name for name, _ in reading.skipped} >= {"core.bin"}


def test_journal_and_container_records_are_unwrapped(tmp_path: Path) -> None:
    record = {
        "MESSAGE": XID.strip(),
        "_HOSTNAME": "node-q",
        "SYSLOG_IDENTIFIER": "kernel",
        "__REALTIME_TIMESTAMP": "1793592000000000",
    }
    (tmp_path / "journal.json").write_text(json.dumps(record) + "\n{broken\n")
    (tmp_path / "0.log").write_text(json.dumps({"log": XID, "stream": "stdout", "time": "2026-11-02T04:00:00Z"}) + "\n")
    reading = read_incident([tmp_path])
    assert names(reading) == {"journal.json", "0.log"}
    clue = next(one for one in reading.examination.book().all("gpu.xid") if one.lines[0].file == "journal.json")
    assert clue.host == "node-q"


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="no such file"):
        read_incident([tmp_path / "nowhere"])


def test_a_file_without_line_ends_is_read_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "one-line.log").write_bytes(b"x" * (40 * 2**20) + XID.encode())
    assert read_incident([tmp_path]).files == 1


def test_a_large_log_read_in_pieces_gives_what_one_reading_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"INFO request {number} done in {number % 7} ms" for number in range(20_000)]
    for number in range(0, 20_000, 37):
        lines[number] = XID.strip()
    (tmp_path / "kern.log").write_text("\n".join(lines))
    whole = read_incident([tmp_path]).examination.book().all("gpu.xid")
    monkeypatch.setattr("roadworthy.adapters.incident.read.PARALLEL_FROM_BYTES", 1)
    monkeypatch.setattr("roadworthy.adapters.incident.read.cores", lambda: 2)
    monkeypatch.setattr("roadworthy.adapters.incident.parallel.PIECE_BYTES", 50_000)
    pieces = read_incident([tmp_path]).examination.book().all("gpu.xid")
    assert pieces == whole
    assert whole[0].count == len(range(0, 20_000, 37))


def test_archives_in_archives_are_read_as_they_stream_by(tmp_path: Path) -> None:
    deep = tar(tmp_path / "deep.tar.xz", {"var/log/kern.log": XID.encode()}, "w:xz").read_bytes()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("in-zip.log", XID)
        archive.writestr("sos.tar.xz", deep)
    tar(
        tmp_path / "outer.tar.gz",
        {
            "a/deep.tar.xz": deep,
            "b.zip": packed.getvalue(),
            "c.tar": tar(tmp_path / "c", {"c.log": XID.encode()}, "w").read_bytes(),
        },
    )
    for rest in ("deep.tar.xz", "c"):
        (tmp_path / rest).unlink()
    reading = read_incident([tmp_path])
    assert names(reading) == {"var/log/kern.log", "in-zip.log", "c.log"}
    assert len(reading.examination.book().all("gpu.xid")) == 4
    assert not reading.skipped


def test_archives_nested_without_end_are_named(tmp_path: Path) -> None:
    data = XID.encode()
    for number in range(8):
        data = tar(tmp_path / "x.tar", {f"{number}.tar": data}, "w").read_bytes()
    assert [reason for _, reason in read_incident([tmp_path]).skipped] == ["archives nested deeper than 4"]


@pytest.mark.parametrize("by", ["module", "program"])
def test_zstandard_is_read_alone_and_in_archives(tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "program":
        if shutil.which("zstd") is None:
            pytest.skip("the program zstd is not installed")
        monkeypatch.setitem(sys.modules, "zstandard", None)
    pack = zstandard.ZstdCompressor().compress
    (tmp_path / "kern.log.1.zst").write_bytes(pack(XID.encode()) + pack(XID.encode()))
    inner = tar(tmp_path / "inner.tar", {"kern.log.2.zst": pack(XID.encode())}, "w").read_bytes()
    (tmp_path / "inner.tar").unlink()
    (tmp_path / "sos.tar.zst").write_bytes(pack(inner))
    reading = read_incident([tmp_path])
    assert names(reading) == {"kern.log.1", "kern.log.2"}
    assert len(reading.examination.book().all("gpu.xid")) == 3


@pytest.mark.parametrize("wrap", ["w:gz", "w:xz"])
def test_a_bomb_in_an_archive_is_named_and_what_lies_beside_it_is_read(
    tmp_path: Path, wrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roadworthy.adapters.incident.sources.EXPANSION_FREE_BYTES", 4 * 2**20)
    (tmp_path / "dmesg.txt").write_text(XID)
    tar(tmp_path / "bomb.tar", {"first.log": XID.encode(), "zeros.log": b"0" * (12 * 2**20)}, wrap)
    reading = read_incident([tmp_path])
    assert names(reading) == {"dmesg.txt", "first.log"}
    assert any("a bomb?" in reason for _, reason in reading.skipped)


def test_a_pipe_is_read_once_and_may_hold_an_archive(tmp_path: Path) -> None:
    packed = tar(tmp_path / "x.tgz", {"kern.log": XID.encode()}).read_bytes()
    (tmp_path / "x.tgz").unlink()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(packed,))
    writer.start()
    assert names(read_incident([pipe])) == {"kern.log"}
    writer.join(10)


def test_stdin_is_read_like_a_file() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "roadworthy", "diagnose", "-", "--json"],
        input=XID.encode(),
        capture_output=True,
        check=False,
    )
    document = json.loads(done.stdout)
    assert (done.returncode, document["findings"][0]["evidence"][0]["file"]) == (1, "stdin")


def test_a_file_that_vanishes_meanwhile_is_named_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.log", "b.log", "c.log"):
        (tmp_path / name).write_text(XID)
    real, gone = Path.open, []

    def opened(path: Path, *arguments: str) -> object:
        if path.name == "b.log" or gone:
            gone.append(path.name)
            path.unlink(missing_ok=True)
        return real(path, *arguments)

    monkeypatch.setattr(Path, "open", opened)
    reading = read_incident([tmp_path])
    assert names(reading) == {"a.log"}
    assert [name for name, _ in reading.skipped] == ["b.log", "c.log"]
