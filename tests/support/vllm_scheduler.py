"""Runs vLLM's own scheduler, without a model, on scenarios: a program of its own, because vLLM wants its own process.

Reads JSON from standard input, ``{"model": PATH, "scenarios": [...]}``, and prints one trace for each scenario: for
every step the tokens it schedules of each request, and the free blocks after scheduling.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}


def main() -> None:
    asked = json.load(sys.stdin)
    answers = [trace(asked["model"], scenario) for scenario in asked["scenarios"]]
    # vLLM prints on standard output as it loads, so the answer is marked
    print("TRACES " + json.dumps(answers))


def trace(model: str, scenario: dict[str, Any]) -> list[dict[str, Any]]:
    from vllm.v1.outputs import ModelRunnerOutput

    scheduler = make_scheduler(model, scenario)
    arriving = {str(request["id"]): request for request in scenario["requests"]}
    steps: list[dict[str, Any]] = []
    made: dict[str, int] = dict.fromkeys(arriving, 0)
    turn = 0
    while arriving or scheduler.has_requests():
        for name, request in list(arriving.items()):
            if request["turn"] <= turn:
                scheduler.add_request(make_request(request))
                del arriving[name]
        output = scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        if names or not scheduler.has_requests():
            turn += 1  # a step that only preempts runs nothing and takes no time
        if names:
            free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
            steps.append({"tokens": output.num_scheduled_tokens, "free": free})
        sampled = []
        for name in names:
            inside = scheduler.requests[name]
            done = inside.num_computed_tokens >= inside.num_tokens
            sampled.append([10**6 * (int(name) + 1) + made[name]] if done else [])
            made[name] += done
        scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=sampled,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            ),
        )
    return steps


def make_scheduler(model: str, scenario: dict[str, Any]) -> Any:
    import torch
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    cache = CacheConfig(block_size=16, cache_dtype="auto", enable_prefix_caching=scenario["enable_prefix_caching"])
    config = VllmConfig(
        model_config=ModelConfig(
            model=model, dtype="float32", skip_tokenizer_init=True, max_model_len=scenario["max_model_len"]
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=scenario["max_num_seqs"],
            max_num_batched_tokens=scenario["max_num_batched_tokens"],
            max_model_len=scenario["max_model_len"],
            enable_chunked_prefill=True,
            async_scheduling=False,
            is_encoder_decoder=False,
            policy=scenario["policy"],
        ),
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
    )
    cache.num_gpu_blocks = scenario["kv_blocks"]
    spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=1, dtype=torch.float32)
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=scenario["kv_blocks"], kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        ),
        log_stats=True,
        structured_output_manager=StructuredOutputManager(config),
        block_size=16,
    )


def make_request(request: dict[str, Any]) -> Any:
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)
    own = [1000 * (request["id"] + 1) + index for index in range(request["own"])]
    return Request(
        request_id=str(request["id"]),
        prompt_token_ids=list(range(request["shared"])) + own,
        sampling_params=SamplingParams(max_tokens=request["output"], ignore_eos=True, temperature=0),
        pooling_params=None,
        block_hasher=get_request_block_hasher(16, sha256),
        priority=request["priority"],
        arrival_time=float(1000 * request["turn"] + request["id"]),
    )


if __name__ == "__main__":
    main()
