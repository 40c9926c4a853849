"""Every way to split a model over a cluster, and which of them vLLM would refuse to build.

World size of one engine is tp * pp * dp; a split that uses part of the cluster is repeated as independent replicas.
Expert parallelism is not a degree of its own: on, it spreads whole experts over the tp * dp ranks of a stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.plan.values import Layout
from roadworthy.spec.model import GqaAttention, KdaAttention, MlaAttention, ModelSpec, MoeMlp, V4Attention

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.spec.values import ClusterSpec, Scalar

V4_CAPABILITY_MIN = (9, 0)
"""vLLM's V4 attention kernels need SM90, SM100 or SM120 (`vllm/models/deepseek_v4/sparse_mla.py`)."""


def stage_split(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage as vLLM's get_pp_indices gives them (`vllm/distributed/utils.py`).

    Each stage gets ``layers // stages``; what remains goes one by one to the last stage but one, the one before, …:
    61 -> 15, 15, 16, 15.
    """
    share, remainder = divmod(layers, stages)
    extra = range(stages - 1 - remainder, stages - 1) if remainder else range(0)
    return tuple(share + (stage in extra) for stage in range(stages))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Degrees that the document fixes in ``engine.settings``; None leaves them to the search."""

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    expert_parallel: bool | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Scalar]) -> Pins:
        def degree(name: str) -> int | None:
            value = settings.get(name)
            return value if isinstance(value, int) and not isinstance(value, bool) else None

        on = settings.get("enable_expert_parallel")
        return cls(
            tp=degree("tensor_parallel_size"),
            pp=degree("pipeline_parallel_size"),
            dp=degree("data_parallel_size"),
            expert_parallel=on if isinstance(on, bool) else None,
        )

    def admit(self, layout: Layout) -> bool:
        """Whether ``layout`` keeps to what was fixed."""
        return (
            self.tp in (None, layout.tp)
            and self.pp in (None, layout.pp)
            and self.dp in (None, layout.dp)
            and self.expert_parallel in (None, layout.ep > 1)
        )


PARALLEL_SETTINGS = frozenset(
    {"tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel"}
)


def _divisors(value: int) -> list[int]:
    return [number for number in range(1, value + 1) if value % number == 0]


def candidate_layouts(model: ModelSpec, cluster: ClusterSpec, pins: Pins) -> Iterator[Layout]:
    """Every split of ``model`` over ``cluster`` that uses all GPUs, whether vLLM can build it or not.

    Attention data parallelism is considered with expert parallelism only: a dense model gains nothing from it over
    independent replicas, and vLLM without expert parallelism would cut experts over tp * dp (not modelled). TP beyond
    a host appears once for each width, so that the plan can say why not.
    """
    gpus, moe = cluster.gpus, _moe(model) is not None
    for tp in _divisors(gpus):
        crosses_hosts = tp > cluster.gpus_per_node
        if not crosses_hosts and cluster.gpus_per_node % tp:
            continue
        for pp in _divisors(gpus // tp):
            if pp > model.num_layers or (crosses_hosts and pins.tp != tp and pp > 1):
                continue
            for dp in _divisors(gpus // tp // pp) if moe and not crosses_hosts else [1]:
                for ep in _expert_choices(moe, tp, dp):
                    layout = Layout(
                        tp=tp, pp=pp, dp=dp, ep=ep, stage_layers=stage_split(model.num_layers, pp),
                        replicas=gpus // (tp * pp * dp),
                    )  # fmt: skip
                    if pins.admit(layout):
                        yield layout


def _expert_choices(moe: bool, tp: int, dp: int) -> tuple[int, ...]:
    if not moe or tp * dp == 1:
        return (1,)
    return (tp * dp,) if dp > 1 else (tp, 1)


def _moe(model: ModelSpec) -> MoeMlp | None:
    return next((layer.mlp for layer in model.layers if isinstance(layer.mlp, MoeMlp)), None)


def why_not_built(model: ModelSpec, layout: Layout, cluster: ClusterSpec, gpu: Gpu, pins: Pins) -> tuple[str, ...]:
    """Reasons for which vLLM cannot build ``layout``, or the plan will not choose it unasked; empty when none."""
    reasons = [*_attention_reasons(model, layout), *_expert_reasons(model, layout)]
    if model.family == "deepseek_v4" and gpu.compute_capability < V4_CAPABILITY_MIN and gpu.id != "cpu":
        reasons.append(f"vLLM has no DeepSeek-V4 attention kernels for {gpu.id}: they need SM90, SM100 or SM120")
    if layout.tp > cluster.gpus_per_node and pins.tp != layout.tp:
        reasons.append(
            f"TP{layout.tp} spans {layout.tp // cluster.gpus_per_node} hosts of {cluster.gpus_per_node} GPUs, so each "
            "layer's all-reduce would cross the NICs; set engine.settings.tensor_parallel_size to have it considered"
        )
    return tuple(reasons)


def _attention_reasons(model: ModelSpec, layout: Layout) -> Iterator[str]:
    tp = layout.tp
    for attention in {layer.attention for layer in model.layers}:
        if isinstance(attention, V4Attention) and tp > attention.o_groups:
            yield f"tp {tp} exceeds o_groups {attention.o_groups}: no whole output group per rank"
            return
        if attention.heads % tp:
            yield f"tp {tp} does not divide {attention.heads} attention heads"
            return
        if isinstance(attention, GqaAttention) and attention.kv_heads % tp and tp % attention.kv_heads:
            yield f"tp {tp} neither divides {attention.kv_heads} KV heads nor is a multiple of them"
            return


def _expert_reasons(model: ModelSpec, layout: Layout) -> Iterator[str]:
    for mlp in {layer.mlp for layer in model.layers}:
        if not isinstance(mlp, MoeMlp):
            if mlp.intermediate % layout.tp:
                yield f"tp {layout.tp} does not divide the MLP width {mlp.intermediate}"
        elif layout.ep > 1 and mlp.experts % layout.ep:
            yield f"EP{layout.ep} does not divide {mlp.experts} experts"
        elif layout.ep == 1 and mlp.intermediate % layout.tp:
            yield f"tp {layout.tp} does not divide the expert width {mlp.intermediate}"


def kda_attention(model: ModelSpec) -> KdaAttention | None:
    """The model's KDA shape, or None."""
    found = (layer.attention for layer in model.layers)
    return next((attention for attention in found if isinstance(attention, KdaAttention)), None)


def mla_attention(model: ModelSpec) -> MlaAttention | None:
    """The model's MLA shape, or None."""
    found = (layer.attention for layer in model.layers)
    return next((attention for attention in found if isinstance(attention, MlaAttention)), None)


def routed_experts(model: ModelSpec) -> MoeMlp | None:
    """The model's routed experts, or None for a dense model."""
    return _moe(model)
