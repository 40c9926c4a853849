"""The metric definitions are those of `vllm bench serve`: from its own requests we compute its own numbers."""

from __future__ import annotations

import json
import os
import subprocess
from itertools import accumulate
from pathlib import Path

import pytest
from gatewaylab.lab import MODEL, build, engines

from roadworthy.adapters.load_files import read_result
from roadworthy.adapters.ports import free_ports
from roadworthy.adapters.tiny_model import ensure_tiny_model
from roadworthy.advise.verdict import judge
from roadworthy.bench.vllm_names import vllm_summary
from roadworthy.core.records import RequestRecord
from roadworthy.spec.values import Sla
from support.vllm_process import vllm_program

pytestmark = [pytest.mark.engine, pytest.mark.timeout(420)]  # importing vLLM takes a minute on a busy machine

REQUESTS = 40


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What vLLM's client wrote of a load on the C engine."""
    program, folder = vllm_program(), tmp_path_factory.mktemp("vllm-bench")
    build()
    tokenizer = ensure_tiny_model(folder / "tiny")
    port, control = free_ports("127.0.0.1", 2)
    with engines([port], control, core=None, log=folder / "engine.log") as lab:
        lab.set(first_ms=20, rate=400, chunks=30)
        subprocess.run(
            [program, "bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
             "--base-url", f"http://127.0.0.1:{port}", "--model", MODEL, "--tokenizer", str(tokenizer),
             "--dataset-name", "random", "--random-input-len", "50", "--random-output-len", "30",
             "--random-range-ratio", "0.5", "--num-prompts", str(REQUESTS), "--request-rate", "80", "--ignore-eos",
             "--disable-tqdm", "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99",
             "--save-result", "--save-detailed", "--result-dir", str(folder), "--result-filename", "theirs.json"],
            env={**os.environ, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}, check=True, timeout=400,
            capture_output=True,
        )  # fmt: skip
    return folder / "theirs.json"


def records(theirs: dict) -> list[RequestRecord]:
    """Its columns as our records, sent when they were due."""
    first_s = min(theirs["start_times"])
    found = []
    for start_s, ttft_s, gaps, latency_s, n_in, n_out in zip(
        theirs["start_times"], theirs["ttfts"], theirs["itls"], theirs["latencies"], theirs["input_lens"],
        theirs["output_lens"], strict=True,
    ):  # fmt: skip
        sent_s = start_s - first_s
        found.append(
            RequestRecord(
                t_sched_s=sent_s, t_send_s=sent_s, t_first_s=sent_s + ttft_s, t_last_s=sent_s + latency_s, n_in=n_in,
                n_out=n_out, ok=True, itl_s=tuple(gaps),
            )
        )  # fmt: skip
    return found


def test_from_its_requests_we_compute_its_numbers(result: Path) -> None:
    theirs = json.loads(result.read_text())
    measured = records(theirs)
    ours = vllm_summary(judge(measured, Sla()), measured)
    assert theirs["completed"] == ours["completed"] == REQUESTS
    for metric in ("ttft", "tpot", "itl", "e2el"):
        for statistic in ("mean", "median", "std", "p50", "p90", "p95", "p99"):
            name = f"{statistic}_{metric}_ms"
            assert ours[name] == pytest.approx(theirs[name], rel=1e-6), name
    for name in ("total_input_tokens", "total_output_tokens", "failed"):
        assert ours[name] == theirs[name], name


def test_its_latency_is_the_last_gap_from_the_send(result: Path) -> None:
    """So that a result without latencies, of an older version, is read the same."""
    theirs = json.loads(result.read_text())
    for ttft_s, gaps, latency_s in zip(theirs["ttfts"], theirs["itls"], theirs["latencies"], strict=True):
        *_, end_s = accumulate(gaps, initial=ttft_s)
        assert end_s == pytest.approx(latency_s, abs=1e-6)


def test_its_result_is_read_for_a_comparison(result: Path) -> None:
    measured = read_result(result)
    assert measured.completed == len(measured.ok) == REQUESTS
    assert all(value is not None and value > 0 for value in measured.tpot_s)
