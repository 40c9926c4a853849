"""`diagnose --prometheus` against a real Prometheus, filled with two hours of a storm by its own promtool."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roadworthy.cli import diagnose

NOW_S = (int(time.time()) // 7200) * 7200
"""End of the newest full block: promtool writes blocks of two hours."""

HEAD = """# TYPE vllm:kv_cache_usage_perc gauge
# TYPE vllm:num_preemptions counter
# TYPE vllm:num_requests_running gauge
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
# TYPE up gauge
"""
ENGINE = 'job="vllm",instance="10.1.0.7:8000",engine="0"'


def lines() -> Iterator[str]:
    times = range(NOW_S - 7200, NOW_S, 30)
    for at, second in enumerate(times):
        yield f"vllm:kv_cache_usage_perc{{{ENGINE}}} {0.3 if at < 80 else 0.99} {second}"
    for at, second in enumerate(times):
        yield f"vllm:num_preemptions_total{{{ENGINE}}} {max(0, at - 80)} {second}"
    for second in times:
        yield f"vllm:num_requests_running{{{ENGINE}}} 9 {second}"
    for at, second in enumerate(times):
        yield f'DCGM_FI_DEV_XID_ERRORS{{gpu="3",Hostname="node-3",job="dcgm"}} {0 if at < 100 else 79} {second}'
    for second in times:
        yield f"up{{{ENGINE}}} 1 {second}"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (Debian: prometheus)")
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "metrics.txt").write_text(HEAD + "\n".join(lines()) + "\n# EOF\n")
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(folder / "metrics.txt"), str(folder / "data")]
    subprocess.run(made, check=True, capture_output=True, timeout=60)
    (folder / "prometheus.yml").write_text("global: {}\n")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [
        "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=100y", "--log.level=error",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        _ready(url, process)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def _ready(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "prometheus ended"
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("prometheus did not become ready")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert diagnose.command.main([*arguments, "--json"], standalone_mode=False) == 1
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_series_of_two_hours_are_judged(prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    span = ("--from", str(NOW_S - 7200), "--to", str(NOW_S))
    document = run(capsys, "--prometheus", prometheus, *span, "--keep", str(tmp_path / "kept"))
    found = {one["code"]: one for one in document["findings"]}
    assert set(found) == {"kv-cache-exhaustion", "gpu-fell-off-bus"}
    assert found["gpu-fell-off-bus"]["subject"].startswith("node-3")
    assert {one["code"] for one in run(capsys, str(tmp_path / "kept"))["findings"]} == set(found)


def test_a_selector_and_a_long_range_are_promql_that_it_takes(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    span = ("--since", "3d", "--to", str(NOW_S))
    selectors = ("--selector", '{job="vllm"}', "--selector", '{job=~"none.*"}')
    document = run(capsys, "--prometheus", prometheus, *span, *selectors)
    assert [one["code"] for one in document["findings"]] == ["kv-cache-exhaustion"]
    assert not [one for one in document["skipped"] if "no series" not in one["reason"]]
