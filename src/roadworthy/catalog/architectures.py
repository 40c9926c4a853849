"""``config.json`` of each known architecture -> :class:`ModelSpec`. One reader a family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from roadworthy.catalog.architecture_parts import finish, mla, mlps, moe_mlp
from roadworthy.catalog.config_fields import ConfigFields
from roadworthy.catalog.quantisation import requantised
from roadworthy.catalog.window_mixes import gemma3, gpt_oss
from roadworthy.core.errors import SpecError, Unsupported
from roadworthy.spec.model import (
    Attention,
    DenseMlp,
    GqaAttention,
    KdaAttention,
    Layer,
    ModelSpec,
    V4Attention,
    VisionTower,
)

if TYPE_CHECKING:
    from roadworthy.spec.values import Weights


def model_from_config(
    config: Mapping[str, object], *, model_id: str, weights: Weights = "native", source: str = "config.json"
) -> ModelSpec:
    """The model that a Hugging Face ``config.json`` describes.

    Args:
        config: the parsed file.
        model_id: what to call it in messages and reports.
        weights: as stored, or requantised (see :func:`~roadworthy.catalog.quantisation.requantised`).

    Raises:
        Unsupported: an architecture or quantisation that is not known here, by name.
        SpecError: fields that are missing, contradict each other or cannot be right, all in one pass.
    """
    architecture = _architecture(config, model_id)
    reader = ARCHITECTURES.get(architecture)
    if reader is None:
        close = get_close_matches(architecture, ARCHITECTURES, n=1)
        known = ", ".join(ARCHITECTURES)
        raise Unsupported(
            f"{model_id}: architecture {architecture} is not known here; known: {known}",
            hint=f"did you mean {close[0]}?" if close else "a new architecture needs its memory formulas first",
        )
    return requantised(reader(ConfigFields(config), model_id, architecture, source), weights)


def _architecture(config: Mapping[str, object], model_id: str) -> str:
    names = config.get("architectures")
    if isinstance(names, list) and names and isinstance(names[0], str):
        return names[0]
    fields = ConfigFields(config)
    fields.complain("architectures", "a list with the name of the model class, such as ['LlamaForCausalLM']")
    fields.check(model_id)
    raise SpecError(f"{model_id}: no architecture")


Reader = Callable[[ConfigFields, str, str, str], ModelSpec]


def _dense(fields: ConfigFields, model_id: str, architecture: str, source: str) -> ModelSpec:
    """Llama and its dense relatives: Qwen2 (biased q, k, v), Qwen3 (q and k norms), Mistral without window."""
    attention = _gqa(fields, architecture)
    if fields.flag("mlp_bias", default=False):
        fields.complain("mlp_bias", "false (biased MLPs are not modelled)")
    layers = fields.count("num_hidden_layers", most=2000)
    layer = Layer(attention=attention, mlp=DenseMlp(intermediate=fields.count("intermediate_size")))
    return finish(fields, model_id, architecture, source, family="llama", layers=(layer,) * layers)


def _gqa(fields: ConfigFields, architecture: str) -> GqaAttention:
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", default=heads)
    if heads % kv_heads:
        fields.complain("num_key_value_heads", f"a divisor of num_attention_heads = {heads}")
    if not fields.has("head_dim"):
        fields.divides("hidden_size", "num_attention_heads", hidden, heads)
    if fields.has("sliding_window") and fields.flag("use_sliding_window", default=True):
        fields.complain("sliding_window", "null (sliding-window mixes are not modelled yet)")
    if fields.flag("attention_bias", default=False):
        fields.complain("attention_bias", "false (a biased output projection is not modelled)")
    return GqaAttention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=fields.head_dim("head_dim", default=max(hidden // heads, 1)),
        bias=architecture == "Qwen2ForCausalLM",
        qk_norm=architecture.startswith("Qwen3"),
    )


def _qwen3_moe(fields: ConfigFields, model_id: str, architecture: str, source: str) -> ModelSpec:
    attention = _gqa(fields, architecture)
    if fields.raw("mlp_only_layers"):
        fields.complain("mlp_only_layers", "an empty list (mixed dense layers are not modelled)")
    if fields.count("decoder_sparse_step", default=1) != 1:
        fields.complain("decoder_sparse_step", "1 (mixed dense layers are not modelled)")
    moe = moe_mlp(fields, experts="num_experts", per_token="num_experts_per_tok", router_bias=False)
    layers = fields.count("num_hidden_layers", most=2000)
    return finish(
        fields, model_id, architecture, source, family="qwen3_moe",
        layers=(Layer(attention=attention, mlp=moe),) * layers,
    )  # fmt: skip


def _deepseek_v3(fields: ConfigFields, model_id: str, architecture: str, source: str) -> ModelSpec:
    attention = mla(fields, output_gate=False)
    moe = moe_mlp(
        fields, experts="n_routed_experts", per_token="num_experts_per_tok",
        shared=fields.count("n_shared_experts", default=0, least=0),
    )  # fmt: skip
    return finish(
        fields, model_id, architecture, source, family="deepseek_v3",
        layers=tuple(Layer(attention=attention, mlp=mlp) for mlp in mlps(fields, moe)),
        draft_layers=fields.count("num_nextn_predict_layers", default=0, least=0, most=16),
    )  # fmt: skip


def _kimi_linear(fields: ConfigFields, model_id: str, architecture: str, source: str) -> ModelSpec:
    return finish(
        fields, model_id, architecture, source, family="kimi_linear",
        layers=_kimi_layers(fields, latent=False),
    )  # fmt: skip


def _kimi_k3(fields: ConfigFields, model_id: str, architecture: str, source: str) -> ModelSpec:
    text = fields.section("text_config")
    vision = _kimi_vision(fields.section("vision_config")) if fields.has("vision_config") else None
    return finish(
        text, model_id, architecture, source, family="kimi_k3",
        layers=_kimi_layers(text, latent=True), vision=vision,
    )  # fmt: skip


def _kimi_layers(fields: ConfigFields, *, latent: bool) -> tuple[Layer, ...]:
    total = fields.count("num_hidden_layers", most=2000)
    linear = fields.section("linear_attn_config")
    kda_layers = linear.counts("kda_layers", least=1, most=total)
    mla_layers = linear.counts("full_attn_layers", least=1, most=total)
    if sorted((*kda_layers, *mla_layers)) != list(range(1, total + 1)):
        linear.complain("kda_layers", f"with full_attn_layers every layer from 1 to {total} exactly once")
    full_rank = linear.flag("use_full_rank_gate", default=False)
    if full_rank != latent:
        linear.complain("use_full_rank_gate", "true for Kimi-K3, false for Kimi-Linear")
    kda = KdaAttention(
        heads=linear.count("num_heads"),
        head_dim=linear.head_dim("head_dim"),
        conv_kernel=linear.count("short_conv_kernel_size", most=64),
        full_rank_gate=full_rank,
    )
    latent_attention = mla(fields, output_gate=fields.flag("mla_use_output_gate", default=False))
    moe = moe_mlp(
        fields, experts="num_experts", per_token="num_experts_per_token",
        shared=fields.count("num_shared_experts", default=0, least=0),
        latent_width=fields.count("routed_expert_hidden_size") if latent else None,
    )  # fmt: skip
    kinds: list[Attention] = [latent_attention if index in set(mla_layers) else kda for index in range(1, total + 1)]
    return tuple(Layer(attention=attention, mlp=mlp) for attention, mlp in zip(kinds, mlps(fields, moe), strict=True))


def _kimi_vision(fields: ConfigFields) -> VisionTower:
    """MoonViT without biases: fused q, k, v and output, a two-matrix MLP, one position table, one patch projection."""
    hidden, inner = fields.count("vt_hidden_size"), fields.count("vt_intermediate_size")
    attention = fields.count("qkv_hidden_size", default=hidden)
    text = fields.count("text_hidden_size")
    merge = fields.counts("merge_kernel_size", least=1, most=64)
    positions = fields.count("init_pos_emb_height") * fields.count("init_pos_emb_width")
    patch = fields.count("patch_size", most=1024)
    layer = 4 * hidden * attention + 2 * hidden * inner + 2 * hidden
    tower = fields.count("vt_num_hidden_layers", most=2000) * layer + (positions + 3 * patch * patch + 1) * hidden
    merged = hidden
    for factor in merge:
        merged *= factor
    return VisionTower(tower_bytes=2 * tower, projector_bytes=2 * (merged * merged + merged * text + text))


def _deepseek_v4(fields: ConfigFields, model_id: str, architecture: str, source: str) -> ModelSpec:
    total = fields.count("num_hidden_layers", most=2000)
    draft_layers = fields.count("num_nextn_predict_layers", default=0, least=0, most=16)
    ratios = fields.counts("compress_ratios", least=0, most=128)
    if len(ratios) not in (total, total + draft_layers) or not set(ratios) <= {0, 4, 128}:
        fields.complain("compress_ratios", f"0, 4 or 128 for each of {total} layers and {draft_layers} draft layers")
    if fields.count("num_key_value_heads", default=1) != 1:
        fields.complain("num_key_value_heads", "1 (V4 keeps one latent head)")
    hashed = fields.count("num_hash_layers", default=0, least=0, most=2000)
    moe = moe_mlp(
        fields, experts="n_routed_experts", per_token="num_experts_per_tok",
        shared=fields.count("n_shared_experts", default=0, least=0),
    )  # fmt: skip
    from dataclasses import replace

    attention = _v4_attention(fields)
    layers = tuple(
        Layer(
            attention=replace(attention, compress_ratio=ratio),
            mlp=replace(moe, hash_routed=True) if index < hashed else moe,
        )
        for index, ratio in enumerate((ratios or (0,))[:total])
    )
    return finish(
        fields, model_id, architecture, source, family="deepseek_v4", layers=layers, draft_layers=draft_layers,
        hyper_connections=fields.count("hc_mult", most=64),
    )  # fmt: skip


def _v4_attention(fields: ConfigFields) -> V4Attention:
    heads, groups = fields.count("num_attention_heads"), fields.count("o_groups")
    fields.divides("num_attention_heads", "o_groups", heads, groups)
    return V4Attention(
        heads=heads,
        head_dim=fields.head_dim("head_dim"),
        rope_head_dim=fields.count("qk_rope_head_dim"),
        q_lora_rank=fields.count("q_lora_rank"),
        o_groups=groups,
        o_lora_rank=fields.count("o_lora_rank"),
        compress_ratio=0,
        window_tokens=fields.count("sliding_window"),
        index_heads=fields.count("index_n_heads"),
        index_head_dim=fields.count("index_head_dim"),
        index_topk=fields.count("index_topk"),
    )


ARCHITECTURES: Mapping[str, Reader] = {
    "DeepseekV4ForCausalLM": _deepseek_v4,
    "KimiK3ForConditionalGeneration": _kimi_k3,
    "KimiLinearForCausalLM": _kimi_linear,
    "DeepseekV3ForCausalLM": _deepseek_v3,
    "Qwen3MoeForCausalLM": _qwen3_moe,
    "LlamaForCausalLM": _dense,
    "Qwen2ForCausalLM": _dense,
    "Qwen3ForCausalLM": _dense,
    "MistralForCausalLM": _dense,
    "Gemma3ForConditionalGeneration": gemma3,
    "Gemma3ForCausalLM": gemma3,
    "GptOssForCausalLM": gpt_oss,
}
"""Architectures known here. A new one is a reader, and its formulas in ``plan`` where its kinds of layer are new."""
