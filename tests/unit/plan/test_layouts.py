"""Stage splits, the layouts considered, and what vLLM would refuse to build."""

from __future__ import annotations

from typing import Any

import pytest

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.plan.layouts import Pins, candidate_layouts, stage_split, why_not_built
from roadworthy.plan.values import Layout
from roadworthy.spec.values import ClusterSpec


@pytest.mark.parametrize(
    ("layers", "stages"),
    [
        (61, (31, 30)),
        (61, (15, 15, 16, 15)),
        (93, (47, 46)),
        (93, (23, 23, 24, 23)),
        (43, (22, 21)),
        (43, (11, 11, 11, 10)),
    ],
)
def test_stages_split_as_vllm_splits_them(layers: int, stages: tuple[int, ...]) -> None:
    assert stage_split(layers, len(stages)) == stages


def _layout(row: dict[str, Any]) -> Layout:
    model = model_by_id(row["model"])
    tp, pp, dp = row["tp"], row["pp"], row["dp"]
    ep = tp * dp if row["expert_parallel"] else 1
    return Layout(tp=tp, pp=pp, dp=dp, ep=ep, stage_layers=stage_split(model.num_layers, pp))


def test_what_vllm_cannot_build_is_refused_for_the_same_reason(refused_row: dict[str, Any]) -> None:
    cluster = ClusterSpec(nodes=4, gpus_per_node=8, gpu="H100")
    pins = Pins(tp=refused_row["tp"])
    reasons = why_not_built(model_by_id(refused_row["model"]), _layout(refused_row), cluster, gpu_by_name("H100"), pins)
    assert len(reasons) == 1
    assert refused_row["why_not"].startswith(reasons[0])


def test_what_vllm_builds_is_not_refused(layout_row: dict[str, Any]) -> None:
    cluster = ClusterSpec(nodes=4, gpus_per_node=8, gpu="H100")
    model = model_by_id(layout_row["model"])
    assert why_not_built(model, _layout(layout_row), cluster, gpu_by_name("H100"), Pins(tp=layout_row["tp"])) == ()


def test_v4_is_refused_on_a100_by_the_name_of_what_lacks() -> None:
    model, cluster = model_by_id("DeepSeek-V4-Flash"), ClusterSpec(nodes=1, gpus_per_node=8, gpu="A100")
    layout = Layout(tp=8, pp=1, dp=1, ep=1, stage_layers=(43,))
    (reason,) = why_not_built(model, layout, cluster, gpu_by_name("A100"), Pins())
    assert "SM90" in reason


def test_tp_across_hosts_is_refused_unasked_and_considered_when_pinned() -> None:
    model, cluster, gpu = model_by_id("Kimi-K3"), ClusterSpec(nodes=4, gpus_per_node=8, gpu="H100"), gpu_by_name("H100")
    layout = Layout(tp=32, pp=1, dp=1, ep=32, stage_layers=(93,))
    (reason,) = why_not_built(model, layout, cluster, gpu, Pins())
    assert "spans 4 hosts" in reason
    assert why_not_built(model, layout, cluster, gpu, Pins(tp=32)) == ()


def test_experts_must_divide_over_the_expert_ranks() -> None:
    model, cluster = model_by_id("Kimi-K3"), ClusterSpec(nodes=3, gpus_per_node=8, gpu="H200")
    layout = Layout(tp=8, pp=1, dp=3, ep=24, stage_layers=(93,))
    (reason,) = why_not_built(model, layout, cluster, gpu_by_name("H200"), Pins())
    assert reason == "EP24 does not divide 896 experts"


def test_every_candidate_uses_the_whole_cluster_and_appears_once() -> None:
    model, cluster = model_by_id("DeepSeek-V4-Pro"), ClusterSpec(nodes=4, gpus_per_node=8, gpu="H100")
    layouts = list(candidate_layouts(model, cluster, Pins()))
    assert len(layouts) == len(set(layouts))
    assert all(layout.world_size * layout.replicas == 32 for layout in layouts)
    labels = {layout.label for layout in layouts}
    assert {"TP8 PP4", "TP8 DP4 EP32", "2 x TP8 PP2", "TP1 DP32 EP32", "TP32"} <= labels


def test_a_dense_model_gains_nothing_from_attention_data_parallelism() -> None:
    layouts = candidate_layouts(model_by_id("Llama-3.1-70B"), ClusterSpec(gpus_per_node=8, gpu="A100"), Pins())
    assert {layout.dp for layout in layouts} == {1}


def test_pinned_degrees_leave_only_their_layouts() -> None:
    pins = Pins.of({"tensor_parallel_size": 8, "pipeline_parallel_size": 2, "enable_expert_parallel": True})
    cluster = ClusterSpec(nodes=4, gpus_per_node=8, gpu="H100")
    layouts = list(candidate_layouts(model_by_id("DeepSeek-V4-Pro"), cluster, pins))
    assert {(layout.tp, layout.pp) for layout in layouts} == {(8, 2)}
    assert all(layout.ep > 1 for layout in layouts)
