"""Runs vLLM's own KV-cache planner, without a model or a GPU, on real configs: a program of its own, for its imports.

Reads JSON from standard input, a list of cases, and prints one answer for each: groups, blocks and bytes as
`vllm/v1/core/kv_cache_utils.py` makes them from each layer's KV cache spec. The specs are those of vLLM's layer
classes, written from the config's fields alone, so that nothing of ours takes part.
"""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace
from typing import Any

os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}


def main() -> None:
    answers = [answer(case) for case in json.load(sys.stdin)]
    # vLLM prints on standard output as it loads, so the answer is marked
    print("ANSWERS " + json.dumps(answers))


def answer(case: dict[str, Any]) -> dict[str, Any]:
    from vllm.v1.core import kv_cache_utils

    specs = specs_of(case["config"], case["tp"])
    setup = setup_of(case, packed="compress_ratios" in case["config"])
    names, start, stages = list(specs), 0, []
    for count in case["stage_layers"]:
        own = [name for name in names if start <= int(name.split(".")[0]) < start + count]
        stages.append({name: specs[name] for name in own})
        start += count
    made = kv_cache_utils.get_kv_cache_configs(setup, stages, [case["available"]] * len(stages))
    groups = kv_cache_utils.get_kv_cache_groups(setup, dict(specs))
    projected = [kv_cache_utils._project_kv_cache_groups_to_worker(groups, stage) for stage in stages]
    return {
        "bytes_per_block": [kv_cache_utils._pool_bytes_per_block(setup, own) for own in projected],
        "num_blocks": made[0].num_blocks,
        "concurrency": kv_cache_utils.get_max_concurrency_for_kv_cache_config(setup, made[0]),
        "groups": len(groups),
        "block_tokens": max(spec.block_size for spec in specs.values()),
    }


def setup_of(case: dict[str, Any], *, packed: bool) -> Any:
    """What the planner reads of vLLM's configuration."""
    from vllm.v1.kv_cache_layout import KVCacheLayout

    layout = KVCacheLayout.BLNHC if packed else KVCacheLayout.LBNHC
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        cache_config=SimpleNamespace(
            num_gpu_blocks_override=None, prefix_cache_retention_interval=None, mamba_cache_mode="align",
            get_resolved_kv_cache_layout=lambda: layout,
        ),
        model_config=SimpleNamespace(max_model_len=case["max_model_len"], original_max_model_len=case["max_model_len"]),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=case["tp"], pipeline_parallel_size=len(case["stage_layers"]),
            decode_context_parallel_size=1, prefill_context_parallel_size=1,
        ),
        attention_config=SimpleNamespace(hisparse_config=None),
        speculative_config=None,
        kv_transfer_config=None,
        num_prefill_lookahead_tokens=0,
        num_speculative_tokens=0,
        max_in_flight_tokens=case["in_flight_tokens"],
    )  # fmt: skip


def specs_of(config: dict[str, Any], tp: int) -> dict[str, Any]:
    """One spec for each cache of each layer, named ``layer.part``."""
    fields = config.get("text_config", config)
    if "compress_ratios" in fields:
        return v4_specs(fields)
    if "linear_attn_config" in fields:
        return kda_specs(fields, tp)
    if "kv_lora_rank" in fields:
        return {f"{index}.mla": mla_spec(fields, 16) for index in range(fields["num_hidden_layers"])}
    return gqa_specs(fields, tp)


def mla_spec(fields: dict[str, Any], block: int) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import MLAAttentionSpec

    width = fields["kv_lora_rank"] + fields["qk_rope_head_dim"]
    return MLAAttentionSpec(block_size=block, num_kv_heads=1, head_size=width, dtype=torch.bfloat16)


def gqa_specs(fields: dict[str, Any], tp: int) -> dict[str, Any]:
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

    heads = max(1, fields["num_key_value_heads"] // tp)
    size = fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"]
    shape = {"block_size": 16, "num_kv_heads": heads, "head_size": size, "dtype": torch.bfloat16}
    kinds, pattern = fields.get("layer_types"), fields.get("sliding_window_pattern")
    if kinds is None:
        windowed = [bool(pattern) and (index + 1) % pattern != 0 for index in range(fields["num_hidden_layers"])]
        kinds = ["sliding_attention" if window else "full_attention" for window in windowed]
    return {
        f"{index}.gqa": FullAttentionSpec(**shape)
        if kind == "full_attention"
        else SlidingWindowSpec(sliding_window=fields["sliding_window"], **shape)
        for index, kind in enumerate(kinds)
    }


def kda_specs(fields: dict[str, Any], tp: int) -> dict[str, Any]:
    import torch
    from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator
    from vllm.v1.kv_cache_interface import MambaSpec

    linear = fields["linear_attn_config"]
    shapes = MambaStateShapeCalculator.kda_state_shape(
        tp, linear["num_heads"], linear["head_dim"], conv_kernel_size=linear["short_conv_kernel_size"]
    )
    dtypes = (*[torch.bfloat16] * (len(shapes) - 1), torch.float32)
    state = MambaSpec(shapes=shapes, dtypes=dtypes, block_size=-1).page_size_bytes
    per_token = mla_spec(fields, 1).page_size_bytes
    block = 128 * -(-state // (128 * per_token))  # vllm/platforms/interface.py, for MLA
    padded = MambaSpec(
        shapes=shapes, dtypes=dtypes, block_size=block, page_size_padded=block * per_token, mamba_cache_mode="align",
        # K3's own layer adds a block for a checkpoint within a prefill (vllm/models/kimi_k3/nvidia/kda.py)
        num_prefill_checkpoint_blocks=int("latent_moe_use_norm" in fields),
    )  # fmt: skip
    recurrent = {layer - 1 for layer in linear["kda_layers"]}
    return {
        f"{index}.{'kda' if index in recurrent else 'mla'}": padded if index in recurrent else mla_spec(fields, block)
        for index in range(fields["num_hidden_layers"])
    }


def v4_specs(fields: dict[str, Any]) -> dict[str, Any]:
    import torch
    from vllm.v1.kv_cache_interface import MLAAttentionSpec, SlidingWindowMLASpec

    common = {"num_kv_heads": 1, "max_tp_shards": 1, "alignment": 576}
    head, index_head = fields["head_dim"], fields["index_head_dim"]
    packed = {
        "head_size": head, "dtype": torch.uint8, "cache_dtype_str": "fp8_ds_mla", "model_version": "deepseek_v4",
        "state_content_bytes": 584,
    }  # fmt: skip
    specs: dict[str, Any] = {}
    for index, ratio in enumerate(fields["compress_ratios"][: fields["num_hidden_layers"]]):
        specs[f"{index}.window"] = SlidingWindowMLASpec(
            block_size=64, sliding_window=fields["sliding_window"], **packed, **common
        )
        if not ratio:
            continue
        specs[f"{index}.main"] = MLAAttentionSpec(block_size=256, tokens_per_state=ratio, **packed, **common)
        streams = 2 if ratio == 4 else 1
        state = {"dtype": torch.float32, "sliding_window": streams * ratio, "block_size": 4 if ratio == 4 else 8}
        specs[f"{index}.state"] = SlidingWindowMLASpec(head_size=2 * streams * head, **state, **common)
        if ratio == 4:
            specs[f"{index}.indexer"] = MLAAttentionSpec(
                block_size=256, tokens_per_state=4, head_size=index_head + 4, dtype=torch.uint8, **common
            )
            specs[f"{index}.indexer_state"] = SlidingWindowMLASpec(head_size=4 * index_head, **state, **common)
    return specs


if __name__ == "__main__":
    main()
