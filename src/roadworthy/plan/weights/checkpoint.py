"""What a checkpoint holds by component: parameters, weight bytes, scale bytes (facts: the safetensors indexes).

A checkpoint differs from what a rank loads in small ways: V4 stores its hash table as int64 and counts no parameters
for it; Kimi-K3 stores the per-head decay padded to 128, convolution and KDA norm in float32, Kimi-Linear only decay
and bias; norms of the attention latents are counted with attention in K3 and with the norms elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from roadworthy.plan.weights.formats import element_bytes, scale_bytes
from roadworthy.plan.weights.stage import draft_layer
from roadworthy.spec.model import (
    DenseMlp,
    GqaAttention,
    KdaAttention,
    Layer,
    MlaAttention,
    ModelSpec,
    MoeMlp,
    V4Attention,
    WeightFormat,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Parameters and bytes of one component, all layers."""

    parameters: int = 0
    weight_bytes: int = 0
    scale_bytes: int = 0

    def __add__(self, other: Stored) -> Stored:
        return Stored(
            parameters=self.parameters + other.parameters,
            weight_bytes=self.weight_bytes + other.weight_bytes,
            scale_bytes=self.scale_bytes + other.scale_bytes,
        )

    def __mul__(self, count: int) -> Stored:
        return Stored(
            parameters=self.parameters * count,
            weight_bytes=self.weight_bytes * count,
            scale_bytes=self.scale_bytes * count,
        )

    @property
    def bytes(self) -> int:
        return self.weight_bytes + self.scale_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTotals:
    """Every component of a checkpoint; ``mtp`` is the draft layer, which is served only with speculative decoding."""

    components: Mapping[str, Stored]

    @property
    def parameters(self) -> int:
        """Parameters of the model itself, draft layers apart."""
        return sum(stored.parameters for name, stored in self.components.items() if name != "mtp")

    @property
    def bytes(self) -> int:
        """All bytes, draft layers included: what the safetensors index calls ``total_size``."""
        return sum(stored.bytes for stored in self.components.values())


def _matrix(rows: int, columns: int, form: WeightFormat) -> Stored:
    return Stored(
        parameters=rows * columns,
        weight_bytes=element_bytes(rows, columns, form),
        scale_bytes=scale_bytes(rows, columns, form),
    )


def _plain(elements: int, size: int = 2) -> Stored:
    """``elements`` numbers of ``size`` bytes (2: BF16, 4: float32)."""
    return Stored(parameters=elements, weight_bytes=elements * size)


class _Tally:
    def __init__(self) -> None:
        self.components: dict[str, Stored] = {}

    def add(self, component: str, stored: Stored, count: int = 1) -> None:
        if stored.parameters or stored.weight_bytes:
            self.components[component] = self.components.get(component, Stored()) + stored * count


def checkpoint_totals(model: ModelSpec) -> CheckpointTotals:
    """Parameters and bytes of the whole checkpoint, exact for every catalog model."""
    tally = _Tally()
    for layer, count in Counter(model.layers).items():
        _add_layer(tally, model, layer, count)
    _add_ends(tally, model)
    if model.draft_layers:
        draft = _Tally()
        _add_draft(draft, model)
        total = sum(draft.components.values(), start=Stored())
        tally.add("mtp", total, model.draft_layers)
    return CheckpointTotals(components=tally.components)


def _add_ends(tally: _Tally, model: ModelSpec) -> None:
    hidden = model.hidden_size
    tally.add("embedding", _plain(model.vocab_size * hidden))
    if not model.tie_word_embeddings:
        tally.add("lm_head", _plain(model.vocab_size * hidden))
    tally.add("norm", _plain(hidden))
    if model.family == "kimi_k3":
        tally.add("attn_res", _plain(2 * hidden))
    if model.hyper_connections:
        tally.add("mhc", _hyper_head(model))
    if model.vision is not None:
        tally.add("vision_tower", _plain(model.vision.tower_bytes // 2))
        tally.add("mm_projector", _plain(model.vision.projector_bytes // 2))


def _hyper_head(model: ModelSpec) -> Stored:
    streams = model.hyper_connections
    return _plain(streams * streams * model.hidden_size + streams + 1, 4)


def _add_draft(tally: _Tally, model: ModelSpec) -> None:
    hidden = model.hidden_size
    _add_layer(tally, model, draft_layer(model), 1)
    tally.add("mtp", _plain(3 * hidden))
    if model.family == "deepseek_v4":
        tally.add("mtp", _matrix(hidden, hidden, model.linear_format), 2)
        tally.add("mtp", _hyper_head(model))
    else:
        tally.add("mtp", _plain(2 * hidden * hidden))
        tally.add("mtp", _plain(2 * model.vocab_size * hidden))  # its own copies of embedding and head


def _add_layer(tally: _Tally, model: ModelSpec, layer: Layer, count: int) -> None:
    hidden = model.hidden_size
    tally.add("norm", _plain((4 if model.family == "gemma3" else 2) * hidden), count)
    if model.family == "kimi_k3":
        tally.add("attn_res", _plain(4 * hidden), count)
    if model.hyper_connections:
        streams = model.hyper_connections
        mixes = (2 + streams) * streams
        tally.add("mhc", _plain(2 * (mixes * streams * hidden + mixes + 3), 4), count)
    match layer.attention:
        case GqaAttention():
            _add_gqa(tally, model, layer.attention, count)
        case MlaAttention():
            _add_mla(tally, model, layer.attention, count)
        case KdaAttention():
            _add_kda(tally, model, layer.attention, count)
        case V4Attention():
            _add_v4(tally, model, layer.attention, count)
    if isinstance(layer.mlp, DenseMlp):
        tally.add("dense_mlp", _gated(model, layer.mlp.intermediate), count)
    else:
        _add_moe(tally, model, layer.mlp, count)


def _gated(model: ModelSpec, columns: int) -> Stored:
    form, hidden = model.linear_format, model.hidden_size
    return _matrix(columns, hidden, form) * 2 + _matrix(hidden, columns, form)


def _add_moe(tally: _Tally, model: ModelSpec, mlp: MoeMlp, count: int) -> None:
    hidden, width = model.hidden_size, mlp.latent_width or model.hidden_size
    tally.add("router", _plain(mlp.experts * hidden), count)
    if mlp.hash_routed:
        table = Stored(weight_bytes=8 * model.vocab_size * mlp.experts_per_token)
        tally.add("router_hash_table", table, count)
    elif mlp.router_bias:
        narrow = model.family in ("kimi_linear", "gpt_oss")
        tally.add("router", _plain(mlp.experts, 2 if narrow else 4), count)
    expert = _matrix(mlp.intermediate, width, model.expert_format) * 2
    expert += _matrix(width, mlp.intermediate, model.expert_format)
    if mlp.expert_bias:
        expert += _plain(2 * mlp.intermediate + width)
    tally.add("routed_experts", expert * mlp.experts, count)
    if mlp.shared_experts:
        tally.add("shared_experts", _gated(model, mlp.shared_experts * mlp.intermediate), count)
    if mlp.latent_width is not None:
        form = model.linear_format
        both = _matrix(width, hidden, form) + _matrix(hidden, width, form) + _plain(width)
        tally.add("latent_moe_proj", both, count)


def _add_gqa(tally: _Tally, model: ModelSpec, attention: GqaAttention, count: int) -> None:
    form, hidden = model.linear_format, model.hidden_size
    query, kv = attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim
    stored = _matrix(query, hidden, form) + _matrix(kv, hidden, form) * 2 + _matrix(hidden, query, form)
    if attention.bias:
        stored += _plain(query + 2 * kv)
    if attention.output_bias:
        stored += _plain(hidden)
    if attention.sinks:
        stored += _plain(attention.heads)
    tally.add("attention", stored, count)
    if attention.qk_norm:
        tally.add("norm", _plain(2 * attention.head_dim), count)


def _add_mla(tally: _Tally, model: ModelSpec, attention: MlaAttention, count: int) -> None:
    kimi = model.family in ("kimi_k3", "kimi_linear")
    form: WeightFormat = "bf16" if kimi else model.linear_format
    hidden, heads, rank = model.hidden_size, attention.heads, attention.q_lora_rank
    query = heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim)
    stored = _matrix(attention.kv_lora_rank + attention.qk_rope_head_dim, hidden, form)
    stored += _matrix(heads * (attention.qk_nope_head_dim + attention.v_head_dim), attention.kv_lora_rank, form)
    stored += _matrix(hidden, heads * attention.v_head_dim, form)
    if rank is None:
        stored += _matrix(query, hidden, form)
    else:
        stored += _matrix(rank, hidden, form) + _matrix(query, rank, form)
    if attention.output_gate:
        stored += _matrix(heads * attention.v_head_dim, hidden, form)
    norms = _plain((rank or 0) + attention.kv_lora_rank)
    if model.family == "kimi_k3":
        stored += norms
    else:
        tally.add("norm", norms, count)
    tally.add("mla_attention" if kimi else "attention", stored, count)


def _add_kda(tally: _Tally, model: ModelSpec, attention: KdaAttention, count: int) -> None:
    hidden, head_dim = model.hidden_size, attention.head_dim
    width = attention.heads * head_dim
    wide = (4 if attention.full_rank_gate else 3) * width * hidden
    gate = 0 if attention.full_rank_gate else head_dim * (hidden + width)
    decay = head_dim * (hidden + width)
    bf16 = wide + gate + decay + attention.heads * hidden + width * hidden
    convolution = 3 * attention.conv_kernel * width
    if model.family == "kimi_k3":
        stored = _plain(bf16) + _plain(convolution + width + head_dim + head_dim, 4)
    else:
        stored = _plain(bf16 + convolution) + _plain(width + attention.heads, 4)
        tally.add("norm", _plain(head_dim), count)
    tally.add("kda_attention", stored, count)


def _add_v4(tally: _Tally, model: ModelSpec, attention: V4Attention, count: int) -> None:
    form, hidden, head_dim, rank = model.linear_format, model.hidden_size, attention.head_dim, attention.q_lora_rank
    width = attention.heads * head_dim
    group_rows = attention.o_groups * attention.o_lora_rank
    stored = _matrix(rank, hidden, form) + _matrix(head_dim, hidden, form) + _matrix(width, rank, form)
    stored += _matrix(group_rows, width // attention.o_groups, form) + _matrix(hidden, group_rows, form)
    tally.add("attention", stored + _plain(attention.heads, 4), count)
    tally.add("norm", _plain(rank + head_dim), count)
    if attention.compress_ratio:
        streams = 2 if attention.compress_ratio == 4 else 1
        compressor = _plain(2 * streams * head_dim * hidden) + _plain(attention.compress_ratio * streams * head_dim, 4)
        tally.add("compressor", compressor, count)
        tally.add("norm", _plain(head_dim), count)
    if attention.compress_ratio == 4:
        inner = attention.index_head_dim
        indexer = _matrix(attention.index_heads * inner, rank, form) + _plain(attention.index_heads * hidden)
        indexer += _plain(2 * 2 * inner * hidden) + _plain(attention.compress_ratio * 2 * inner, 4)
        tally.add("indexer", indexer, count)
        tally.add("norm", _plain(inner), count)
