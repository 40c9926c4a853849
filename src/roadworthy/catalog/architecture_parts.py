"""What the readers of several architectures share: latent attention, experts, and the last step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.catalog.config_fields import LONGEST_TOKENS
from roadworthy.catalog.quantisation import stored_formats
from roadworthy.spec.model import DenseMlp, MlaAttention, ModelSpec, MoeMlp

if TYPE_CHECKING:
    from roadworthy.catalog.config_fields import ConfigFields
    from roadworthy.spec.model import Layer, Mlp, VisionTower


def mla(fields: ConfigFields, *, output_gate: bool) -> MlaAttention:
    """Multi-head latent attention as DeepSeek-V3 and Kimi name its fields."""
    return MlaAttention(
        heads=fields.count("num_attention_heads"),
        q_lora_rank=fields.count("q_lora_rank") if fields.has("q_lora_rank") else None,
        kv_lora_rank=fields.count("kv_lora_rank"),
        qk_nope_head_dim=fields.count("qk_nope_head_dim"),
        qk_rope_head_dim=fields.count("qk_rope_head_dim"),
        v_head_dim=fields.count("v_head_dim"),
        output_gate=output_gate,
    )


def moe_mlp(
    fields: ConfigFields, *, experts: str, per_token: str, shared: int = 0, router_bias: bool = True,
    latent_width: int | None = None, width: str = "moe_intermediate_size", expert_bias: bool = False,
) -> MoeMlp:  # fmt: skip
    """Routed experts; the arguments name the fields that families spell differently."""
    count, used = fields.count(experts), fields.count(per_token)
    if used > count:
        fields.complain(per_token, f"at most {experts} = {count}")
    return MoeMlp(
        experts=count,
        experts_per_token=used,
        intermediate=fields.count(width),
        shared_experts=shared,
        latent_width=latent_width,
        router_bias=router_bias,
        expert_bias=expert_bias,
    )


def mlps(fields: ConfigFields, moe: MoeMlp) -> tuple[Mlp, ...]:
    """The first ``first_k_dense_replace`` layers are dense, the rest experts."""
    total = fields.count("num_hidden_layers", most=2000)
    if fields.count("moe_layer_freq", default=1) != 1:
        fields.complain("moe_layer_freq", "1 (every layer after the dense ones has experts)")
    dense = fields.count("first_k_dense_replace", default=0, least=0, most=2000)
    if dense > total:
        fields.complain("first_k_dense_replace", f"at most num_hidden_layers = {total}")
        dense = total
    first: tuple[Mlp, ...] = (DenseMlp(intermediate=fields.count("intermediate_size")),) * dense if dense else ()
    return first + (moe,) * (total - dense)


def finish(
    fields: ConfigFields, model_id: str, architecture: str, source: str, *, family: str, layers: tuple[Layer, ...],
    draft_layers: int = 0, hyper_connections: int = 0, vision: VisionTower | None = None,
) -> ModelSpec:  # fmt: skip
    """The model, once every field was right. Raises SpecError with all that were not."""
    name = "max_position_embeddings" if fields.has("max_position_embeddings") else "model_max_length"
    if not fields.has(name):
        name = "max_position_embeddings"
    fields.number_format()
    linear, expert = stored_formats(fields, model_id)
    spec = {
        "hidden_size": fields.count("hidden_size"),
        "vocab_size": fields.count("vocab_size", most=10**8),
        "max_context_tokens": fields.count(name, most=LONGEST_TOKENS),
        "tie_word_embeddings": fields.flag("tie_word_embeddings", default=False),
    }
    fields.check(model_id)
    return ModelSpec(
        id=model_id,
        family=family,  # type: ignore[arg-type]
        architecture=architecture,
        layers=layers,
        linear_format=linear,
        expert_format=expert,
        draft_layers=draft_layers,
        hyper_connections=hyper_connections,
        vision=vision,
        source=source,
        **spec,  # type: ignore[arg-type]
    )
