"""How `up` starts vLLM on this host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.adapters.engines.commands import EngineCommand, vllm_commands
from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.plan.search import judge_layout
from roadworthy.plan.values import Layout
from roadworthy.spec.values import ClusterSpec, Deployment, EngineSpec, ModelRef, RequestProfile

if TYPE_CHECKING:
    import pytest


def on_the_cpu(tp: int, ports: tuple[int, ...]) -> tuple[EngineCommand, ...]:
    deployment = Deployment(
        name="laptop",
        model=ModelRef(config="tiny", max_model_len_tokens=4096),
        cluster=ClusterSpec(nodes=1, gpus_per_node=max(2, tp), gpu="cpu"),
        engine=EngineSpec(version="0.32.0"),
        workload=RequestProfile(),
    )
    model = model_by_id("tiny")
    layout = Layout(tp=tp, pp=1, dp=1, ep=1, stage_layers=(model.num_layers,))
    judged = judge_layout(deployment, model, gpu_by_name("cpu"), layout)
    return vllm_commands(
        deployment, judged, program="vllm", model="tiny", host="127.0.0.1", ports=ports, log_folder=Path("logs")
    )


def test_one_rank_on_the_cpu_is_one_process_and_leaves_the_server_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 5, 6, 7}, raising=False)
    first, second = on_the_cpu(1, (8001, 8002))
    assert first.env["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert (first.env["OMP_NUM_THREADS"], first.env["VLLM_CPU_OMP_THREADS_BIND"]) == ("3", "0,1,2,3")
    assert second.env["VLLM_CPU_OMP_THREADS_BIND"] == "4,5,6,7"


def test_ranks_of_one_engine_stay_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    (only,) = on_the_cpu(2, (8001,))
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in only.env
    assert only.env["VLLM_CPU_OMP_THREADS_BIND"] == "0,1"


def test_a_single_core_still_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert on_the_cpu(1, (8001,))[0].env["OMP_NUM_THREADS"] == "1"
