"""From a model to its cache groups: page sizes, block sizes and bytes per block, as vLLM's KV planner packs them.

Four shapes exist (vLLM 0.32 `vllm/v1/core/kv_cache_utils.py`; tests/contract/plan asks it):

* one full-attention group (GQA, MLA): a block is 16 tokens (64 for FP8 MLA, 128 on CPU), bytes add up over layers;
* DeepSeek-V4: compressed main pages, sliding windows of every layer and compressor states, packed into one block;
* KDA with MLA: both kinds share one page size, so the block is as long as the recurrent state needs;
* full attention beside sliding windows (Gemma, gpt-oss): blocks of 16 tokens in groups of equally many layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from roadworthy.core.errors import Unsupported
from roadworthy.plan.cache import CacheGroup, CacheLayout
from roadworthy.plan.weights.formats import round_up
from roadworthy.spec.model import GqaAttention, KdaAttention, MlaAttention, ModelSpec, V4Attention

if TYPE_CHECKING:
    from roadworthy.plan.weights.stage import StateDtype

KvDtype = Literal["auto", "fp8", "bfloat16"]

GPU_BLOCK_TOKENS, CPU_BLOCK_TOKENS, FP8_MLA_BLOCK_TOKENS = 16, 128, 64
V4_BLOCK_TOKENS, V4_WINDOW_BLOCK_TOKENS = 256, 64
HYBRID_ALIGNMENT_TOKENS = 128
"""vLLM 0.32 and 0.33 round the shared block of a hybrid model to this; 0.26 rounded to 16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """What of the engine's settings decides the cache layout.

    Args:
        kv_dtype: vLLM's ``kv_cache_dtype``; ``auto`` is BF16, and FP8 for DeepSeek-V4 (Hopper knows nothing else).
        prefix_caching: with it a recurrent layer keeps a second block at block boundaries (mode "align").
        block_tokens: the operator's ``block_size`` for a plain full-attention model, or None for the engine's choice.
        alignment_tokens: see :data:`HYBRID_ALIGNMENT_TOKENS`.
    """

    kv_dtype: KvDtype = "auto"
    prefix_caching: bool = True
    state_dtype: StateDtype = "auto"
    block_tokens: int | None = None
    on_cpu: bool = False
    alignment_tokens: int = HYBRID_ALIGNMENT_TOKENS


def in_flight_tokens(*, pp: int, max_num_batched_tokens: int) -> int:
    """Tokens that may be scheduled and not yet settled: pp + 1 batches with asynchronous scheduling.

    vLLM 0.33 `vllm/config/vllm.py` max_in_flight_tokens, V2 model runner.
    """
    return (pp + 1) * max_num_batched_tokens


def cache_layout(
    model: ModelSpec, *, tp: int, stage_layers: Sequence[int], options: CacheOptions | None = None
) -> CacheLayout:
    """The cache groups of one replica and what a block id costs on a rank of each stage.

    Args:
        stage_layers: layers of each pipeline stage, in order.
    """
    return _cache_layout(model, tp, tuple(stage_layers), options or CacheOptions())


@lru_cache(maxsize=1024)  # a search asks again for every layout that cuts the cache alike
def _cache_layout(model: ModelSpec, tp: int, stage_layers: tuple[int, ...], options: CacheOptions) -> CacheLayout:
    stages = _stage_ranges(stage_layers)
    kinds = {type(layer.attention) for layer in model.layers}
    if kinds == {V4Attention}:
        return _v4_layout(model, stages, options)
    if KdaAttention in kinds and kinds <= {KdaAttention, MlaAttention}:
        return _hybrid_layout(model, tp, stages, options)
    if kinds == {GqaAttention} and any(_window(model, index) is not None for index in range(model.num_layers)):
        return _window_layout(model, tp, stages, options)
    if kinds in ({GqaAttention}, {MlaAttention}):
        return _full_layout(model, tp, stages, options)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise Unsupported(f"{model.id}: the cache of a mix of {names} is not known here")


def _stage_ranges(stage_layers: Sequence[int]) -> tuple[range, ...]:
    ranges, start = [], 0
    for count in stage_layers:
        ranges.append(range(start, start + count))
        start += count
    return tuple(ranges)


def token_bytes(model: ModelSpec, layer_index: int, tp: int, options: CacheOptions) -> int:
    """Cache bytes of one token in one full-attention layer on one rank; MLA latents are copied over TP."""
    attention = model.layers[layer_index].attention
    element = 1 if options.kv_dtype == "fp8" else 2
    if isinstance(attention, GqaAttention):
        return 2 * max(1, attention.kv_heads // tp) * attention.head_dim * element
    if isinstance(attention, MlaAttention):
        return (attention.kv_lora_rank + attention.qk_rope_head_dim) * element
    raise TypeError(f"layer {layer_index} keeps no cache that grows by the token")


def _full_layout(model: ModelSpec, tp: int, stages: Sequence[range], options: CacheOptions) -> CacheLayout:
    default = CPU_BLOCK_TOKENS if options.on_cpu else GPU_BLOCK_TOKENS
    if isinstance(model.layers[0].attention, MlaAttention) and options.kv_dtype == "fp8":
        default = max(default, FP8_MLA_BLOCK_TOKENS)
    block = options.block_tokens or default
    per_stage = tuple(block * sum(token_bytes(model, index, tp, options) for index in stage) for stage in stages)
    group = CacheGroup(kind="full", block_tokens=block, layers=max(len(stage) for stage in stages))
    return CacheLayout(groups=(group,), bytes_per_block=per_stage)


def _window(model: ModelSpec, index: int) -> int | None:
    attention = model.layers[index].attention
    return attention.window_tokens if isinstance(attention, GqaAttention) else None


def _window_layout(model: ModelSpec, tp: int, stages: Sequence[range], options: CacheOptions) -> CacheLayout:
    """Full layers and windowed ones cut into groups of one size; a block id costs its layers' pages in any group."""
    block = options.block_tokens or (CPU_BLOCK_TOKENS if options.on_cpu else GPU_BLOCK_TOKENS)
    everyone = range(model.num_layers)
    windows = {_window(model, index): [] for index in everyone}  # type: dict[int | None, list[int]]
    for index in everyone:
        windows[_window(model, index)].append(index)
    groups, members_of = [], []
    for window, layers in windows.items():
        for members in _equal_groups(layers, list(windows.values())):
            members_of.append(members)
            groups.append(
                CacheGroup(
                    kind="full" if window is None else "window",
                    block_tokens=block,
                    layers=max(_members(members, stage) for stage in stages),
                    window_tokens=0 if window is None else window - 1,
                )
            )
    page_bytes = block * token_bytes(model, 0, tp, options)
    most = (max(_members(members, stage) for members in members_of) for stage in stages)
    return CacheLayout(groups=tuple(groups), bytes_per_block=tuple(page_bytes * count for count in most))


def state_bytes_per_layer(attention: KdaAttention, *, tp: int, state_dtype: StateDtype) -> int:
    """Recurrent and convolution state of one sequence in one KDA layer on one rank."""
    heads = attention.heads // tp
    recurrent = heads * attention.head_dim * attention.head_dim * (2 if state_dtype == "bfloat16" else 4)
    convolution = (attention.conv_kernel - 1) * 3 * heads * attention.head_dim * 2
    return recurrent + convolution


def _hybrid_layout(model: ModelSpec, tp: int, stages: Sequence[range], options: CacheOptions) -> CacheLayout:
    kda = [index for index, layer in enumerate(model.layers) if isinstance(layer.attention, KdaAttention)]
    mla = [index for index, layer in enumerate(model.layers) if isinstance(layer.attention, MlaAttention)]
    first = model.layers[kda[0]].attention
    assert isinstance(first, KdaAttention)
    state_bytes = state_bytes_per_layer(first, tp=tp, state_dtype=options.state_dtype)
    per_token = token_bytes(model, mla[0], tp, options)
    aligned = options.alignment_tokens
    block = aligned * -(-state_bytes // (aligned * per_token))
    page_bytes = block * per_token
    groups = [(members, "state") for members in _equal_groups(kda, (kda, mla))]
    groups += [(members, "full") for members in _equal_groups(mla, (kda, mla))]
    resident, admitted = 1, 1
    if options.prefix_caching:
        # at a block boundary the old state stays until the new one is written; facts: models.md 4.3 and 4.5
        resident, admitted = 2, 3 if model.family == "kimi_k3" else 2
    return CacheLayout(
        groups=tuple(
            CacheGroup(
                kind="full" if kind == "full" else "state",
                block_tokens=block,
                layers=max(_members(members, stage) for stage in stages),
                resident_blocks=resident,
                admission_blocks=admitted,
            )
            for members, kind in groups
        ),
        bytes_per_block=tuple(page_bytes * max(_members(members, stage) for members, _ in groups) for stage in stages),
        state_bytes_per_sequence=state_bytes * len(kda),
    )


def _members(members: Sequence[int], stage: range) -> int:
    return sum(index in stage for index in members)


def _equal_groups(members: Sequence[int], kinds: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Layers of one kind in groups about as large as the smallest kind; strided so that stages share evenly."""
    sizes = [len(kind) for kind in kinds]
    group_size = max(sizes) if max(sizes) < 1.5 * min(sizes) else min(sizes)
    groups = -(-len(members) // group_size)
    return [members[start::groups] for start in range(groups)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _V4Pages:
    """Page bytes of each V4 cache, padded to the kernel's alignment."""

    csa: int
    indexer: int
    hca: int
    window: int
    csa_state: int
    indexer_state: int
    hca_state: int


def _v4_pages(attention: V4Attention, options: CacheOptions) -> _V4Pages:
    if options.kv_dtype == "bfloat16":
        entry, alignment = 2 * attention.head_dim, 512
    else:  # fp8_ds_mla: fp8 content, BF16 rotary part, 8 scale bytes
        entry, alignment = attention.head_dim - attention.rope_head_dim + 2 * attention.rope_head_dim + 8, 576
    index_entry = attention.index_head_dim + 4
    return _V4Pages(
        csa=round_up(V4_BLOCK_TOKENS // 4 * entry, alignment),
        indexer=round_up(V4_BLOCK_TOKENS // 4 * index_entry, alignment),
        hca=round_up(V4_BLOCK_TOKENS // 128 * entry, alignment),
        window=round_up(V4_WINDOW_BLOCK_TOKENS * entry, alignment),
        csa_state=round_up(4 * 4 * attention.head_dim * 4, alignment),
        indexer_state=round_up(4 * 4 * attention.index_head_dim * 4, alignment),
        hca_state=round_up(8 * 2 * attention.head_dim * 4, alignment),
    )


def _v4_layout(model: ModelSpec, stages: Sequence[range], options: CacheOptions) -> CacheLayout:
    first = model.layers[0].attention
    assert isinstance(first, V4Attention)
    pages, ratios = _v4_pages(first, options), [_ratio(model, index) for index in range(model.num_layers)]
    everyone = list(range(model.num_layers))
    csa = [index for index in everyone if ratios[index] == 4]
    hca = [index for index in everyone if ratios[index] == 128]
    kept = first.window_tokens - 1
    buckets: list[tuple[list[Sequence[int]], CacheGroup, dict[int, int]]] = []

    def bucket(members: list[int], parts: int, group: CacheGroup, costs: dict[int, int]) -> None:
        if members:
            buckets.append(([members[start::parts] for start in range(parts)], group, costs))

    repeats = _repeats_per_group(len(everyone), len(csa), len(hca))
    window = CacheGroup(kind="window", block_tokens=V4_WINDOW_BLOCK_TOKENS, layers=0, window_tokens=kept)
    bucket(everyone, -(-len(everyone) // repeats), window, {0: pages.window, 4: pages.window, 128: pages.window})
    main = CacheGroup(kind="full", block_tokens=V4_BLOCK_TOKENS, layers=0)
    bucket(sorted(csa + hca), 1, main, {4: pages.csa + pages.indexer, 128: pages.hca})
    csa_state = CacheGroup(kind="window", block_tokens=4, layers=0, window_tokens=2 * 4 - 1)
    bucket(csa, -(-len(csa) // repeats), csa_state, {4: pages.csa_state + pages.indexer_state})
    hca_state = CacheGroup(kind="window", block_tokens=8, layers=0, window_tokens=128 - 1)
    bucket(hca, -(-len(hca) // repeats), hca_state, {128: pages.hca_state})

    groups: list[CacheGroup] = []
    per_stage = [0] * len(stages)
    for parts, kind, costs in buckets:
        for members in parts:
            for number, stage in enumerate(stages):
                cost = sum(costs[ratios[index]] for index in members if index in stage)
                per_stage[number] = max(per_stage[number], cost)
            layers = max(_members(members, stage) for stage in stages)
            groups.append(
                CacheGroup(
                    kind=kind.kind, block_tokens=kind.block_tokens, layers=layers, window_tokens=kind.window_tokens
                )
            )
    return CacheLayout(groups=tuple(groups), bytes_per_block=tuple(per_stage))


def _ratio(model: ModelSpec, index: int) -> int:
    attention = model.layers[index].attention
    assert isinstance(attention, V4Attention)
    return attention.compress_ratio


def _repeats_per_group(windows: int, csa: int, hca: int) -> int:
    """Layers of a group that pad the least when every kind is cut into groups of that size.

    vLLM's `_approximate_gcd`, bounded below by the CSA states, which mix two page sizes and stay whole. The main pages
    take no part: their page sizes do not repeat one to one (CSA with indexer against HCA).
    """
    counts = [count for count in (windows, csa, hca) if count]
    candidates = range(max(csa, 1), max(counts) + 1)
    return min(candidates, key=lambda size: (sum(-count % size for count in counts), -size))
