"""A folder of rendered files: written whole, compared, and cleaned of nothing but our own."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from roadworthy.adapters.rendered_files import difference, write_artifacts
from roadworthy.core.errors import ProbeError
from roadworthy.render.values import Artifact

A = Artifact(path="node-0.sh", text="echo a\n", mode=0o755, node=0)
B = Artifact(path="deep/er/b.conf", text="b = 1\n")


def names(folder: Path) -> set[str]:
    return {str(place.relative_to(folder)) for place in folder.rglob("*") if place.is_file()}


def test_files_have_their_text_and_mode_and_a_manifest_names_them(tmp_path: Path) -> None:
    done = write_artifacts(tmp_path / "t", (A, B))
    assert set(done.written) == {"node-0.sh", "deep/er/b.conf"}
    assert (tmp_path / "t/node-0.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "t/deep/er/b.conf").stat().st_mode & 0o777 == 0o644
    entries = json.loads((tmp_path / "t/manifest.json").read_text())
    assert [(entry["path"], entry["node"]) for entry in entries] == [("deep/er/b.conf", None), ("node-0.sh", 0)]
    assert entries[0]["sha256"] == hashlib.sha256(b"b = 1\n").hexdigest()


def test_writing_again_changes_nothing(tmp_path: Path) -> None:
    write_artifacts(tmp_path, (A, B))
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in names(tmp_path) - {"manifest.json"}}
    done = write_artifacts(tmp_path, (A, B))
    assert not done.written
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in before} == before


def test_what_is_no_longer_made_goes_and_foreign_files_stay(tmp_path: Path) -> None:
    write_artifacts(tmp_path, (A, B))
    (tmp_path / "notes.txt").write_text("mine")
    done = write_artifacts(tmp_path, (A,))
    assert done.removed == ("deep/er/b.conf",)
    assert names(tmp_path) == {"node-0.sh", "manifest.json", "notes.txt"}
    assert not (tmp_path / "deep").exists()


def test_a_folder_that_holds_something_else_stays(tmp_path: Path) -> None:
    write_artifacts(tmp_path, (A, B))
    (tmp_path / "deep/mine").write_text("mine")
    write_artifacts(tmp_path, (A,))
    assert names(tmp_path) == {"node-0.sh", "manifest.json", "deep/mine"}


def test_a_stale_file_that_was_changed_by_hand_stays_and_is_told(tmp_path: Path) -> None:
    write_artifacts(tmp_path, (A, B))
    (tmp_path / "deep/er/b.conf").write_text("b = 2\n")
    done = write_artifacts(tmp_path, (A,))
    assert (done.removed, done.kept) == ((), ("deep/er/b.conf",))
    assert (tmp_path / "deep/er/b.conf").exists()


@pytest.mark.parametrize(
    "manifest",
    [
        '[{"path": "../outside", "sha256": "x", "node": null}]',
        '[{"path": "/etc/hosts", "sha256": "x", "node": null}]',
        '[{"path": ["a"], "sha256": 1}]',
        "{}",
        "not json",
        "[1]",
        "null",
    ],
)
def test_a_manifest_that_is_not_ours_removes_nothing(manifest: str, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    (tmp_path / "outside").write_text("theirs")
    (folder / "manifest.json").write_text(manifest)
    assert write_artifacts(folder, (A,)).removed == ()
    assert (tmp_path / "outside").exists()


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "deep").symlink_to(elsewhere)
    with pytest.raises(ProbeError, match="a link leads out"):
        write_artifacts(folder, (B,))
    assert not list(elsewhere.iterdir())


def test_a_mode_that_was_changed_is_put_right(tmp_path: Path) -> None:
    write_artifacts(tmp_path, (A,))
    (tmp_path / "node-0.sh").chmod(0o600)
    assert difference(tmp_path, (A,)) == f"mode {tmp_path.name}/node-0.sh 600 -> 755\n"
    assert write_artifacts(tmp_path, (A,)).written == ("node-0.sh",)
    assert not difference(tmp_path, (A,))


def test_the_difference_shows_new_changed_and_stale_files_and_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "vllm"
    assert difference(folder, (A,)) == "--- /dev/null\n+++ vllm/node-0.sh\n@@ -0,0 +1 @@\n+echo a\n"
    assert not folder.exists()
    write_artifacts(folder, (A, B))
    changed = Artifact(path="node-0.sh", text="echo c\n", mode=0o755, node=0)
    told = difference(folder, (changed,))
    assert "-echo a\n+echo c\n" in told
    assert "--- vllm/deep/er/b.conf\n+++ /dev/null\n" in told
    assert (folder / "node-0.sh").read_text() == "echo a\n"


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProbeError, match="cannot be made"):
        write_artifacts(tmp_path / "file", (A,))
    (tmp_path / "t/node-0.sh").mkdir(parents=True)
    with pytest.raises(ProbeError):
        write_artifacts(tmp_path / "t", (A,))
    assert (tmp_path / "t/node-0.sh").is_dir()


def test_one_path_twice_is_a_mistake_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one path"):
        write_artifacts(tmp_path, (A, A))


@pytest.mark.parametrize("path", ["", "/abs", "a//b", "../up", "a/../b", "."])
def test_an_artifact_stays_inside_its_folder(path: str) -> None:
    with pytest.raises(ValueError, match="does not stay inside"):
        Artifact(path=path, text="")
