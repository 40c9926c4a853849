"""Hosts over a stand-in ssh that runs the script here, with stand-ins for journal, containers and metrics."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from roadworthy.adapters.incident.fetched import Fetched
from roadworthy.adapters.incident.hosts import Asked, Sections, _script, fetch_hosts
from roadworthy.adapters.incident.read import read_incident
from roadworthy.core.errors import SpecError

XID = "NVRM: Xid (PCI:0000:dd:00): 79, pid=1, GPU has fallen off the bus."
SSH = """\
#!/bin/sh
case "$*" in *gone*) echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255;; esac
exec sh -s
"""
JOURNAL = f"""\
#!/bin/sh
echo "$*" >> "$STAND_INS/asked"
echo '2026-11-02T04:11:09.123456+0000 alpha kernel: {XID}'
"""
DOCKER = """\
#!/bin/sh
case "$1" in
ps) echo 'aaa vllm-serve vllm/vllm-openai:v0.32.0'; echo 'bbb cache redis:7';;
logs) echo '2026-11-02T04:11:10.000Z (EngineCore pid=7) ERROR 11-02 04:11:10 EngineCore encountered a fatal error.';;
inspect) echo 'State exited OOMKilled=true Exit Code: 137';;
esac
"""
CURL = """\
#!/bin/sh
case "$*" in
*:8000/*) echo 'vllm:num_requests_running{engine="0"} 3';;
*:8080/*) echo 'somebody_elses_metric 1';;
*) exit 7;;
esac
"""


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"ssh": SSH, "journalctl": JOURNAL, "docker": DOCKER, "curl": CURL}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name in ("podman", "nerdctl", "crictl"):  # whatever this machine has of them stays out of it
        (folder / name).write_text("#!/bin/sh\nexit 0\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STAND_INS", str(folder))
    monkeypatch.setattr("roadworthy.adapters.incident.hosts.capture_over_ssh", lambda hosts: {})
    return folder


def fetched(tmp_path: Path, *hosts: str, logs: str = "") -> Fetched:
    one = Fetched(folder=tmp_path / "fetched")
    one.folder.mkdir()
    fetch_hosts(Asked(hosts=hosts, since_s=3600, logs=logs), one)
    return one


def test_journal_containers_logs_and_metrics_of_a_host_become_files(stand_ins: Path, tmp_path: Path) -> None:
    logs = tmp_path / 'odd "name" $HOME'
    logs.mkdir()
    (logs / "rank0.log").write_text("[rank0] hello\n")
    got = fetched(tmp_path, "alpha", logs=str(logs))
    files = {
        path.relative_to(got.folder / "hosts/alpha").as_posix() for path in got.folder.rglob("*") if path.is_file()
    }
    named = {name for name in files if not name.startswith("logs/")}
    assert named == {"journal.log", "containers/vllm-serve.log", "containers/vllm-serve.state.txt", "metrics.8000.prom"}
    assert any(name.endswith("rank0.log") for name in files)
    assert "--since=-3600s" in (stand_ins / "asked").read_text()
    assert not got.missed


def test_the_host_is_the_place_of_its_lines_and_a_line_stands_where_the_file_has_it(
    stand_ins: Path, tmp_path: Path
) -> None:
    del stand_ins
    book = read_incident([fetched(tmp_path, "10.0.0.9").folder]).examination.book()
    (xid,) = book.all("gpu.xid")
    assert xid.host == "alpha"  # the line's own word
    assert xid.lines[0].file == "hosts/10.0.0.9/journal.log"
    assert {clue.host for clue in book.all("engine.fatal")} == {"10.0.0.9"}


def test_hosts_are_asked_apart_and_one_that_cannot_be_reached_is_noted(stand_ins: Path, tmp_path: Path) -> None:
    del stand_ins
    got = fetched(tmp_path, "alpha", "gone")
    assert (got.folder / "hosts/alpha/journal.log").exists()
    assert dict(got.missed) == {"gone": "ssh: connect to host gone port 22: No route to host"}


def test_a_tool_that_is_missing_or_fails_there_is_noted(stand_ins: Path, tmp_path: Path) -> None:
    (stand_ins / "docker").write_text("#!/bin/sh\necho 'permission denied while trying to connect' >&2\nexit 1\n")
    (stand_ins / "journalctl").write_text(
        "#!/bin/sh\necho 'Hint: You are currently not seeing messages from other users'\n"
    )
    missed = dict(fetched(tmp_path, "alpha").missed)
    assert missed["hosts/alpha/docker.txt"] == "`docker ps` failed there"
    assert "systemd-journal" in missed["hosts/alpha/journal.log"]


@pytest.mark.parametrize("host", ["-oProxyCommand=x", " "])
def test_what_ssh_would_take_for_an_option_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(SpecError):
        fetched(tmp_path, host)


def test_a_connection_that_ends_in_the_middle_keeps_what_came(tmp_path: Path) -> None:
    one = Fetched(folder=tmp_path)
    sections = Sections("hosts/a", b"@@@m", one)
    for piece in (b"banner\n@@@m beg", b"in journal.log\nfirst\nsec", b"ond"):
        sections.feed(piece)
    sections.close()
    assert (tmp_path / "hosts/a/journal.log").read_text() == "first\nsecond"
    assert dict(one.missed) == {"hosts/a/journal.log, the rest": "the connection ended"}


def test_a_log_cannot_pass_for_the_end_of_its_section_nor_lead_out_of_the_folder(tmp_path: Path) -> None:
    one = Fetched(folder=tmp_path / "f")
    sections = Sections("hosts/a", b"@@@secret", one)
    sections.feed(b"@@@secret begin ../../../x.log\n@@@guess end done\n@@@ end ../x done\n@@@secret end done\n")
    sections.close()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["x.log"]
    assert next((tmp_path / "f").rglob("x.log")).read_text() == "@@@guess end done\n@@@ end ../x done\n"


def test_the_script_is_one_that_shellcheck_passes(tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    script = tmp_path / "ask.sh"
    script.write_text("#!/bin/sh\n" + _script(Asked(hosts=("a",), since_s=60, logs='/x "y" $z `q`'), "@@@m"))
    done = subprocess.run(["shellcheck", str(script)], capture_output=True, text=True, check=False)
    assert done.stdout == ""
