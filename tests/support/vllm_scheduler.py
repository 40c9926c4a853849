"""Runs vLLM's own scheduler, without a model, on scenarios: a program of its own, because vLLM wants its own process.

Reads JSON from standard input, ``{"model": PATH, "scenarios": [...]}``, and prints one trace for each scenario, in the
form that ``support.scheduling`` describes. One step is under way at a time, and the next is scheduled when it has
ended; where there are more, vLLM's own loop around the scheduler decides when that is, in virtual time.
"""

from __future__ import annotations

import json
import math
import os
import queue
import sys
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}


def main() -> None:
    asked = json.load(sys.stdin)
    answers = [
        (TimedPlay if scenario["step_s"] else Play)(asked["model"], scenario).trace() for scenario in asked["scenarios"]
    ]
    # vLLM prints on standard output as it loads, so the answer is marked
    print("TRACES " + json.dumps(answers))


class Play:
    """One scenario under vLLM's scheduler."""

    def __init__(self, model: str, scenario: dict[str, Any]) -> None:
        self.scenario = scenario
        self.scheduler = make_scheduler(model, scenario)
        self.arriving = {str(request["id"]): request for request in scenario["requests"]}
        self.leaving = {str(request["id"]): request["leaves"] for request in scenario["requests"] if request["leaves"]}
        self.steps: list[dict[str, Any]] = []
        self.ended = self.preemptions = 0

    def trace(self) -> list[dict[str, Any]]:
        scheduler = self.scheduler
        while self.arriving or scheduler.has_requests():
            self.let_in_and_out()
            output = scheduler.schedule()
            self.preemptions += len(output.preempted_req_ids or ())
            if output.num_scheduled_tokens:
                self.note(output)
                self.end(output)
            elif not scheduler.has_requests() and self.arriving:
                self.ended = min(request["turn"] for request in self.arriving.values())
        return self.steps

    def let_in_and_out(self) -> None:
        from vllm.v1.request import RequestStatus

        for name, request in list(self.arriving.items()):
            if request["turn"] <= self.ended:
                self.scheduler.add_request(
                    make_request(request, self.scenario["hash_tokens"], timed=bool(self.scenario["step_s"]))
                )
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
        from vllm.v1.outputs import DraftTokenIds

        self.ended += 1
        self.scheduler.update_from_output(output, self.result_of(output))
        drafts = self.scenario["draft_tokens"]
        if drafts:
            names = list(output.num_scheduled_tokens)
            self.scheduler.update_draft_token_ids(DraftTokenIds(names, [[1] * drafts for _ in names]))

    def result_of(self, output: Any) -> Any:
        """What a model would have sampled in the step."""
        from vllm.v1.outputs import ModelRunnerOutput

        from roadworthy.twin.config import accepted_drafts

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
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )


class TimedPlay(Play):
    """One scenario under the loop of vLLM's own ``EngineCoreProc`` with its batch queue, in virtual time.

    The engine's workers are stages that a batch passes in turn, each for its share of ``step_s``; nothing else takes
    time but the loop's own sleep. Requests arrive ``at_s``.
    """

    def trace(self) -> list[dict[str, Any]]:
        from vllm.v1.engine import core as engine_core

        self.now_s = 0.0
        self.stage_free_s = [-math.inf] * self.scenario["stages"]
        self.sampled_s: dict[int, float] = {}  # by the number of the scheduler's call
        self.calls = 0
        self.leaving = {name: self.arriving[name]["leaves_s"] for name in self.leaving}
        self.core = core = object.__new__(engine_core.EngineCoreProc)
        core.__dict__ |= {
            "scheduler": self.scheduler,
            "batch_queue": deque(maxlen=self.scenario["depth"]),
            "batch_queue_size": self.scenario["depth"],
            "model_executor": self,
            "is_mm_encoder_only": False,
            "is_pooling_model": False,
            "check_for_draft_tokens": False,
            "async_scheduling": self.scenario["async_scheduling"],
            "log_stats": False,
            "vllm_config": SimpleNamespace(
                observability_config=SimpleNamespace(enable_logging_iteration_details=False)
            ),
            "aborts_queue": queue.Queue(),
            "output_queue": queue.Queue(),
            "_weight_version": 0,
            "step_fn": core.step_with_batch_queue,
        }
        sleep, time.sleep = time.sleep, self.sleep
        try:
            while self.arriving or self.scheduler.has_requests() or core.batch_queue:
                if not self.scheduler.has_requests() and not core.batch_queue:
                    self.now_s = max(self.now_s, min(request["at_s"] for request in self.arriving.values()))
                for name, request in list(self.arriving.items()):
                    if request["at_s"] <= self.now_s:
                        self.scheduler.add_request(
                            make_request(request, self.scenario["hash_tokens"], timed=bool(self.scenario["step_s"]))
                        )
                        del self.arriving[name]
                core.abort_requests(self.gone())
                core._process_engine_step()
        finally:
            time.sleep = sleep
        return self.steps

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def gone(self) -> list[str]:
        """Whose clients have left since this was asked last."""
        names = [name for name, at_s in self.leaving.items() if at_s <= self.now_s and name not in self.arriving]
        for name in names:
            del self.leaving[name]
        return names

    # -- what the core calls of its executor -------------------------------------------------------------------------

    def execute_model(self, output: Any, *, non_block: bool) -> Any:
        self.scheduled = output
        self.calls += 1
        self.preemptions += len(output.preempted_req_ids or ())
        if not output.total_num_scheduled_tokens:
            return Result(self, self.now_s, output, {})
        self.note(output)
        return None

    def sample_tokens(self, grammar: Any, *, non_block: bool) -> Any:
        stages, leaves_s = len(self.stage_free_s), self.now_s
        if self.scenario["async_scheduling"] and stages > 1:
            # `PPHandler.get_prev_sampled_outputs`: the first stage waits for what was sampled a cycle before
            leaves_s = max(leaves_s, self.sampled_s.get(self.calls - stages, -math.inf))
        for stage, free_s in enumerate(self.stage_free_s):
            leaves_s = self.stage_free_s[stage] = max(leaves_s, free_s) + self.scenario["step_s"] / stages
        if self.scheduled.samples:
            self.sampled_s[self.calls] = leaves_s
        return Result(self, leaves_s, self.scheduled, None)


class Result:
    """What a batch will have brought at ``at_s``."""

    def __init__(self, play: TimedPlay, at_s: float, output: Any, samples: Any) -> None:
        self.play, self.at_s, self.output = play, at_s, output
        if samples is not None:
            output.samples = samples

    def result(self) -> Any:
        self.play.now_s = max(self.play.now_s, self.at_s)
        for name in self.play.gone():
            self.play.core.aborts_queue.put_nowait(name)
        return self.play.result_of(self.output)


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
    os.environ.pop("VLLM_USE_V2_MODEL_RUNNER", None)
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
    if scenario["async_scheduling"] and scenario["stages"] > 1:
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"  # what vLLM takes on a GPU
        config.parallel_config.pipeline_parallel_size = scenario["stages"]
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


def make_request(request: dict[str, Any], hash_tokens: int, *, timed: bool) -> Any:
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
        arrival_time=request["at_s"] if timed else float(1000 * request["turn"] + request["id"]),
    )


if __name__ == "__main__":
    main()
