"""Reading and writing files: one clear error for whatever goes wrong, and never half a file."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from roadworthy.adapters import files
from roadworthy.adapters.files import read_text, write_atomically
from roadworthy.core.errors import ProbeError, SpecError

if TYPE_CHECKING:
    from pathlib import Path


def test_text_is_read_without_its_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfh\xc3\xa9")
    assert read_text(tmp_path / "a", what="a document") == "hé"


def test_a_missing_file_is_wrong_input_and_its_neighbour_is_named(tmp_path: Path) -> None:
    (tmp_path / "laptop.yaml").touch()
    with pytest.raises(SpecError) as raised:
        read_text(tmp_path / "lapotp.yaml", what="a document")
    assert "no such file" in str(raised.value)
    assert raised.value.hint == f"did you mean {tmp_path / 'laptop.yaml'}?"
    assert raised.value.exit_code == 2


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        read_text(tmp_path / "no" / "x.yaml", what="a document")
    assert "folder" in raised.value.hint


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a folder, wanted a document"):
        read_text(tmp_path, what="a document")


def test_a_path_below_a_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(SpecError, match="no such file"):
        read_text(tmp_path / "a" / "b", what="a document")


def test_binary_is_refused_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a: 1\nb: \xff\xfe")
    with pytest.raises(SpecError, match=r"not UTF-8 text \(byte 0xff on line 2\)"):
        read_text(tmp_path / "a", what="a document")


def test_a_file_too_big_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(SpecError, match="more than 100 bytes"):
        read_text(tmp_path / "a", what="a document", limit_bytes=100)


def test_a_nul_in_a_path_is_no_traceback() -> None:
    with pytest.raises(SpecError):
        read_text("a\0b", what="a document")
    with pytest.raises(ProbeError):
        write_atomically("a\0b", "x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_we_may_not_read_could_not_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a").touch(mode=0)
    with pytest.raises(ProbeError) as raised:
        read_text(tmp_path / "a", what="a document")
    assert raised.value.exit_code == 3


def test_an_unreadable_file_could_not_be_looked_at() -> None:
    with pytest.raises(ProbeError) as raised:
        read_text("/proc/self/mem", what="a document")
    assert raised.value.exit_code == 3


def test_what_is_written_is_there_whole_and_alone(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", "hé")
    write_atomically(tmp_path / "b", b"\x00\xff")
    assert (tmp_path / "a").read_text(encoding="utf-8") == "hé"
    assert (tmp_path / "b").read_bytes() == b"\x00\xff"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_new_file_has_the_usual_mode_a_replaced_one_its_own_and_a_given_one_goes_first(tmp_path: Path) -> None:
    def mode(name: str) -> int:
        return stat.S_IMODE((tmp_path / name).stat().st_mode)

    mask = os.umask(0o022)
    try:
        write_atomically(tmp_path / "new", "x")
        (tmp_path / "old").touch()
        (tmp_path / "old").chmod(0o640)
        write_atomically(tmp_path / "old", "x")
        write_atomically(tmp_path / "secret", "x", mode=0o600)
    finally:
        os.umask(mask)
    assert [mode(name) for name in ("new", "old", "secret")] == [0o644, 0o640, 0o600]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize("place", ["missing/a", "file/a", "folder", "a" * 300])
def test_a_place_that_cannot_be_written_is_an_error_that_leaves_nothing(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ProbeError) as raised:
        write_atomically(tmp_path / place, "x")
    assert raised.value.hint
    assert sorted(tmp_path.rglob("*")) == before


def test_a_full_disk_is_an_error_and_the_old_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(ProbeError, match="No space left on device") as raised:
        write_atomically(tmp_path / "a", "new")
    assert "another disk" in raised.value.hint
    assert (tmp_path / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a", "new")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_keeps_its_place(tmp_path: Path) -> None:
    """As root, writing in one step would put a file where a device was."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ProbeError, match="a device, a pipe or a socket"):
        write_atomically(pipe, "text")
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]
