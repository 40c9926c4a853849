"""What breaks at start-up, foretold: refusals with the number and the setting that mends it, and warnings.

vLLM's own configuration checks let much of this through and fail later, while the model is built, while memory is
profiled, or not at all. Sources: vLLM 0.32 and 0.33 (named at each rule) and runs on H200 (docs/concepts/startup.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.catalog.engines import batch_defaults
from roadworthy.core.errors import Problem, SpecError
from roadworthy.core.units import GIB, format_gib
from roadworthy.plan.eplb import IGNORING_FAMILIES, Eplb
from roadworthy.plan.layouts import mla_attention, routed_experts
from roadworthy.plan.lora import NO_LORA_FAMILIES, LoraSlots
from roadworthy.plan.overhead import MLA_ROWS_MAX, mla_scratch_bytes
from roadworthy.plan.speculation import Speculation, draft_cost
from roadworthy.plan.weights import Split, StageWeights, split_of

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.plan.values import Layout, LayoutPlan
    from roadworthy.spec.model import ModelSpec
    from roadworthy.spec.values import Deployment, Scalar

FIRST_VERSIONS: Mapping[str, tuple[int, ...]] = {
    "deepseek_v4": (0, 20), "kimi_k3": (0, 27, 1), "kimi_linear": (0, 11, 1), "gpt_oss": (0, 10, 1), "gemma3": (0, 8),
}  # fmt: skip
"""The first vLLM that has the model class."""
DBO_BACKENDS = ("deepep_low_latency", "deepep_high_throughput", "nixl_ep")
OFFLOAD_GIB_MAX = 4096
FP8_CAPABILITY = (8, 9)
FP4_CAPABILITY = (10, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupCase:
    """What start-up depends on beside the layout, read once for all layouts."""

    model: ModelSpec
    gpu: Gpu
    version: str
    gpus_per_node: int
    settings: Mapping[str, Scalar]
    eplb: Eplb | None
    lora: LoraSlots | None
    speculation: Speculation | None = None
    offload_bytes: int = 0

    @classmethod
    def of(cls, deployment: Deployment, model: ModelSpec, gpu: Gpu) -> StartupCase:
        """Raises SpecError for EPLB, LoRA, speculation or offload settings that no layout could take."""
        settings = deployment.engine.settings
        return cls(
            model=model,
            gpu=gpu,
            version=deployment.engine.version,
            gpus_per_node=deployment.cluster.gpus_per_node,
            settings=settings,
            eplb=Eplb.of(settings),
            lora=LoraSlots.of(settings),
            speculation=Speculation.of(
                settings, draft_layers=model.draft_layers, acceptance_ratio=deployment.workload.draft_acceptance_ratio
            ),
            offload_bytes=_offload_bytes(settings),
        )

    @property
    def balances(self) -> bool:
        """EPLB is on, and the model's class takes part in it."""
        return self.eplb is not None and self.model.family not in IGNORING_FAMILIES

    @property
    def redundant_experts(self) -> int | None:
        """Expert slots that the balancer fills; None where it is off."""
        return self.eplb.redundant if self.eplb is not None and self.balances else None

    def split(self, layout: Layout) -> Split:
        """How ``layout`` cuts the weights, redundant experts included."""
        return split_of(
            tp=layout.tp, pp=layout.pp, dp=layout.dp, ep=layout.ep, redundant_experts=self.redundant_experts or 0
        )

    def offloaded(self, loaded: StageWeights) -> int:
        """Weight bytes of a rank that ``cpu_offload_gb`` keeps in host memory."""
        return min(self.offload_bytes, loaded.parameter_bytes)

    def beside(self, loaded: StageWeights, *, split: Split, layers: range) -> StageWeights:
        """``loaded`` with what LoRA, EPLB and the last stage's drafter allocate beside the model on the same rank."""
        extra = dict(loaded.buffers)
        if self.lora is not None:
            extra["lora_slots"] = self.lora.bytes_on_rank(self.model, split=split, layers=layers) or 0
        if self.eplb is not None and self.balances:
            extra["eplb"] = self.eplb.state_bytes(self.model, split=split, layers=layers)
        if self.speculation is not None and layers.stop == self.model.num_layers:
            extra["draft"] = draft_cost(self.speculation, self.model, split).resident_bytes
        extra["cpu_offload"] = -self.offloaded(loaded)
        return replace(loaded, buffers={name: size for name, size in extra.items() if size})


def _offload_bytes(settings: Mapping[str, Scalar]) -> int:
    """``cpu_offload_gb`` counts GiB of each GPU (`vllm/config/offload.py`)."""
    value = settings.get("cpu_offload_gb")
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= OFFLOAD_GIB_MAX:
        problem = Problem(
            path="engine.settings.cpu_offload_gb", seen=repr(value), wanted=f"GiB of each GPU, 0 to {OFFLOAD_GIB_MAX}"
        )
        raise SpecError("engine settings cannot be as written", problems=(problem,))
    return round(value * GIB)


def refusals(case: StartupCase, layout: Layout) -> tuple[str, ...]:
    """Reasons for which the engine would not come up with ``layout``, before memory is looked at."""
    rules = (
        _version(case), _formats(case), _kv_cache(case), _lora(case), _eplb(case, layout), _overlap(case),
        _speculation(case),
    )  # fmt: skip
    return tuple(reason for rule in rules for reason in rule)


def _version(case: StartupCase) -> Iterator[str]:
    first = FIRST_VERSIONS.get(case.model.family)
    if first is not None and _parts(case.version) < first and case.gpu.id != "cpu":
        yield (
            f"vLLM {case.version} does not know {case.model.architecture}: it came with "
            f"{'.'.join(map(str, first))}; set engine.version"
        )


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


_METHODS = {"fp4_group32": "deepseek_v4_fp8", "mxfp4_group32": "mxfp4", "bf16": "none"}


def stored_method(model: ModelSpec) -> str:
    """The quantisation method of the checkpoint, in vLLM's words; ``none`` for BF16."""
    return _METHODS.get(model.expert_format, "fp8")


def _formats(case: StartupCase) -> Iterator[str]:
    asked, stored = case.settings.get("quantization"), stored_method(case.model)
    if not isinstance(asked, str) or asked == stored or case.model.family == "deepseek_v4":
        return  # V4 resolves to its own method whatever is passed
    if "fp4" in asked and asked != "mxfp4" and case.gpu.compute_capability < FP4_CAPABILITY:
        yield f"quantization {asked}: {case.gpu.id} has no FP4 arithmetic, the checkpoint stores {stored}; leave it out"
    elif stored != "none":
        yield f"quantization {asked} does not match the checkpoint's {stored}: vLLM refuses to start; leave it out"


def _kv_cache(case: StartupCase) -> Iterator[str]:
    kind, block = case.settings.get("kv_cache_dtype"), case.settings.get("block_size")
    family, gpu = case.model.family, case.gpu
    if family == "deepseek_v4":
        if kind == "bfloat16" and gpu.compute_capability < FP4_CAPABILITY:
            yield f"kv_cache_dtype bfloat16: V4's kernels on {gpu.id} know only the FP8 cache; set fp8 or leave it out"
        if block not in (None, 256):
            yield f"block_size {block}: V4's sparse kernels know 256 only; set block_size: 256 or leave it out"
        return
    no_fp8 = gpu.compute_capability < FP8_CAPABILITY and gpu.id != "cpu"
    if str(kind).startswith("fp8") and no_fp8 and mla_attention(case.model) is not None:
        yield f"kv_cache_dtype {kind}: MLA on {gpu.id} runs in Triton, which has FP8 from SM89 on; set auto"
    if isinstance(block, int) and not isinstance(block, bool) and block % 16:
        yield f"block_size {block}: attention kernels want a multiple of 16, such as {max(16, 16 * round(block / 16))}"


def _lora(case: StartupCase) -> Iterator[str]:
    if case.lora is not None and case.model.family in NO_LORA_FAMILIES:
        yield f"enable_lora: vLLM's {case.model.architecture} takes no LoRA adapters; leave it out"


def _eplb(case: StartupCase, layout: Layout) -> Iterator[str]:
    moe, eplb = routed_experts(case.model), case.eplb
    if eplb is None or not case.balances:
        return
    if moe is None:
        yield f"enable_eplb: {case.model.id} has no routed experts; leave it out"
    elif layout.ep == 1:
        yield "enable_eplb needs expert parallelism over 2 ranks or more; set enable_expert_parallel: true"
    elif not eplb.legal(moe.experts, layout.ep):
        near = eplb.legal_near(moe.experts, layout.ep)
        left = (moe.experts + eplb.redundant) % layout.ep
        yield (
            f"EPLB: {moe.experts} experts + {eplb.redundant} redundant over EP{layout.ep} leave {left}, so vLLM fails "
            f"while it builds the model; nearest legal num_redundant_experts: {' or '.join(map(str, near))}"
        )


def _overlap(case: StartupCase) -> Iterator[str]:
    backend = case.settings.get("all2all_backend") or "allgather_reducescatter"
    if case.settings.get("enable_dbo") is True and backend not in DBO_BACKENDS:
        yield f"enable_dbo with all2all_backend {backend} fails an assertion; set one of {', '.join(DBO_BACKENDS)}"
    if backend == "passthrough":
        yield "all2all_backend passthrough cannot be selected; leave it out"


def _speculation(case: StartupCase) -> Iterator[str]:
    why = case.speculation.why_not(case.model) if case.speculation is not None else ""
    if why:
        yield why


def budget_refusals(case: StartupCase, judged: LayoutPlan) -> tuple[str, ...]:
    """A utilisation that leaves no room for what comes up before vLLM looks at the device.

    Start-up fails where free memory is below the budget (`vllm/v1/worker/utils.py` request_memory).
    """
    ratio = judged.settings["gpu_memory_utilization"].value if judged.settings else None
    if case.gpu.id == "cpu" or not judged.ranks or not isinstance(ratio, (int, float)):
        return ()
    if case.settings.get("kv_cache_memory_bytes") is not None:
        return ()
    outside = case.gpu.device_bytes - math.ceil(case.gpu.device_bytes * ratio)
    runtime = max(rank.runtime_bytes + rank.comm_bytes for rank in judged.ranks)
    if outside >= runtime:
        return ()
    most = math.floor((1 - runtime / case.gpu.device_bytes) * 100) / 100
    return (
        f"gpu_memory_utilization {ratio:g} leaves {format_gib(outside)} of {format_gib(case.gpu.device_bytes)}, CUDA "
        f"context and NCCL take {format_gib(runtime)}; set {most:g} or less",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """MLA's prefill workspace at a number of sequences, under rules that let it grow with them (before 0.32)."""

    sequences: int
    size_bytes: int
    up_projected_bytes: int
    rows: int
    mending_sequences: int
    mended_bytes: int


def growing_scratch(
    case: StartupCase, layout: Layout, *, block_tokens: int, max_model_len_tokens: int, max_num_seqs: int | None
) -> Scratch | None:
    """The workspace at ``max_num_seqs`` (None: the engine's default), where it exceeds what later engines cap it at."""
    attention = mla_attention(case.model)
    if attention is None or case.gpu.id == "cpu":
        return None
    sequences = max_num_seqs or batch_defaults(case.gpu).max_num_seqs

    def at(count: int) -> int:
        return mla_scratch_bytes(
            case.model, tp=layout.tp, block_tokens=block_tokens, max_model_len_tokens=max_model_len_tokens,
            max_num_seqs=count, capped=False,
        )  # fmt: skip

    mending = max(1, MLA_ROWS_MAX // block_tokens)
    if sequences <= mending:
        return None
    latent = 2 * (attention.kv_lora_rank + attention.qk_rope_head_dim)
    rows = sequences * block_tokens
    return Scratch(
        sequences=sequences, size_bytes=at(sequences), up_projected_bytes=at(sequences) - rows * latent, rows=rows,
        mending_sequences=mending, mended_bytes=at(mending),
    )  # fmt: skip


def scratch_words(case: StartupCase, scratch: Scratch) -> str:
    """``31.57 GiB of MLA workspace, …`` with the setting that mends it."""
    return (
        f"vLLM {case.version} keeps an MLA prefill workspace of max_num_seqs x block = {scratch.sequences:,} x "
        f"{scratch.rows // scratch.sequences:,} rows: {format_gib(scratch.up_projected_bytes)} of up-projected "
        f"keys and values beside {format_gib(scratch.size_bytes - scratch.up_projected_bytes)} of latents; "
        f"max_num_seqs {scratch.mending_sequences} takes {format_gib(scratch.mended_bytes)}"
    )


def scratch_refusals(case: StartupCase, judged: LayoutPlan, scratch: Scratch | None) -> tuple[str, ...]:
    """The workspace where the operator set a number of sequences under which start-up runs out of memory.

    Measured with vLLM 0.26 (tests/data/gpu_measured.json): Kimi-Linear with 48 GiB free beside its weights failed to
    allocate one workspace of 29.5 GiB, so a second one is alive while the profile run goes from layer to layer.
    """
    if scratch is None or case.settings.get("max_num_seqs") is None or not judged.ranks:
        return ()
    room = min(rank.device_bytes - rank.weights_bytes - rank.runtime_bytes - rank.comm_bytes for rank in judged.ranks)
    needed = scratch.size_bytes + scratch.up_projected_bytes
    if judged.feasible is True and needed <= room:
        return ()
    return (f"{scratch_words(case, scratch)}; {format_gib(room)} are left beside the weights",)
