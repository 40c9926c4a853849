"""The short form of `make bench-gateway`: every part runs, the document has its keys. Nothing is timed here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gatewaylab import report
from gatewaylab.lab import build, engines, load
from gatewaylab.report import Limit

from roadworthy.adapters.ports import free_ports

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_every_part_is_measured_and_written(tmp_path: Path) -> None:
    out = tmp_path / "gateway.json"
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "scripts" / "bench-gateway"), "--quick", "--without", "vllm_router",
            "--free-ports", "--out", str(out),
        ],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(out.read_text())
    for part in ("plain", "plain_64k", "chunk_512", "governance"):
        assert {"cpu_us", "x_nginx", "x_vllm_router"} <= set(found[part])
        assert found[part]["x_vllm_router"] is None
        assert set(found[part]["peers_cpu_us"]) >= {"nginx", "roadworthy"}
    assert set(found["ttft_added_s"]) == {"streams_64", "streams_512"}
    assert found["ttft_added_s"]["streams_64"]["p50"] is not None
    assert set(found["rss_bytes"]) == {"idle", "streams_512", "stalled_reader_growth"}
    assert found["behaviour"]["roadworthy"]["lost_of_40"] == {"500": 0}
    assert "plain request" in done.stdout


def test_engine_and_load_generator_agree(tmp_path: Path) -> None:
    build()
    *ports, control = free_ports("127.0.0.1", 3)
    with engines(ports, control, core=None, log=tmp_path / "engine.log") as lab:
        lab.set(rate=0)
        streams = load(ports[0], core=None, connections=8, requests=100, stream=1, chunks=20)
        plain = load(ports[1], core=None, connections=8, requests=100, body_bytes=70_000)
        assert (streams["ok"], streams["streams_whole"], streams["events"]) == (100, 100, 100 * 21)
        assert plain["ok"] == 100
        assert lab.total("finished") == 200
        lab.set(port=ports[0], fault="die")
        assert load(ports[0], core=None, requests=5, stream=1)["failed"]["truncated"] == 5
        lab.set(port=ports[0], fault="refused_stream")
        assert load(ports[0], core=None, requests=5, stream=1)["failed"]["error_event"] == 5
        assert load(ports[0], core=None, requests=5)["statuses"] == {"503": 5}
        assert {one["how"] for one in lab.endings(0)} == {"done", "faulted"}


ROUNDS = {
    "plain": {
        "nginx": [{"cpu_us": 10.0}, {"cpu_us": 20.0}, {"cpu_us": 10.0}],
        "roadworthy": [{"cpu_us": 30.0}, {"cpu_us": 40.0}, {"cpu_us": 50.0}],
    }
}


def test_no_ratio_without_cpu_time() -> None:
    rounds = {"plain": {"nginx": [{"cpu_us": 0.0}], "roadworthy": [{"cpu_us": 30.0}]}}
    assert report.ratio(rounds, "plain", "roadworthy", "nginx") is None


def test_a_ratio_is_the_median_of_ratios_of_the_same_round() -> None:
    assert report.ratio(ROUNDS, "plain", "roadworthy", "nginx") == 3.0
    assert report.ratio(ROUNDS, "plain", "roadworthy", "vllm_router") is None


def test_a_limit_without_a_measurement_is_neither_met_nor_missed() -> None:
    assert Limit(name="x", measured=None, limit=1).met is None
    assert Limit(name="x", measured=1.0, limit=1).met is True
    assert Limit(name="x", measured=1.01, limit=1).met is False
    assert report.worst([0.1, None]) == float("inf")
    assert report.worst([]) is None
