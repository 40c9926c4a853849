"""The start scripts, run for real: what they start is what was meant, whatever a document calls its model."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from roadworthy.render.engine_lines import launch
from support.rendering import (
    LLAMA_ON_8_H100,
    TINY,
    V4_ON_32_H100,
    fake_program,
    flags,
    render_input,
    rendered,
    run,
    shellcheck,
    start,
    write,
)

IP = """\
#!/bin/sh
case "$*" in
  *"route get"*) echo "10.0.0.1 dev ens7 src 10.0.0.9 uid 0 \\\\    cache" ;;
  *"addr show to 10.0.0.9"*) echo "7: ens7    inet 10.0.0.9/24 scope global ens7" ;;
esac
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with a `vllm` that tells what it was given, and an `ip` of a host with one interface."""
    folder = tmp_path / "bin"
    fake_program(folder, "vllm")
    (folder / "ip").write_text(IP)
    (folder / "ip").chmod(0o755)
    return folder


def scripts(tmp_path: Path, document: str, layout: str | None = None) -> Path:
    write(tmp_path / "out", rendered("vllm", render_input(document, layout)))
    return tmp_path / "out"


def test_a_script_starts_exactly_the_line_of_its_host(tmp_path: Path, programs: Path) -> None:
    inputs = render_input(LLAMA_ON_8_H100, "TP8")
    write(tmp_path, rendered("vllm", inputs))
    (line,) = launch(inputs).lines
    started = start(tmp_path / "node-0.sh", path=programs)
    assert started.argv == line.argv
    assert started.env.items() >= {one.name: str(one.value) for one in line.variables}.items()


def test_a_host_finds_its_address_and_interface_from_the_route_to_the_first(tmp_path: Path, programs: Path) -> None:
    folder = scripts(tmp_path, V4_ON_32_H100, "TP8 PP4")
    started = start(folder / "node-2.sh", path=programs, env={"ROADWORTHY_MASTER_ADDR": "10.0.0.1"})
    assert flags(started.argv)["--master-addr"] == "10.0.0.1"
    assert flags(started.argv)["--node-rank"] == "2"
    assert started.env["VLLM_HOST_IP"] == "10.0.0.9"
    assert started.env["NCCL_SOCKET_IFNAME"] == "=ens7"
    assert started.env["GLOO_SOCKET_IFNAME"] == "ens7"


def test_what_the_caller_sets_goes_before_what_is_found(tmp_path: Path, programs: Path) -> None:
    folder = scripts(tmp_path, V4_ON_32_H100, "TP8 PP4")
    given = {
        "ROADWORTHY_MASTER_ADDR": "10.0.0.1", "ROADWORTHY_NODE_ADDR": "10.9.9.9", "ROADWORTHY_INTERFACE": "bond0",
        "ROADWORTHY_MODEL": "/nvme/v4",
    }  # fmt: skip
    started = start(folder / "node-1.sh", path=programs, env=given)
    assert started.env["VLLM_HOST_IP"] == "10.9.9.9"
    assert started.env["GLOO_SOCKET_IFNAME"] == "bond0"
    assert started.argv[:2] == ("serve", "/nvme/v4")


def test_hosts_of_the_document_are_the_defaults(tmp_path: Path, programs: Path) -> None:
    hosts = "hosts: [{address: 10.0.0.1}, {address: 10.0.0.2}, {address: 10.0.0.3}, {address: 10.0.0.4}]"
    named = V4_ON_32_H100.replace("nics:", f"{hosts}, interface: ens3, nics:")
    folder = scripts(tmp_path, named, "2 x TP8 PP2")
    started = start(folder / "node-3.sh", path=programs)
    assert flags(started.argv)["--master-addr"] == "10.0.0.3"
    assert started.env["VLLM_HOST_IP"] == "10.0.0.4"
    assert started.env["GLOO_SOCKET_IFNAME"] == "ens3"


def test_the_engine_may_be_in_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = scripts(tmp_path, TINY)
    fake_program(tmp_path / "an engine", "vllm")
    env = {"ROADWORTHY_MODEL": "/m", "ROADWORTHY_BIN": str(tmp_path / "an engine")}
    assert start(folder / "node-0.sh", path=tmp_path, env=env).argv[:2] == ("serve", "/m")


def test_a_missing_address_stops_the_script_before_anything_starts(tmp_path: Path, programs: Path) -> None:
    done = run(scripts(tmp_path, V4_ON_32_H100, "TP8 PP4") / "node-0.sh", path=programs)
    assert done.returncode != 0
    assert "ROADWORTHY_MASTER_ADDR: set it to the address of the first host" in done.stderr
    assert not done.stdout


def test_a_host_without_a_route_is_told(tmp_path: Path, programs: Path) -> None:
    (programs / "ip").write_text("#!/bin/sh\n")
    done = run(
        scripts(tmp_path, V4_ON_32_H100, "TP8 PP4") / "node-1.sh",
        path=programs,
        env={"ROADWORTHY_MASTER_ADDR": "10.0.0.1"},
    )
    assert done.returncode == 2
    assert "no route to 10.0.0.1: set ROADWORTHY_NODE_ADDR" in done.stderr


def test_the_key_comes_from_a_file_and_is_in_no_script(tmp_path: Path, programs: Path) -> None:
    folder = scripts(tmp_path, TINY)
    key = tmp_path / "key"
    key.write_text("sk-secret\n")
    env = {"ROADWORTHY_MODEL": "/m", "ROADWORTHY_API_KEY_FILE": str(key)}
    started = start(folder / "node-0.sh", path=programs, env=env)
    assert started.env["VLLM_API_KEY"] == "sk-secret"
    assert "sk-secret" not in " ".join(started.argv)
    without = start(folder / "node-0.sh", path=programs, env={"ROADWORTHY_MODEL": "/m"})
    assert "VLLM_API_KEY" not in without.env


def test_a_key_file_that_is_not_there_stops_the_start(tmp_path: Path, programs: Path) -> None:
    folder = scripts(tmp_path, TINY)
    env = {"ROADWORTHY_MODEL": "/m", "ROADWORTHY_API_KEY_FILE": str(tmp_path / "missing")}
    assert run(folder / "node-0.sh", path=programs, env=env).returncode != 0


HOSTILE = [
    "/models/a'b",
    '/models/a"b',
    "/models/$(touch pwned)",
    "/models/`touch pwned`",
    "/models/${HOME}",
    "/models/a;touch pwned",
    "/models/a b\tc",
    "/models/!history #comment",
    "/models/\\n\\",
    "/models/a\u2028b",
    "/models/ü-模型",
]


@pytest.mark.parametrize("model", HOSTILE)
def test_no_name_breaks_out_of_a_script(model: str, tmp_path: Path, programs: Path) -> None:
    document = TINY.replace(
        "config: tiny", "config: " + repr_yaml(model) + ", served_name: " + repr_yaml(served(model))
    )
    folder = scripts(tmp_path, document)
    assert not shellcheck(folder / "node-0.sh")
    started = start(folder / "node-0.sh", path=programs)
    assert started.argv[:4] == ("serve", model, "--served-model-name", served(model))
    assert not list(tmp_path.rglob("pwned"))
    assert not Path("pwned").exists()


def served(model: str) -> str:
    """A served name has no spaces."""
    return "".join(model.split())


def repr_yaml(text: str) -> str:
    inside = "".join(char if char.isalnum() or char in "/-_;$(){}#!' `" else f"\\U{ord(char):08x}" for char in text)
    return f'"{inside}"'


def test_a_newline_in_a_setting_stays_in_its_argument(tmp_path: Path, programs: Path) -> None:
    document = TINY + "".join(
        ['engine: {version: 0.32.0, settings: {chat_template: "{{ 1 }}\\ntouch pwned\\n#\'"}}\n']
    ).replace("engine:", "engine:")
    document = document.replace("engine: {version: 0.32.0}\n", "", 1)
    folder = scripts(tmp_path, document)
    assert not shellcheck(folder / "node-0.sh")
    started = start(folder / "node-0.sh", path=programs, env={"ROADWORTHY_MODEL": "/m"})
    assert flags(started.argv)["--chat-template"] == "{{ 1 }}\ntouch pwned\n#'"
    assert not Path("pwned").exists()


@pytest.mark.parametrize(
    ("document", "layout"),
    [(V4_ON_32_H100, "TP8 PP4"), (V4_ON_32_H100, "TP8 DP4 EP32"), (LLAMA_ON_8_H100, "4 x TP2"), (TINY, None)],
)
def test_shellcheck_has_nothing_to_say(document: str, layout: str | None, tmp_path: Path) -> None:
    folder = scripts(tmp_path, document, layout)
    assert not shellcheck(*sorted(folder.glob("*.sh")))


def test_every_setting_stands_under_its_reason() -> None:
    for artifact in rendered("vllm", render_input(V4_ON_32_H100, "TP8 DP4 EP32")).values():
        rows = artifact.text.splitlines()
        for setting in artifact.settings:
            head = f"  {setting.name}" if setting.kind == "flag" else f"export {setting.name}="
            at = next(i for i, row in enumerate(rows) if row.startswith(head))
            assert rows[at - 1].lstrip().startswith("# "), rows[at]


def test_the_readme_names_every_script_port_and_what_was_left_out() -> None:
    files = rendered("vllm", render_input(V4_ON_32_H100, "2 x TP8 PP2"))
    page = files["README.md"].text
    assert all(f"`./{path}`" in page for path in files if path.endswith(".sh"))
    assert "curl --fail http://HOST-0:8000/health" in page
    assert "curl --fail http://HOST-2:8000/health" in page
    assert "`--enable-prefix-caching`" in page
    assert "no published recipe" in page


WAITING = """\
#!/usr/bin/env bash
# an engine that stops when told, and notes it
trap 'echo stopped >>"$NOTES"; exit 0' TERM
echo "up $CUDA_VISIBLE_DEVICES" >>"$NOTES"
while :; do read -r -t 1 <> <(:) || true; done
"""


def test_engines_of_one_host_stop_together_and_leave_nobody_behind(tmp_path: Path, programs: Path) -> None:
    folder = scripts(tmp_path, LLAMA_ON_8_H100, "4 x TP2")
    (programs / "vllm").write_text(WAITING)
    notes = tmp_path / "notes"
    notes.touch()
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "NOTES": str(notes)}
    with subprocess.Popen([str(folder / "node-0.sh")], env=env, start_new_session=True) as together:
        try:
            _until(lambda: notes.read_text().count("up ") == 4)
            together.send_signal(signal.SIGTERM)
            assert together.wait(timeout=30) == 0
        finally:
            if together.poll() is None:
                os.killpg(together.pid, signal.SIGKILL)
    told = notes.read_text().splitlines()
    assert sorted(row for row in told if row.startswith("up ")) == ["up 0,1", "up 2,3", "up 4,5", "up 6,7"]
    assert told.count("stopped") == 4


def test_the_exit_code_of_an_engine_that_failed_is_the_hosts(tmp_path: Path, programs: Path) -> None:
    folder = scripts(tmp_path, LLAMA_ON_8_H100, "4 x TP2")
    (programs / "vllm").write_text('#!/bin/sh\n[ "$CUDA_VISIBLE_DEVICES" = 4,5 ] && exit 7\nexit 0\n')
    assert run(folder / "node-0.sh", path=programs).returncode == 7


def _until(holds: object) -> None:
    """Wait for another process, up to 30 s."""
    end = time.monotonic() + 30
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)
