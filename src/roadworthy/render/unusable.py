"""Settings of a document that the engine would accept and then fail on, or pass over: left out, with the reason.

What no start survives whatever the layout, the plan refuses already; these are the rest, each a row of the truth table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.plan.eplb import IGNORING_FAMILIES
from roadworthy.render.model_flags import HOPPER

if TYPE_CHECKING:
    from roadworthy.render.values import RenderInput
    from roadworthy.spec.values import Scalar

BLACKWELL_MOE = frozenset({"deep_gemm_mega_moe"})
BLACKWELL_KDA = frozenset({"flashinfer"})
FALLING_BACK = frozenset({"naive", "pplx"})


def why_unusable(name: str, value: Scalar, inputs: RenderInput) -> str:
    """Why ``engine.settings.NAME: VALUE`` has no use for this model on this GPU; empty when it has."""
    family, model = inputs.model.family, inputs.model.id
    hopper = inputs.gpu.compute_capability[0] == HOPPER
    match name:
        case "enable_eplb" | "eplb_config" if family in IGNORING_FAMILIES:
            return f"{model} takes no part in expert load balancing; the engine would accept it without effect"
        case "quantization" if family == "deepseek_v4":
            return (
                f"{model} is stored quantised and the engine takes the method from its config: {value} would not apply"
            )
        case "dbo_decode_token_threshold" | "dbo_prefill_token_threshold" if not _overlaps(inputs):
            return "without dual batch overlap it has no effect"
        case "moe_backend" if hopper and value in BLACKWELL_MOE:
            return f"{value} needs Blackwell; {inputs.gpu.id} would fail at the first step"
        case "kda_prefill_backend" if hopper and value in BLACKWELL_KDA:
            return f"{value} needs SM100; left to itself the engine takes the right one"
        case "kda_prefill_backend" if value == "fused":
            return "fused is for ROCm; left to itself the engine takes the right one"
        case "mamba_cache_mode":
            return "deprecated without effect; the engine aligns the cache of such models itself"
        case "enable_chunked_prefill" if value is False and family in {"kimi_k3", "kimi_linear"}:
            return f"the prefix cache of {model} needs chunked prefill; the start would fail"
        case "all2all_backend" if value in FALLING_BACK:
            return f"{value} is gone; the engine would fall back to its default and say so in its log"
    return ""


def _overlaps(inputs: RenderInput) -> bool:
    return inputs.deployment.engine.settings.get("enable_dbo") is True
