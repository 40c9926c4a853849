"""Units for systemd, held against systemd's own reading."""

from __future__ import annotations

import http.server
import os
import subprocess
import threading
from pathlib import Path

import pytest

from support.rendering import (
    LLAMA_ON_8_H100,
    TINY,
    V4_ON_32_H100,
    fake_program,
    render_input,
    rendered,
    run,
    shellcheck,
    start,
    write,
)


def keys(text: str) -> dict[str, str]:
    rows = (line.partition("=") for line in text.splitlines() if line and line[0] not in "#[")
    return {name: value for name, _, value in rows}


def unit(document: str, layout: str | None = None, *, host: int = 0) -> dict[str, str]:
    files = rendered("systemd", render_input(document, layout))
    return next(keys(files[path].text) for path in files if path.startswith(f"node-{host}/") and ".service" in path)


@pytest.mark.parametrize(
    ("document", "layout"), [(V4_ON_32_H100, "2 x TP8 PP2"), (LLAMA_ON_8_H100, "4 x TP2"), (TINY, None)]
)
def test_systemd_finds_nothing_to_correct(document: str, layout: str | None, tmp_path: Path) -> None:
    write(tmp_path, rendered("systemd", render_input(document, layout)))
    units = sorted(tmp_path.rglob("*.service"))
    assert units
    for one in units:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(one)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr.strip()) == (0, ""), one
    assert not shellcheck(*sorted(tmp_path.rglob("*.sh")))


def test_a_start_may_take_as_long_as_loading_and_a_stop_as_long_as_requests() -> None:
    found = unit(V4_ON_32_H100 + "engine: {settings: {shutdown_timeout: 300}}\n", "TP8 PP4")
    assert int(found["TimeoutStartSec"]) > 3600 >= 20 * 60
    assert int(found["TimeoutStopSec"]) > 300
    assert found["LimitMEMLOCK"] == "infinity"
    assert found["Restart"] == "on-failure"
    assert int(found["StartLimitBurst"]) * int(found["TimeoutStartSec"]) >= int(found["StartLimitIntervalSec"])


def test_hardening_leaves_gpus_alone() -> None:
    found = unit(V4_ON_32_H100, "TP8 PP4")
    assert not {"PrivateDevices", "ProtectClock", "DeviceAllow", "RestrictNamespaces"} & set(found)
    assert found["MemoryDenyWriteExecute"] == "no"


def test_only_what_answers_waits_for_an_answer() -> None:
    assert "ExecStartPost" in unit(V4_ON_32_H100, "TP8 PP4", host=0)
    assert "ExecStartPost" not in unit(V4_ON_32_H100, "TP8 PP4", host=1)


def test_secrets_are_in_a_file_of_their_own_that_root_alone_reads() -> None:
    files = rendered("systemd", render_input(V4_ON_32_H100, "TP8 PP4"))
    assert files["node-0/engine.env"].mode == 0o600
    assert "#VLLM_API_KEY=" in files["node-0/engine.env"].text
    assert unit(V4_ON_32_H100, "TP8 PP4")["EnvironmentFile"].endswith("/engine.env")


def test_every_host_has_its_own_folder_and_no_others() -> None:
    files = rendered("systemd", render_input(V4_ON_32_H100, "2 x TP8 PP2"))
    assert {artifact.node for path, artifact in files.items() if path.startswith("node-2/")} == {2}
    assert {path.split("/")[0] for path in files} == {"node-0", "node-1", "node-2", "node-3", "README.md"}


def test_the_script_of_the_unit_is_the_one_of_the_target_vllm() -> None:
    inputs = render_input(V4_ON_32_H100, "TP8 PP4")
    assert rendered("systemd", inputs)["node-2/engine-0.sh"].text == rendered("vllm", inputs)["node-2.sh"].text


def test_a_line_of_the_variables_file_works_once_it_is_uncommented(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    fake_program(programs, "vllm")
    write(tmp_path, rendered("systemd", render_input(V4_ON_32_H100, "TP8 PP4")))
    rows = (tmp_path / "node-1/engine.env").read_text().splitlines()
    offered = {row[1:].partition("=")[0] for row in rows if row.startswith("#") and not row.startswith("# ")}
    assert offered == {
        "VLLM_API_KEY", "HF_TOKEN", "ROADWORTHY_BIN", "ROADWORTHY_MASTER_ADDR", "ROADWORTHY_NODE_ADDR",
        "ROADWORTHY_INTERFACE", "ROADWORTHY_MODEL",
    }  # fmt: skip
    env = {
        "ROADWORTHY_MASTER_ADDR": "10.0.0.1", "ROADWORTHY_NODE_ADDR": "10.0.0.2", "ROADWORTHY_INTERFACE": "ens1",
        "ROADWORTHY_MODEL": "/m",
    }  # fmt: skip
    assert start(tmp_path / "node-1/engine-0.sh", path=programs, env=env).env["VLLM_HOST_IP"] == "10.0.0.2"


class Health(http.server.BaseHTTPRequestHandler):
    answers: list[int]

    def do_GET(self) -> None:
        assert self.path == "/health"
        self.send_response(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def waiting(tmp_path: Path, port: int) -> Path:
    """The waiting script for an engine on ``port``, with no pause between its looks."""
    text = rendered("systemd", render_input(TINY))["node-0/wait-for-engine-0.sh"].text
    script = tmp_path / "wait.sh"
    script.write_text(text.replace("8000", str(port)).replace("sleep 5", "sleep 0"))
    script.chmod(0o755)
    return script


def test_waiting_ends_with_the_first_good_answer(tmp_path: Path) -> None:
    Health.answers = [503, 503, 200]
    with http.server.HTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = run(waiting(tmp_path, server.server_port), path=tmp_path, env={"MAINPID": str(os.getpid())})
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert Health.answers == [200]


def test_waiting_fails_once_the_engine_has_ended(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    done = run(waiting(tmp_path, 1), path=tmp_path, env={"MAINPID": str(ended.pid)})
    assert done.returncode == 1
    assert "ended before it answered" in done.stderr
