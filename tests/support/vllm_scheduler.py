"""Runs vLLM's own scheduler, without a model, on scenarios: a program of its own, because vLLM wants its own process.

Reads JSON from standard input, ``{"model": PATH, "scenarios": [...]}``, and prints one trace for each scenario, in the
form that ``support.scheduling`` describes. As in vLLM's engine core, up to ``depth`` steps are under way: a new one is
scheduled when the oldest has ended, or at once while there is room.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections import deque
from typing import Any

os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}


def main() -> None:
    asked = json.load(sys.stdin)
    answers = [Play(asked["model"], scenario).trace() for scenario in asked["scenarios"]]
    # vLLM prints on standard output as it loads, so the answer is marked
    print("TRACES " + json.dumps(answers))


class Play:
    """One scenario under vLLM's scheduler."""

    def __init__(self, model: str, scenario: dict[str, Any]) -> None:
        self.scenario = scenario
        self.scheduler = make_scheduler(model, scenario)
        self.arriving = {str(request["id"]): request for request in scenario["requests"]}
        self.leaving = {str(request["id"]): request["leaves"] for request in scenario["requests"] if request["leaves"]}
        self.under_way: deque[Any] = deque()
        self.steps: list[dict[str, Any]] = []
        self.ended = self.preemptions = 0

    def trace(self) -> list[dict[str, Any]]:
        scheduler = self.scheduler
        while self.arriving or scheduler.has_requests() or self.under_way:
            self.let_in_and_out()
            output = scheduler.schedule()
            self.preemptions += len(output.preempted_req_ids or ())
            if output.num_scheduled_tokens:
                self.note(output)
                self.under_way.append(output)
                if len(self.under_way) < self.scenario["depth"]:
                    continue
            elif output.preempted_req_ids:
                continue  # it only preempted, and the engine asks again
            elif not self.under_way:
                if not scheduler.has_requests() and self.arriving:
                    self.ended = min(request["turn"] for request in self.arriving.values())
                continue
            self.end(self.under_way.popleft())
        return self.steps

    def let_in_and_out(self) -> None:
        from vllm.v1.request import RequestStatus

        for name, request in list(self.arriving.items()):
            if request["turn"] <= self.ended:
                self.scheduler.add_request(make_request(request, self.scenario["hash_tokens"]))
                del self.arriving[name]
        for name, turn in list(self.leaving.items()):
            if turn <= self.ended and name not in self.arriving:
                self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
                del self.leaving[name]

    def note(self, output: Any) -> None:
        scheduler, tokens = self.scheduler, output.num_scheduled_tokens
        self.steps.append(
            {
                "tokens": tokens,
                "starts": {name: scheduler.requests[name].num_computed_tokens - tokens[name] for name in tokens},
                "preemptions": self.preemptions,
                "free": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            }
        )
        output.samples = {name for name in tokens if not scheduler.requests[name].is_prefill_chunk}

    def end(self, output: Any) -> None:
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        from roadworthy.twin.config import accepted_drafts

        self.ended += 1
        names = list(output.num_scheduled_tokens)
        sampled: list[list[int]] = []
        for name in names:
            inside = self.scheduler.requests.get(name)
            if inside is None or name not in output.samples:
                sampled.append([])
                continue
            drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
            made = inside.num_output_tokens
            count = 1 + accepted_drafts(self.scenario["draft_acceptance_ratio"], name, made, drafts)
            sampled.append([token_of(f"answer of {name}", made + index) for index in range(count)])
        self.scheduler.update_from_output(
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
        drafts = self.scenario["draft_tokens"]
        if drafts:
            self.scheduler.update_draft_token_ids(DraftTokenIds(names, [[1] * drafts for _ in names]))


def make_scheduler(model: str, scenario: dict[str, Any]) -> Any:
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    sizes = [group["block_tokens"] for group in scenario["groups"]]
    block_tokens = math.lcm(*sizes)
    scenario["hash_tokens"] = math.gcd(*sizes)
    cache = CacheConfig(
        block_size=max(sizes), cache_dtype="auto", enable_prefix_caching=scenario["enable_prefix_caching"]
    )
    if any(group["kind"] == "state" for group in scenario["groups"]):
        cache.mamba_cache_mode = "align"
    extra: dict[str, Any] = {}
    if scenario["draft_tokens"]:
        extra["speculative_config"] = SpeculativeConfig(
            method="ngram", num_speculative_tokens=scenario["draft_tokens"], prompt_lookup_max=4, prompt_lookup_min=1
        )
    config = VllmConfig(
        model_config=ModelConfig(
            model=model, dtype="float32", skip_tokenizer_init=True, max_model_len=scenario["max_model_len"]
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=scenario["max_num_seqs"],
            max_num_batched_tokens=scenario["max_num_batched_tokens"],
            max_model_len=scenario["max_model_len"],
            long_prefill_token_threshold=scenario["long_prefill_token_threshold"],
            enable_chunked_prefill=True,
            async_scheduling=scenario["async_scheduling"],
            is_encoder_decoder=False,
            policy=scenario["policy"],
        ),
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
        **extra,
    )
    # the CPU's executor turns it off, where a GPU's would not
    config.scheduler_config.async_scheduling = scenario["async_scheduling"]
    cache.num_gpu_blocks = scenario["kv_blocks"]
    groups = [KVCacheGroupSpec([f"layer {index}"], spec_of(group)) for index, group in enumerate(scenario["groups"])]
    kind = AsyncScheduler if scenario["async_scheduling"] else Scheduler
    return kind(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=scenario["kv_blocks"],
            kv_cache_tensors=[],
            kv_cache_groups=groups,
            prefix_cache_retention_interval=cache.prefix_cache_retention_interval,
        ),
        log_stats=True,
        structured_output_manager=StructuredOutputManager(config),
        block_size=block_tokens,
        hash_block_size=scenario["hash_tokens"],
    )


def spec_of(group: dict[str, Any]) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec

    size = group["block_tokens"]
    if group["kind"] == "full":
        return FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=torch.float32)
    if group["kind"] == "window":
        return SlidingWindowSpec(
            block_size=size,
            num_kv_heads=1,
            head_size=1,
            dtype=torch.float32,
            sliding_window=group["window_tokens"] + 1,
        )
    return MambaSpec(block_size=size, shapes=((size,),), dtypes=(torch.float32,), mamba_cache_mode="align")


def token_of(text: str, index: int) -> int:
    """The token at a place of a text; the same for everyone who quotes it."""
    return (hash_of(text) + index) % (1 << 40)


def hash_of(text: str) -> int:
    import zlib

    return zlib.crc32(text.encode()) << 8


def make_request(request: dict[str, Any], hash_tokens: int) -> Any:
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)
    prompt = [token_of(text, index) for text, tokens in request["segments"] for index in range(tokens)]
    return Request(
        request_id=str(request["id"]),
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(max_tokens=request["output"], ignore_eos=True, temperature=0),
        pooling_params=None,
        block_hasher=get_request_block_hasher(hash_tokens, sha256),
        priority=request["priority"],
        arrival_time=float(1000 * request["turn"] + request["id"]),
    )


if __name__ == "__main__":
    main()
