"""`up` as an operator runs it: the twin, the gateway, one Ctrl-C, and nothing left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import openai
import pytest

from support.service import roadworthy, serving

pytestmark = pytest.mark.e2e

STREAMING_CLIENT = """
import sys, openai
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key=sys.argv[2])
stream = client.chat.completions.create(
    model="tiny", messages=[{"role": "user", "content": "count"}], max_tokens=3000, stream=True,
    extra_body={"ignore_eos": True},
)
for number, event in enumerate(stream):
    if number == 3:
        print("streaming", flush=True)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def within(limit_s: float, condition) -> bool:
    """Whether ``condition`` became true within ``limit_s``."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def metric(kept: httpx.Client, engine_url: str, name: str) -> float:
    """Over a connection that is open already: while it streams, a busy engine may let a new one wait for seconds."""
    text = kept.get(f"{engine_url}/metrics").text
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(f"{name}{{"))


def test_the_openai_client_streams_from_the_twin_through_the_gateway(examples: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "up", str(examples / "laptop.yaml")) as service:
        client = openai.OpenAI(base_url=f"{service.data_url}/v1", api_key=service.key)
        stream = client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "hello"}], max_tokens=12, stream=True
        )
        words = [event.choices[0].delta.content for event in stream if event.choices and event.choices[0].delta.content]
        assert len(words) == 12
        engines = [engine["pid"] for engine in service.ready["engines"]]
        code, err = service.interrupt()
        assert code == 0, err
        assert "Traceback" not in err
        assert not any(alive(pid) for pid in engines)
        assert not (tmp_path / "ready.json").exists()


def test_a_killed_twin_comes_back_and_serves_again(examples: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "up", str(examples / "laptop.yaml")) as service:
        (engine,) = service.ready["engines"]
        os.kill(engine["pid"], signal.SIGKILL)

        def served() -> bool:
            answer = httpx.post(
                f"{service.data_url}/v1/completions",
                json={"model": "tiny", "prompt": "hi", "max_tokens": 2},
                headers={"Authorization": f"Bearer {service.key}"},
            )
            return answer.status_code == 200

        assert within(30, served)


def test_a_taken_port_is_named_before_anything_starts(examples: Path, tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = subprocess.run(
            roadworthy("up", str(examples / "laptop.yaml"), "--port", str(port)),
            check=False,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 3
    assert str(port) in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_infeasible_deployment_is_refused_with_its_reason(examples: Path) -> None:
    done = subprocess.run(
        roadworthy("up", str(examples / "kimi-k3-fp8-32xh100.yaml")), check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "no layout fits" in done.stderr


def test_no_document_says_how_to_name_one(tmp_path: Path) -> None:
    done = subprocess.run(roadworthy("up"), check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "roadworthy.yaml" in done.stderr
    assert "hint:" in done.stderr


def test_vllm_over_several_hosts_is_refused_with_a_way_out(examples: Path) -> None:
    done = subprocess.run(
        roadworthy("up", str(examples / "deepseek-v4-pro-32xh100.yaml"), "--engine", "vllm"),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "this host only" in done.stderr


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_real_vllm_serves_through_the_gateway_and_stops_work_when_the_client_leaves(
    examples: Path, tmp_path: Path
) -> None:
    with serving(tmp_path, "up", str(examples / "laptop.yaml"), "--engine", "vllm") as service:
        engine_url = service.ready["engines"][0]["url"]
        with (
            httpx.Client() as kept,
            subprocess.Popen(
                [sys.executable, "-c", STREAMING_CLIENT, service.data_url, service.key], stdout=subprocess.PIPE
            ) as client,
        ):
            assert client.stdout is not None
            assert metric(kept, engine_url, "vllm:num_requests_running") in (0, 1)
            assert client.stdout.readline() == b"streaming\n"
            assert within(5, lambda: metric(kept, engine_url, "vllm:num_requests_running") == 1)
            client.kill()
            assert within(0.5, lambda: metric(kept, engine_url, "vllm:num_requests_running") == 0)
        code, err = service.interrupt()
        assert code == 0, err
        assert not alive(service.ready["engines"][0]["pid"])


@pytest.mark.engine
def test_an_interrupted_start_leaves_no_engine_behind(examples: Path, tmp_path: Path) -> None:
    command = roadworthy("up", str(examples / "laptop.yaml"), "--engine", "vllm", "--log-folder", str(tmp_path))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "engine-0 starting" not in process.stderr.readline():
            assert process.poll() is None
        (engine,) = children(process.pid)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err.rstrip().endswith("stopped")
    assert "Traceback" not in err
    assert within(5, lambda: not alive(engine))
