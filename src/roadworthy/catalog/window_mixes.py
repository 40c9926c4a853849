"""``config.json`` of models that mix full attention with sliding windows: Gemma-3 and gpt-oss.

Forms follow the classes of transformers 5.19, which tests/contract/plan builds on the meta device and counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.catalog.architecture_parts import finish, moe_mlp
from roadworthy.spec.model import DenseMlp, GqaAttention, Layer, VisionTower

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.catalog.config_fields import ConfigFields
    from roadworthy.spec.model import ModelSpec

GEMMA_FIELDS = {
    "vocab_size": 262_208, "max_position_embeddings": 131_072, "sliding_window_pattern": 6, "tie_word_embeddings": True,
}  # fmt: skip
"""What transformers fills in where a Gemma-3 file leaves it out."""
KINDS = ("full_attention", "sliding_attention")


def gemma3(fields: ConfigFields, model_id: str, architecture: str, source: str) -> ModelSpec:
    """Gemma-3: one full layer after each five of a window, four norms a layer, tied embedding, a SigLIP tower."""
    vision = None
    text = fields
    if architecture == "Gemma3ForConditionalGeneration":
        text = fields.section("text_config").with_defaults(GEMMA_FIELDS)
        tower = fields.section("vision_config")
        vision = _siglip(tower, text.count("hidden_size"))
    else:
        text = fields.with_defaults(GEMMA_FIELDS)
    attention = replace(_attention(text), qk_norm=True)
    pattern = text.count("sliding_window_pattern")
    total = text.count("num_hidden_layers", most=2000)
    default = [KINDS[0] if (index + 1) % pattern == 0 else KINDS[1] for index in range(total)]
    full = replace(attention, rope_scale=_linear_rope(text))
    windowed = replace(attention, window_tokens=text.count("sliding_window"))
    mlp = DenseMlp(intermediate=text.count("intermediate_size"))
    kinds = _kinds(text, default)
    layers = tuple(Layer(attention=full if kind == KINDS[0] else windowed, mlp=mlp) for kind in kinds)
    return finish(text, model_id, architecture, source, family="gemma3", layers=layers, vision=vision)


def gpt_oss(fields: ConfigFields, model_id: str, architecture: str, source: str) -> ModelSpec:
    """gpt-oss: every other layer keeps a window; attention sinks; biases everywhere; MXFP4 experts."""
    biased = fields.flag("attention_bias", default=True)
    attention = replace(_attention(fields), bias=biased, output_bias=biased, sinks=True)
    windowed = replace(attention, window_tokens=fields.count("sliding_window"))
    experts = moe_mlp(
        fields, experts="num_local_experts", per_token="num_experts_per_tok", width="intermediate_size",
        expert_bias=True,
    )  # fmt: skip
    total = fields.count("num_hidden_layers", most=2000)
    kinds = _kinds(fields, [KINDS[1 - index % 2] for index in range(total)])
    layers = tuple(Layer(attention=attention if kind == KINDS[0] else windowed, mlp=experts) for kind in kinds)
    return finish(fields, model_id, architecture, source, family="gpt_oss", layers=layers)


def _attention(fields: ConfigFields) -> GqaAttention:
    heads = fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", default=heads)
    if heads % kv_heads:
        fields.complain("num_key_value_heads", f"a divisor of num_attention_heads = {heads}")
    return GqaAttention(heads=heads, kv_heads=kv_heads, head_dim=fields.head_dim("head_dim"))


def _kinds(fields: ConfigFields, default: Sequence[str]) -> Sequence[str]:
    """The kind of each layer: ``layer_types`` where the file has it, else the family's own pattern."""
    given = fields.raw("layer_types")
    if given is None:
        return default
    if not isinstance(given, list) or len(given) != len(default) or not set(map(str, given)) <= set(KINDS):
        fields.complain("layer_types", f"{' or '.join(KINDS)} for each of {len(default)} layers")
        return default
    return given


def _linear_rope(fields: ConfigFields) -> int:
    """vLLM's linear scaling stretches the rotary table of full layers by this factor."""
    scaling = fields.raw("rope_scaling")
    factor = scaling.get("factor") if isinstance(scaling, dict) else 1
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 1 <= factor <= 1024:
        fields.complain("rope_scaling", "a section with a factor from 1 to 1024")
        return 1
    return int(factor)


def _siglip(fields: ConfigFields, text_hidden: int) -> VisionTower:
    """SigLIP encoder with biases, one norm after it; TP splits attention and MLP matrices, not their output biases."""
    hidden, inner = fields.count("hidden_size"), fields.count("intermediate_size")
    patch, image = fields.count("patch_size", most=1024), fields.count("image_size")
    layers = fields.count("num_hidden_layers", most=2000)
    split = 3 * hidden * (hidden + 1) + hidden * hidden + inner * (hidden + 1) + hidden * inner
    copied = hidden + hidden + 4 * hidden  # output biases and two norms
    ends = (3 * patch * patch + 1) * hidden + (image // patch) ** 2 * hidden + 2 * hidden
    return VisionTower(
        tower_bytes=2 * (layers * (split + copied) + ends),
        projector_bytes=2 * (hidden * text_hidden + hidden),
        split_bytes=2 * layers * split,
    )
