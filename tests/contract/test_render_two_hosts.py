"""One engine over two hosts, started by the rendered scripts alone: real vLLM on the CPU answers a request."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from roadworthy.adapters.tiny_model import ensure_tiny_model
from support.hosts import Host, two_hosts, why_not
from support.rendering import render_input, rendered, write
from support.vllm_process import vllm_program

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

START_LIMIT_S = 600
DOCUMENT = """\
name: two-hosts
model: {config: tiny, max_model_len: 1024}
cluster: {nodes: 2, gpus_per_node: 1, gpu: cpu, nics: [{count: 1, rate: 10Gb/s}]}
engine:
  version: 0.32.0
  settings: {SETTINGS}
"""
SMALL = "kv_cache_memory_bytes: 67108864, max_num_seqs: 4, max_num_batched_tokens: 512"
# without a compiler backend the CPU engine starts sooner; with `enforce_eager` it has no buffers between stages
STAGES = f'pipeline_parallel_size: 2, compilation_config: \'{{"mode": 3, "backend": "eager"}}\', {SMALL}'

ASK = """\
import json, sys, urllib.request
body = json.dumps({"model": "tiny", "prompt": "the cat sat", "max_tokens": 4, "ignore_eos": True}).encode()
request = urllib.request.Request(sys.argv[1] + "/v1/completions", body, {"content-type": "application/json"})
print(urllib.request.urlopen(request, timeout=120).read().decode())
"""
LOOK = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1] + '/health', timeout=5)"


def test_an_engine_whose_stages_are_on_two_hosts_answers(tmp_path: Path) -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    program = vllm_program()
    model = ensure_tiny_model(tmp_path / "tiny")
    scripts = rendered("vllm", render_input(DOCUMENT.replace("SETTINGS", STAGES)))
    write(tmp_path / "scripts", scripts)
    logs = [tmp_path / "node-0.log", tmp_path / "node-1.log"]
    with two_hosts() as hosts:
        started = [
            _start(host, tmp_path / "scripts" / f"node-{rank}.sh", logs[rank], hosts[0], program, model)
            for rank, host in enumerate(hosts)
        ]
        try:
            url = f"http://{hosts[0].address}:8000"
            _until_healthy(hosts[0], url, started, logs)
            # from the other host: the engine listens where its README says
            answer = json.loads(_python(hosts[1], ASK, url).stdout)
        finally:
            for process in started:
                process.kill()
                process.wait()
    assert answer["usage"]["completion_tokens"] == 4
    assert "10.77.0.1:29501" in logs[0].read_text(), "the ranks met at the address of the first host"


def _start(host: Host, script: Path, log: Path, first: Host, program: str, model: Path) -> subprocess.Popen[bytes]:
    environment = {
        "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        "HOME": str(script.parent),
        "ROADWORTHY_MASTER_ADDR": first.address,
        "ROADWORTHY_MODEL": str(model),
        "ROADWORTHY_BIN": str(Path(program).parent),
    }
    with log.open("wb") as out:
        return subprocess.Popen(
            [*host.enter, str(script)], stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )


def _python(host: Host, program: str, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*host.enter, sys.executable, "-c", program, url], capture_output=True, text=True, timeout=150, check=False
    )


def _until_healthy(host: Host, url: str, started: list[subprocess.Popen[bytes]], logs: list[Path]) -> None:
    end = time.monotonic() + START_LIMIT_S
    while _python(host, LOOK, url).returncode:
        for process, log in zip(started, logs, strict=True):
            assert process.poll() is None, f"{log.name}:\n{log.read_text()[-3000:]}"
        assert time.monotonic() < end, "\n".join(log.read_text()[-1500:] for log in logs)
        time.sleep(1)
