"""How a checkpoint says its weights are stored, and what a requantised build would store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.core.errors import Unsupported

if TYPE_CHECKING:
    from roadworthy.catalog.config_fields import ConfigFields
    from roadworthy.spec.model import ModelSpec, WeightFormat
    from roadworthy.spec.values import Weights

_KNOWN = (
    "known: none (BF16), fp8 with 128 x 128 blocks, DeepSeek-V4's FP8 with FP4 experts, "
    "and MXFP4 experts (gpt-oss's own, or packed by compressed-tensors)"
)


def stored_formats(fields: ConfigFields, model_id: str) -> tuple[WeightFormat, WeightFormat]:
    """(linear layers, routed experts) as ``quantization_config`` states. Raises Unsupported for any other method."""
    section = fields.raw("quantization_config")
    if section is None:
        return "bf16", "bf16"
    if not isinstance(section, Mapping):
        fields.complain("quantization_config", "a section of fields, or none")
        return "bf16", "bf16"
    method = section.get("quant_method")
    if method == "fp8":
        return _fp8(fields, section, model_id)
    if method == "mxfp4":
        return _mxfp4(section, model_id)
    if method == "compressed-tensors":
        return _compressed_tensors(section, model_id)
    raise Unsupported(f"{model_id}: quantisation {method!r} is not known here", hint=_KNOWN)


def _fp8(fields: ConfigFields, section: Mapping[str, object], model_id: str) -> tuple[WeightFormat, WeightFormat]:
    if section.get("moe_quant_algo") is not None:
        raise Unsupported(
            f"{model_id}: experts quantised as {section['moe_quant_algo']} are not known here: the bytes of their "
            "scales on a rank have not been established",
            hint="plan the original checkpoint; it stores FP4 experts with one scale per 32 weights",
        )
    if section.get("weight_block_size") != [128, 128]:
        raise Unsupported(
            f"{model_id}: fp8 with weight_block_size {section.get('weight_block_size')} is not known here", hint=_KNOWN
        )
    scale_format = section.get("scale_fmt")
    linear: WeightFormat = "fp8_block128_e8m0" if scale_format == "ue8m0" else "fp8_block128_f32"
    expert_dtype = fields.raw("expert_dtype")
    if expert_dtype is None or expert_dtype == "fp8":
        return linear, linear
    if expert_dtype == "fp4":
        return linear, "fp4_group32"
    raise Unsupported(f"{model_id}: expert_dtype {expert_dtype!r} is not known here", hint=_KNOWN)


def _mxfp4(section: Mapping[str, object], model_id: str) -> tuple[WeightFormat, WeightFormat]:
    """gpt-oss: experts in MXFP4, the modules it names in BF16."""
    kept = section.get("modules_to_not_convert")
    if isinstance(kept, list) and any("self_attn" in str(name) for name in kept):
        return "bf16", "mxfp4_group32"
    raise Unsupported(f"{model_id}: mxfp4 that converts attention as well is not known here", hint=_KNOWN)


def _compressed_tensors(section: Mapping[str, object], model_id: str) -> tuple[WeightFormat, WeightFormat]:
    name = section.get("format")
    ignored = section.get("ignore")
    # the pattern of names that stay in BF16; without it attention would be packed as well, which no form here covers
    keeps_attention = isinstance(ignored, list) and any("self_attn" in str(pattern) for pattern in ignored)
    if name == "mxfp4-pack-quantized" and keeps_attention:
        return "bf16", "mxfp4_group32"
    raise Unsupported(f"{model_id}: compressed-tensors format {name!r} is not known here", hint=_KNOWN)


def requantised(model: ModelSpec, weights: Weights) -> ModelSpec:
    """``model`` with its linear layers stored as ``weights`` says.

    ``fp8`` keeps formats that are FP8 already; others get one scale per 128 x 128 block where the makers' own FP8 uses
    blocks (DeepSeek), else one per output row. Embedding, head, router and norms stay as they are, and so does Kimi's
    attention: its makers' quantisation leaves ``self_attn`` in BF16.
    """
    if weights == "native":
        return model
    if weights == "bf16":
        return replace(model, linear_format="bf16", expert_format="bf16")
    target: WeightFormat = {
        "deepseek_v4": "fp8_block128_e8m0",
        "deepseek_v3": "fp8_block128_f32",
    }.get(model.family, "fp8_channel")  # type: ignore[assignment]
    linear = model.linear_format if model.linear_format.startswith("fp8") else target
    expert = model.expert_format if model.expert_format.startswith("fp8") else target
    return replace(model, linear_format=linear, expert_format=expert)
