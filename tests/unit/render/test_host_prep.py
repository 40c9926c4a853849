"""Preparing a host and taking it back, in a tree of its own; the janitor among segments that are alive and dead."""

from __future__ import annotations

import getpass
import mmap
import os
import subprocess
import time
from pathlib import Path

import pytest

from support.rendering import LLAMA_ON_8_H100, V4_ON_32_H100, render_input, rendered, shellcheck, write


@pytest.fixture
def prep(tmp_path: Path) -> Path:
    write(tmp_path / "prep", rendered("host-prep", render_input(V4_ON_32_H100, "TP8 PP4")))
    return tmp_path / "prep"


def call(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(script), *arguments], capture_output=True, text=True, timeout=60, check=False)


def tree(root: Path) -> dict[str, str]:
    return {
        str(place.relative_to(root)): place.read_text() if place.is_file() else "" for place in sorted(root.rglob("*"))
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with a limits file of its own and an empty folder for units."""
    place = tmp_path / "a host"
    (place / "etc/security/limits.d").mkdir(parents=True)
    (place / "etc/security/limits.d/90-roadworthy.conf").write_text("older\n")
    (place / "etc/systemd/system").mkdir(parents=True)
    (place / "var/lib/dpkg").mkdir(parents=True)
    return place


def test_shellcheck_and_systemd_find_nothing(prep: Path) -> None:
    assert not shellcheck(*sorted(prep.glob("*.sh")))
    units = [str(prep / "shm-janitor.service"), str(prep / "shm-janitor.timer")]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_apply_places_and_undo_takes_back_exactly(prep: Path, root: Path) -> None:
    before = tree(root)
    done = call(prep / "apply.sh", "--root", str(root), "--user", "llm", "--janitor", "--ray-unit", "ray.service")
    assert done.returncode == 0, done.stderr
    limits = (root / "etc/security/limits.d/90-roadworthy.conf").read_text()
    assert "llm hard memlock unlimited" in limits
    assert "@USER@" not in "".join(tree(root).values()).replace((prep / "shm-janitor.sh").read_text(), "")
    drop_in = (root / "etc/systemd/system/ray.service.d/50-roadworthy.conf").read_text()
    assert "OOMScoreAdjust=-500" in drop_in
    assert "Environment=RAY_health_check_timeout_ms=30000" in drop_in
    assert (root / "usr/local/lib/roadworthy/shm-janitor.sh").stat().st_mode & 0o777 == 0o755
    undone = call(prep / "undo.sh", "--root", str(root))
    assert undone.returncode == 0, undone.stderr
    assert tree(root) == before


def test_without_being_asked_neither_ray_nor_timers_are_touched(prep: Path, root: Path) -> None:
    assert call(prep / "apply.sh", "--root", str(root)).returncode == 0
    assert not list((root / "etc/systemd").rglob("*.conf")) + list((root / "etc/systemd").rglob("*.timer"))


def test_a_dry_run_changes_nothing(prep: Path, root: Path) -> None:
    before = tree(root)
    done = call(prep / "apply.sh", "--root", str(root), "--janitor", "--dry-run")
    assert done.returncode == 0
    assert "place /etc/security/limits.d/90-roadworthy.conf" in done.stdout
    assert tree(root) == before
    assert call(prep / "apply.sh", "--root", str(root)).returncode == 0
    applied = tree(root)
    assert call(prep / "undo.sh", "--root", str(root), "--dry-run").returncode == 0
    assert tree(root) == applied


def test_applying_twice_is_refused_so_that_undo_still_knows_what_was_there(prep: Path, root: Path) -> None:
    assert call(prep / "apply.sh", "--root", str(root)).returncode == 0
    again = call(prep / "apply.sh", "--root", str(root))
    assert again.returncode == 2
    assert "run undo.sh first" in again.stderr
    call(prep / "undo.sh", "--root", str(root))
    assert (root / "etc/security/limits.d/90-roadworthy.conf").read_text() == "older\n"


def test_undo_leaves_what_others_put_beside_our_files(prep: Path, root: Path) -> None:
    call(prep / "apply.sh", "--root", str(root), "--ray-unit", "ray.service")
    mine = root / "etc/systemd/system/ray.service.d/99-mine.conf"
    mine.write_text("[Service]\n")
    assert call(prep / "undo.sh", "--root", str(root)).returncode == 0
    assert mine.exists()


@pytest.mark.parametrize(
    "arguments",
    [("--user", "x;reboot"), ("--user",), ("--ray-unit", "../../x.service"), ("--ray-unit", "ray"), ("--what",)],
)
def test_wrong_use_is_told_and_changes_nothing(arguments: tuple[str, ...], prep: Path, root: Path) -> None:
    before = tree(root)
    done = call(prep / "apply.sh", "--root", str(root), *arguments)
    assert done.returncode == 2
    assert "error:" in done.stderr
    assert tree(root) == before


# --- the janitor -----------------------------------------------------------------------------------------------------

NO_ENGINE = "no[_]such[_]engine"


def hidden() -> list[str]:
    """Processes that this account may not look at, such as the init of a sandbox."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            (place / "maps").read_bytes()
        except PermissionError:
            found.append(place.name)
        except OSError:
            continue
    return found


def janitor(prep: Path, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run it among the processes of this machine, whose closed ones are named; one that began meanwhile is too."""
    for _ in range(10):
        ignore = [word for process in hidden() for word in ("--ignore", process)]
        done = call(prep / "shm-janitor.sh", *common(folder), *ignore, *more)
        if done.returncode != 3:
            break
    return done


def common(folder: Path) -> list[str]:
    return ["--user", getpass.getuser(), "--folder", str(folder), "--this-namespace", "--engines", NO_ENGINE]


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    """Segments that nobody uses, of names that engines make and of others."""
    folder = tmp_path / "shm"
    folder.mkdir()
    for name in ("psm_1a2b", "nccl-XyZ", "sem.mp-q", "torch_7_8", "mine", "psmx", "lost+found"):
        (folder / name).write_bytes(b"x" * 4096)
    return folder


def old(*more: str) -> tuple[str, ...]:
    """The segments of a test are as old as the test: the age that counts is none."""
    return ("--min-age", "0", *more)


def test_orphans_go_and_everything_else_stays(prep: Path, segments: Path) -> None:
    done = janitor(prep, segments, *old("--remove"))
    assert done.returncode == 0, done.stderr
    assert sorted(place.name for place in segments.iterdir()) == ["lost+found", "mine", "psmx"]
    assert "removed 16384 bytes" in done.stdout


def test_without_remove_it_only_lists(prep: Path, segments: Path) -> None:
    done = janitor(prep, segments, *old())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("orphan") == 4
    assert len(list(segments.iterdir())) == 7


def test_what_a_process_has_mapped_stays_even_when_it_closed_the_file(prep: Path, segments: Path) -> None:
    with (segments / "psm_1a2b").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    with mapped:
        done = janitor(prep, segments, *old("--remove"))
        assert "psm_1a2b (in use)" in done.stdout
        assert (segments / "psm_1a2b").exists()
    assert "removed" in janitor(prep, segments, *old("--remove")).stdout
    assert not (segments / "psm_1a2b").exists()


def test_what_a_process_has_open_stays(prep: Path, segments: Path) -> None:
    with (segments / "nccl-XyZ").open("rb"):
        janitor(prep, segments, *old("--remove"))
        assert (segments / "nccl-XyZ").exists()


def test_what_changed_lately_stays(prep: Path, segments: Path) -> None:
    done = janitor(prep, segments, "--remove")
    assert done.stdout.count("changed less than 600 s ago") == 4
    assert len(list(segments.iterdir())) == 7


def test_links_and_folders_stay(prep: Path, segments: Path) -> None:
    (segments / "psm_link").symlink_to(segments / "mine")
    (segments / "psm_folder").mkdir()
    os.link(segments / "psm_1a2b", segments / "psm_second_name")
    janitor(prep, segments, *old("--remove"))
    left = {place.name for place in segments.iterdir()}
    assert {"psm_link", "psm_folder", "psm_1a2b", "psm_second_name"} <= left


def test_nothing_is_touched_while_an_engine_runs(prep: Path, segments: Path) -> None:
    with subprocess.Popen(["sleep", "61"]) as engine:
        _until_named(engine.pid)
        done = janitor(prep, segments, *old("--remove"), "--engines", "^sleep 61 ?$")
        engine.kill()
    assert done.returncode == 0
    assert "an engine runs" in done.stdout
    assert len(list(segments.iterdir())) == 7


def _until_named(pid: int) -> None:
    end = time.monotonic() + 30
    while not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep"):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_another_process_namespace_than_the_hosts_is_refused(prep: Path, segments: Path) -> None:
    done = call(prep / "shm-janitor.sh", "--user", getpass.getuser(), "--folder", str(segments), *old("--remove"))
    hosts_own = Path("/proc/self/ns/pid").readlink().name == "pid:[4026531836]"
    assert hosts_own or done.returncode == 3
    assert hosts_own or len(list(segments.iterdir())) == 7


@pytest.mark.skipif(not hidden(), reason="every process of this machine can be looked at")
def test_a_process_that_cannot_be_seen_stops_it(prep: Path, segments: Path) -> None:
    done = call(prep / "shm-janitor.sh", *common(segments), *old("--remove"))
    assert done.returncode == 3
    assert "would not be looked at" in done.stderr
    assert len(list(segments.iterdir())) == 7


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--user", "no-such-account"), "no such account"),
        (("--min-age", "soon"), "wanted whole seconds"),
        (("--folder", "/no/such/folder"), "no such folder"),
        (("--delete",), "not an option"),
    ],
)
def test_wrong_use_of_the_janitor_is_told(arguments: tuple[str, ...], told: str, prep: Path) -> None:
    done = call(prep / "shm-janitor.sh", "--user", getpass.getuser(), *arguments)
    assert done.returncode == 2
    assert told in done.stderr


# --- pages -----------------------------------------------------------------------------------------------------------


def page(document: str, name: str = "fabric.md", layout: str = "TP8 PP4") -> str:
    return rendered("host-prep", render_input(document, layout))[name].text


def test_the_fabric_page_follows_the_link_layer() -> None:
    both, ib, ethernet = (
        page(V4_ON_32_H100.replace("nics:", f"{extra} nics:"))
        for extra in ("", "fabric: infiniband,", "fabric: ethernet, roce_dscp: 34,")
    )
    assert "## InfiniBand" in both and "## Ethernet" in both  # noqa: PT018 one claim
    assert "mlnx_qos -i" not in ib
    assert "for device in $(ls /sys/class/infiniband)" in both
    assert "## InfiniBand" not in ethernet
    assert "--pfc 0,0,0,0,1,0,0,0" in ethernet, "DSCP 34 is priority 4"
    assert "NCCL_IB_TC=138" in ethernet


def test_nothing_changes_firmware_sysctls_or_nics(prep: Path) -> None:
    for script in prep.glob("*.sh"):
        text = script.read_text()
        assert not [word for word in ("mstconfig", "sysctl", "mlnx_qos", "ethtool", "ipcrm") if word in text], script


def test_the_readme_says_whether_workers_are_bound() -> None:
    bound = LLAMA_ON_8_H100.replace("gpu: H100", "gpu_numa_nodes: [0, 0, 0, 0, 1, 1, 1, 1], gpu: H100")
    assert "Workers are bound" in page(bound, "README.md", "TP8")
    assert "Workers are not bound" in page(LLAMA_ON_8_H100, "README.md", "TP8")
