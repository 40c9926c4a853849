#!/usr/bin/env python3
"""Ask a real vLLM, on the GPUs of this machine, how much memory a model takes and how long its steps last.

    scripts/measure-vllm-gpu.py --configs DIR --out DIR [--deadline-s 3600] CASE...

Weights are random (`load_format=dummy`), shapes are real: only a `config.json` of each model is needed, named
ORGANISATION--MODEL_config.json in the folder given by --configs. A case that needs fewer GPUs than there are shares the
machine with others, each on GPUs of its own. One JSON row for each case is appended to OUT/rows.jsonl as soon as the
case ends, whatever its outcome; logs stay beside it. CASES below says what there is.

Two clocks are kept apart, both read by the client of the engine, in the way a server would see them:

* prefill: the wall time of one `generate` of a single token for the whole batch, scheduling included;
* decode: the time between two consecutive steps in which every request of the batch got a token (median, p10 and p90
  over DECODE_STEPS of them, after a third as many that are not counted).

With data parallelism each rank serves a batch of its own, all of the same size and at the same time; the runs are those
of rank 0, `runs_of_other_ranks` beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DECODE_STEPS = 32
CHEAP_PREFILL_TOKENS = 66_000  # up to here a point is prefilled three times, beyond it once
CHEAP_DECODE_TOKENS = 10_000  # up to here a point is decoded three times, beyond it once
UTILIZATION = 0.90
# Multicast all-reduce is off: it needs a fabric set-up that a shared machine may not have. The other switches keep the
# engine from reaching for a network, and let this script ask each worker for its bytes.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_COLOR": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_DEEP_GEMM_WARMUP": "skip",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
}
GATE_FACTOR = 1e5  # scores of random weights differ by some 1e-5
SMALL_SCALE = 115  # as an exponent, E8M0: 2 ** -12
GRIDS: dict[str, tuple[tuple[int, int], ...]] = {  # (sequences, prompt tokens of each), cheap ones first
    "none": (),
    "full": (
        *((1, 128), (1, 512), (1, 1024), (1, 2048), (1, 4096), (1, 8192), (2, 1024), (4, 1024), (8, 1024), (16, 1024)),
        *((32, 128), (128, 128), (256, 128), (32, 1024), (64, 1024), (1, 16384), (8, 4096), (128, 1024), (8, 16384)),
        *((32, 4096), (256, 1024)),
    ),
    "sixty-four": (  # as many sequences as `max_num_seqs` lets run together
        *((1, 128), (1, 1024), (1, 8192), (8, 1024), (32, 1024), (64, 128), (1, 16384), (64, 1024), (8, 8192)),
        (1, 32768),
    ),
    "few": (  # for models whose kernels compile on first use, each size its own
        *((1, 128), (64, 128), (1, 1024), (8, 1024), (32, 1024), (1, 8192), (64, 1024), (1, 16384), (8, 8192)),
    ),
    "short": (
        *((1, 128), (1, 1024), (1, 8192), (8, 1024), (32, 1024), (128, 128), (1, 16384), (64, 1024), (8, 8192)),
        *((128, 1024), (256, 1024)),
    ),
}

WARM_UPS = (((1, 8192), (64, 128)), ((1, 128), (64, 128)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One engine start: a model, perhaps shortened, and the settings it starts with."""

    config: str
    layers: int | None = None
    tp: int = 1
    pp: int = 1
    dp: int = 1
    grid: str = "short"
    limit_s: float = 300
    alone: bool = False  # one rank of the layout, on one GPU, collectives doing nothing: memory only
    until_pool: bool = False  # stop once the KV pool is allocated, before kernels warm up and graphs are captured
    spread: bool = False  # routers that pick experts by the token, see `spread_routers`
    engine: dict[str, Any] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        return 1 if self.alone else self.tp * self.pp * self.dp


SERVE = {"max_num_batched_tokens": 8192}  # what `vllm serve` takes on an H200; the offline class would take 16384
LLAMA, QWEN8, QWEN30 = "meta-llama--Meta-Llama-3.1-8B", "Qwen--Qwen3-8B", "Qwen--Qwen3-30B-A3B"
LLAMA70, QWEN235 = "meta-llama--Meta-Llama-3.1-70B", "Qwen--Qwen3-235B-A22B"
KIMI, V3 = "moonshotai--Kimi-Linear-48B", "deepseek-ai--DeepSeek-V3"
FLASH, PRO = "deepseek-ai--DeepSeek-V4-Flash", "deepseek-ai--DeepSeek-V4-Pro"
EP = {"enable_expert_parallel": True}
LONG = {"max_model_len": 131072, "max_num_seqs": 64, **SERVE}
V4 = {"kv_cache_dtype": "fp8", "block_size": 256, **LONG}
EAGER = {"enforce_eager": True}
FEW_GRAPHS = {
    "compilation_config": {"cudagraph_capture_sizes": [1, 8, 32, 64, 128, 256]}
}  # those that the grid replays
FOUR_GRAPHS = {"compilation_config": {"cudagraph_capture_sizes": [1, 8, 32, 64]}}


def rank_of(config: str, tp: int, engine: dict[str, Any]) -> Case:
    """Rank 0 of a whole model that needs more GPUs than are here."""
    return Case(config=config, tp=tp, grid="none", limit_s=170, alone=True, until_pool=True, engine=engine)


CASES: dict[str, Case] = {
    "llama70b-tp8-alone": rank_of(LLAMA70, 8, {"max_model_len": 32768, **SERVE}),
    "llama8b-tp2-alone": rank_of(LLAMA, 2, {"max_model_len": 32768, **SERVE}),
    "qwen30b-tp2-ep-alone": rank_of(QWEN30, 2, {"max_model_len": 32768, **EP, **SERVE}),
    "qwen235b-tp8-alone": rank_of(QWEN235, 8, {"max_model_len": 32768, **SERVE}),
    "qwen235b-tp8-ep-alone": rank_of(QWEN235, 8, {"max_model_len": 32768, **EP, **SERVE}),
    "kimi-linear-tp2-alone": rank_of(KIMI, 2, LONG),
    "kimi-linear-tp8-alone": rank_of(KIMI, 8, LONG),
    "v3-tp8-alone": rank_of(V3, 8, {"max_model_len": 65536, **SERVE}),
    "v4-flash-tp2-ep-alone": rank_of(FLASH, 2, {**V4, **EP, **EAGER}),
    "v4-flash-tp8-alone": rank_of(FLASH, 8, {**V4, **EAGER}),
    "v4-pro-tp8-alone": rank_of(PRO, 8, {**V4, **EAGER}),
    "v4-pro-tp8-ep-alone": rank_of(PRO, 8, {**V4, **EP, **EAGER}),
    "llama8b-tp1": Case(config=LLAMA, grid="full", engine={"max_model_len": 32768, **SERVE}),
    "llama8b-tp1-16k": Case(config=LLAMA, grid="none", engine={"max_model_len": 32768}),
    "llama8b-tp1-256seqs": Case(
        config=LLAMA, grid="none", engine={"max_model_len": 32768, "max_num_seqs": 256, **SERVE}
    ),
    "llama8b-tp2": Case(config=LLAMA, tp=2, engine={"max_model_len": 32768, **SERVE}),
    "qwen8b-tp1": Case(config=QWEN8, grid="full", engine={"max_model_len": 32768, **SERVE}),
    "qwen30b-tp1": Case(config=QWEN30, grid="full", engine={"max_model_len": 32768, **SERVE}),
    "qwen30b-tp2-ep": Case(config=QWEN30, tp=2, engine={"max_model_len": 32768, **EP, **SERVE}),
    "qwen30b-tp2": Case(config=QWEN30, tp=2, engine={"max_model_len": 32768, **SERVE}),
    "kimi-linear-tp1": Case(config=KIMI, grid="sixty-four", spread=True, engine=LONG),
    "kimi-linear-tp2": Case(config=KIMI, tp=2, grid="sixty-four", spread=True, engine=LONG),
    "v3-6layers-tp2": Case(config=V3, layers=6, tp=2, spread=True, engine={"max_model_len": 65536, **SERVE}),
    "v3-6layers-tp1": Case(config=V3, layers=6, spread=True, engine={"max_model_len": 65536, **SERVE, **FEW_GRAPHS}),
    "llama8b-pp2": Case(config=LLAMA, pp=2, engine={"max_model_len": 32768, **SERVE}),
    "qwen30b-dp2-ep": Case(config=QWEN30, dp=2, engine={"max_model_len": 32768, **EP, **SERVE}),
    "v4-flash-8layers-tp1-timed": Case(
        config=FLASH, layers=8, grid="sixty-four", limit_s=385, spread=True, engine={**V4, **FEW_GRAPHS}
    ),
    "v4-flash-8layers-tp1": Case(
        config=FLASH, until_pool=True, layers=8, grid="none", limit_s=400, engine={**V4, **EAGER}
    ),
    "v4-pro-6layers-tp1": Case(config=PRO, until_pool=True, layers=6, grid="none", limit_s=400, engine={**V4, **EAGER}),
    "v4-flash-tp2-ep-timed": Case(
        config=FLASH, tp=2, grid="few", limit_s=900, spread=True, engine={**V4, **EP, **FOUR_GRAPHS}
    ),
    "v4-flash-tp2-ep": Case(
        config=FLASH, until_pool=True, tp=2, grid="none", limit_s=450, engine={**V4, **EP, **EAGER}
    ),
}


def overrides(case: Case, config: dict[str, Any]) -> dict[str, Any]:
    """The fields that a shortened model changes; V4 lists a compression for each layer and one for its MTP layer."""
    if case.layers is None:
        return {}
    changed: dict[str, Any] = {"num_hidden_layers": case.layers}
    if "compress_ratios" in config:
        changed["compress_ratios"] = [*config["compress_ratios"][: case.layers], 0]
    return changed


def variables(case: Case, dp_rank: int = 0) -> dict[str, str]:
    """The environment of a case's process; a rank alone needs what a launcher such as torchrun would have set."""
    if case.dp > 1:
        ranks = {"VLLM_DP_SIZE": str(case.dp), "VLLM_DP_RANK": str(dp_rank), "VLLM_DP_RANK_LOCAL": str(dp_rank)}
        return ENVIRONMENT | ranks | {"VLLM_DP_MASTER_IP": "127.0.0.1", "VLLM_DP_MASTER_PORT": "29544"}
    if not case.alone:
        return ENVIRONMENT
    launcher = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(case.tp), "MASTER_ADDR": "127.0.0.1"}
    return ENVIRONMENT | launcher | {"MASTER_PORT": "29533", "VLLM_DISABLE_PYNCCL": "1"}


def settings(case: Case) -> dict[str, Any]:
    """Everything passed to `vllm.LLM` but the path of the model."""
    fixed: dict[str, Any] = {
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "seed": 0,
        "enable_prefix_caching": False,
    }
    if case.tp > 1:
        fixed["compilation_config"] = {"pass_config": {"fuse_allreduce_rms": False}}  # the fused kernel uses multicast
    if case.pp > 1:
        fixed["pipeline_parallel_size"] = case.pp
    if case.alone:
        fixed |= {"distributed_executor_backend": "external_launcher", "disable_custom_all_reduce": True}
    compilation = {**fixed.get("compilation_config", {}), **case.engine.get("compilation_config", {})}
    engine = {**case.engine, "compilation_config": compilation} if compilation else case.engine
    return {"tensor_parallel_size": case.tp, "gpu_memory_utilization": UTILIZATION, **fixed, **engine}


# --- inside the case's own process ---------------------------------------------------------------------------------


def leave_alone(world: int) -> None:
    """Make this process rank 0 of a world whose other ranks do not exist: PyTorch's fake backend answers for them.

    Weights, activations and the KV cache of the rank are then as in the real world; communication buffers are not there
    and what a collective would have brought is not either, so nothing computed means anything.
    """
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from vllm.distributed import parallel_state
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    begin, group = dist.init_process_group, dist.new_group
    dist.init_process_group = lambda *_, **__: begin(backend="fake", store=FakeStore(), rank=0, world_size=world)
    dist.new_group = lambda ranks=None, *_, **__: group(ranks, backend="fake")
    parallel_state._node_count = lambda _: 1
    MessageQueue.create_from_process_group = staticmethod(lambda *_, **__: None)


def spread_routers() -> None:
    """Make dummy routers pick experts by the token.

    A random correction bias is far larger than the scores of random weights, so that all tokens would go to the same
    experts: it becomes zero, and gates grow until scores differ as a trained router's do. FP8 weights, which the dummy
    loader rounds to zero, and FP4 weights, which it leaves as the memory was, become random too.
    """
    import torch
    from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

    load = DummyModelLoader.load_weights

    @torch.no_grad()
    def spreading(loader: Any, model: Any, config: Any) -> None:
        load(loader, model, config)
        for name, tensor in model.state_dict().items():
            if name.endswith("e_score_correction_bias"):
                tensor.zero_()
            elif name.endswith(".gate.weight"):
                tensor.mul_(GATE_FACTOR)
            elif tensor.dtype is torch.uint8:
                tensor.fill_(SMALL_SCALE) if "scale" in name else tensor.random_(0, 256)
            elif tensor.dtype is torch.float8_e4m3fn:
                for part in tensor if tensor.dim() > 2 else [tensor]:
                    part.copy_(torch.randn(part.shape, dtype=torch.float16, device=part.device).to(tensor.dtype))

    DummyModelLoader.load_weights = spreading


def warm_up_less(hidden_size: int, experts: int) -> None:
    """Compile ahead only kernels of this model and few batch sizes; what else is met compiles on first use."""
    from vllm.model_executor.warmup import deepseek_v4_mhc_warmup, kernel_warmup

    shapes = kernel_warmup._LL_BF16_WARMUP_MODEL_SHAPES
    kernel_warmup._LL_BF16_WARMUP_MODEL_SHAPES = tuple(shape for shape in shapes if shape == (hidden_size, experts))
    kernel_warmup._LL_BF16_WARMUP_M_RANGE = (1, 2, 4, 8, 16)
    deepseek_v4_mhc_warmup._select_mhc_warmup_token_sizes = lambda **_: [1, 64, 8192]


def note_ranks(work: Path, name: str, first: int) -> None:
    """Have each worker write its facts as soon as its KV cache exists; workers are forked, so they inherit this."""
    from vllm.v1.worker.gpu_worker import Worker

    initialize = Worker.initialize_from_config

    def noting(worker: Any, cache: Any) -> None:
        initialize(worker, cache)
        path = work / f"{name}.rank{first + worker.rank}.json"
        path.with_suffix(".new").write_text(json.dumps(worker_facts(worker)))
        path.with_suffix(".new").replace(path)

    Worker.initialize_from_config = noting


def worker_facts(worker: Any) -> dict[str, Any]:
    """Run in each worker: bytes as the worker counted them, parameters by name, and the KV cache it was given."""
    import re as regex

    import torch

    runner, snapshot = worker.model_runner, worker.init_snapshot
    named: dict[str, list[Any]] = {}
    seen: set[int] = set()
    kinds = {"parameter": worker.get_model().named_parameters(), "buffer": worker.get_model().named_buffers()}
    for kind, tensors in kinds.items():
        for name, tensor in tensors:
            if not tensor.is_cuda or not tensor.numel() or tensor.data_ptr() in seen:
                continue
            seen.add(tensor.data_ptr())
            key = f"{kind} {regex.sub(r'[.][0-9]+[.]', '.*.', name)} {str(tensor.dtype).removeprefix('torch.')}"
            entry = named.setdefault(key, [0, 0])
            entry[0] += 1
            entry[1] += tensor.numel() * tensor.element_size()
    cache = runner.kv_cache_config
    free, _total = torch.cuda.mem_get_info()
    return {
        "rank": int(worker.rank),
        "device_total_bytes": int(snapshot.total_memory),
        "device_free_at_start_bytes": int(snapshot.free_memory),
        "requested_bytes": int(worker.requested_memory),
        "weights_bytes": int(runner.model_memory_usage),
        "peak_activation_bytes": int(worker.peak_activation_memory),
        "non_torch_bytes": int(worker.non_torch_memory),
        "cudagraph_estimated_bytes": int(worker.cudagraph_memory_estimate),
        "kv_pool_bytes": int(worker.available_kv_cache_memory_bytes),
        "device_free_when_ready_bytes": int(free),
        "torch_reserved_when_ready_bytes": int(torch.cuda.memory_reserved()),
        "num_blocks": int(cache.num_blocks),
        "kv_groups": [
            {
                "kind": type(group.kv_cache_spec).__name__,
                "layers": len(group.layer_names),
                "block_tokens": int(group.kv_cache_spec.block_size),
                "page_bytes": int(group.kv_cache_spec.page_size_bytes),
            }
            for group in cache.kv_cache_groups
        ],
        "tensors": named,
        "parameter_bytes": sum(size for key, (_, size) in named.items() if key.startswith("parameter")),
        "buffer_bytes": sum(size for key, (_, size) in named.items() if key.startswith("buffer")),
    }


def resolved(llm: Any) -> dict[str, Any]:
    """Settings that the engine chose for itself."""
    config = llm.llm_engine.vllm_config
    compilation = config.compilation_config
    return {
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "async_scheduling": bool(config.scheduler_config.async_scheduling),
        "block_size": config.cache_config.block_size,
        "cache_dtype": str(config.cache_config.cache_dtype),
        "cudagraph_mode": str(compilation.cudagraph_mode),
        "max_cudagraph_capture_size": getattr(compilation, "max_cudagraph_capture_size", None),
        "v2_model_runner": bool(config.use_v2_model_runner),
    }


def prefill_s(llm: Any, prompts: list[list[int]]) -> float:
    """Seconds from handing over the prompts to the first token of all of them."""
    from vllm import SamplingParams

    one = SamplingParams(max_tokens=1, ignore_eos=True, temperature=1.0, detokenize=False)
    started = time.perf_counter()
    llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], one, use_tqdm=False)
    return time.perf_counter() - started


def decode_intervals_s(llm: Any, prompts: list[list[int]], budget: int) -> list[float]:
    """Seconds between consecutive steps that gave every request a token, the first third left out as warm-up.

    With a pipeline requests may take turns: then between the tokens of one of them, while all others decode too.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    wanted, warm_up = DECODE_STEPS, DECODE_STEPS // 3
    prefill_steps = -(-sum(map(len, prompts)) // budget)
    tokens = wanted + warm_up + 2 * prefill_steps + 4  # the first requests decode along while the last are prefilled
    engine = llm.llm_engine
    stages = engine.vllm_config.parallel_config.pipeline_parallel_size
    names = [f"decode-{time.monotonic_ns()}-{number}" for number in range(len(prompts))]
    for name, prompt in zip(names, prompts, strict=True):
        sampling = SamplingParams(
            max_tokens=tokens, ignore_eos=True, temperature=1.0, detokenize=False, output_kind=RequestOutputKind.DELTA
        )
        engine.add_request(name, {"type": "token", "prompt_token_ids": prompt}, sampling)
    intervals, last, begun, over = [], None, set(), False
    while engine.has_unfinished_requests():
        outputs = engine.step()
        now = time.perf_counter()
        if not outputs:
            continue
        seen = {output.request_id for output in outputs}
        begun |= seen
        over = over or any(output.finished for output in outputs)
        whole = len(begun if stages > 1 else seen) == len(prompts) and not over
        if stages > 1 and names[-1] not in seen:
            continue
        if whole and last is not None:
            intervals.append(now - last)
        last = now if whole else None
    return intervals[warm_up : warm_up + wanted]


def measure(llm: Any, point: tuple[int, int], vocabulary: int, seed: random.Random) -> dict[str, Any]:
    """Both clocks at one point; each repetition has prompts of its own."""
    sequences, length = point
    tokens = sequences * length
    budget = llm.llm_engine.vllm_config.scheduler_config.max_num_batched_tokens

    def prompts() -> list[list[int]]:
        return [[seed.randrange(10, vocabulary - 1000) for _ in range(length)] for _ in range(sequences)]

    prefills = [prefill_s(llm, prompts()) for _ in range(3 if tokens <= CHEAP_PREFILL_TOKENS else 1)]
    decodes = [decode_intervals_s(llm, prompts(), budget) for _ in range(3 if tokens <= CHEAP_DECODE_TOKENS else 1)]
    steps = sorted(step for run in decodes for step in run)
    row: dict[str, Any] = {"batch": sequences, "in": length}
    row |= {"prefill_s": round(statistics.median(prefills), 5), "prefill_runs": len(prefills)}
    row |= {"prefill_spread_s": round(max(prefills) - min(prefills), 5), "decode_steps": len(steps)}
    if len(steps) >= 10:
        tenth = statistics.quantiles(steps, n=10)
        row |= {"tpot_ms": round(statistics.median(steps) * 1e3, 4)}
        row |= {"tpot_p10_ms": round(tenth[0] * 1e3, 4), "tpot_p90_ms": round(tenth[-1] * 1e3, 4)}
        row |= {"context_tokens": length + DECODE_STEPS // 2 + DECODE_STEPS // 3}
    return row


def said_by(work: Path, name: str, dp_rank: int) -> Path:
    """The file that a case's process writes what it learns to."""
    return work / (f"{name}.dp{dp_rank}.json" if dp_rank else f"{name}.json")


def wait_for(go: Path) -> float:
    """Until when to run, once the parent says that it is this case's turn."""
    while not go.exists():
        time.sleep(0.05)
    return float(go.read_text())


def run_case(name: str, configs: Path, work: Path, dp_rank: int) -> None:
    """Start the engine, write what it says after every step, and leave without its slow farewell."""
    case, said = CASES[name], said_by(work, name, dp_rank)
    config = json.loads((configs / f"{case.config}_config.json").read_text())
    config.pop("auto_map", None)  # no remote code: the engine has its own classes for all of these
    config |= overrides(case, config)
    folder = work / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"config.json.{dp_rank}"
    beside.write_text(json.dumps(config))
    beside.replace(folder / "config.json")

    import torch
    import vllm

    note_ranks(work, name, dp_rank * case.tp * case.pp)
    warm_up_less(config["hidden_size"], config.get("n_routed_experts") or 0)
    if case.spread:
        spread_routers()
    until, started = wait_for(work / f"{name}.go"), time.time()
    if case.alone:
        leave_alone(case.tp)
    row: dict[str, Any] = {"torch": torch.__version__, "vllm": vllm.__version__}

    def save() -> None:
        said.with_suffix(".new").write_text(json.dumps(row))
        said.with_suffix(".new").replace(said)

    save()
    llm = vllm.LLM(model=str(folder), **settings(case))
    row |= {"startup_s": round(time.time() - started, 1), "resolved": resolved(llm), "runs": []}
    save()
    row["ranks"] = llm.collective_rpc(worker_facts)
    save()
    seed = random.Random(dp_rank)
    if GRIDS[case.grid]:
        for point in WARM_UPS[case.grid == "few"]:  # kernels that compile on first use
            measure(llm, point, config["vocab_size"], seed)
    for point in GRIDS[case.grid]:
        if time.time() > until - 20:
            row["points_left_out"] = len(GRIDS[case.grid]) - len(row["runs"])
            break
        row["runs"].append(measure(llm, point, config["vocab_size"], seed))
        print("POINT", row["runs"][-1], flush=True)
        save()
    row["finished"] = True
    save()
    os._exit(0)


# --- the parent: start cases, stop them in time, keep rows ----------------------------------------------------------

GIB = r"([0-9.]+)\s*GiB"
PRINTED = {  # what the engine prints, rounded as it prints it
    "weights_gib": rf"Model loading took {GIB}",
    "kv_pool_gib": rf"Available KV cache memory: {GIB}",
    "kv_tokens": r"GPU KV cache size: ([0-9,]+) tokens",
    "max_concurrency": r"Maximum concurrency for [0-9,]+ tokens per request: ([0-9.]+)x",
    "cudagraph_gib": rf"Graph capturing finished in [0-9.]+ secs?, took {GIB}",
    "cudagraph_estimated_gib": rf"CUDA graph pool memory: .*?\(actual\), {GIB} \(estimated\)",
    "peak_activation_gib": rf"weight, {GIB}\s+for peak activation",
    "non_torch_gib": rf"for peak activation, {GIB} for non-torch",
    "device_free_gib": r"Free memory on device \(([0-9.]+)/",
    "device_total_gib": r"Free memory on device \([0-9.]+/([0-9.]+) GiB\)",
    "attention_block_tokens": r"Setting attention block size to ([0-9]+) tokens",
    "mamba_page_padding_percent": r"Padding mamba page size by ([0-9.]+)%",
    "compile_s": r"torch.compile (?:and initial profiling/warmup run together )?took ([0-9.]+) s",
    "graph_capture_s": r"Graph capturing finished in ([0-9.]+) sec",
}
CHOICES = re.compile(r"Using .*(?:backend|kernel|Backend|attention)|layout|padding layers", re.ASCII)


def printed(log: str) -> dict[str, float]:
    """The numbers of PRINTED found in a log; the last of each, for a later line corrects an earlier one."""
    found = {key: re.findall(pattern, log) for key, pattern in PRINTED.items()}
    return {key: float(values[-1].replace(",", "")) for key, values in found.items() if values}


def outcome(code: int | None, log: str, running: Running) -> str:
    if code == 0:
        return "ok"
    if running.pool_allocated:
        return "ok, stopped once the KV pool was allocated"
    lines = [line for line in log.splitlines() if line.strip()]
    if code is None:
        return f"stopped after {running.limit_s:.0f} s; last line: {lines[-1][:300] if lines else '(none)'}"
    errors = [line for line in lines if re.search(r"(Error|Exception|error):", line)]
    return f"exit status {code}: {(errors or lines or ['(no output)'])[-1][:400]} | first: {(errors or ['-'])[0][:400]}"


def box() -> dict[str, Any]:
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    gpus = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    return {"gpus": gpus, "cpu_cores": os.cpu_count(), "python": sys.version.split()[0]}


@dataclass(slots=True, kw_only=True)
class Running:
    name: str
    processes: list[subprocess.Popen[bytes]]
    gpus: list[str]
    began: float = 0.0
    limit_s: float = 0.0
    pool_allocated: bool = False

    def code(self) -> int | None:
        """How rank 0 ended, or the first that failed; None while all is well and under way."""
        codes = [process.poll() for process in self.processes]
        return next((code for code in codes if code), codes[0])

    def kill(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def prepare(name: str, gpus: list[str], args: argparse.Namespace) -> Running:
    """Processes that have imported all they need and wait; the GPUs are still another case's."""
    case = CASES[name]
    for old in (*args.out.glob(f"{name}.*json"), args.out / f"{name}.go"):
        old.unlink(missing_ok=True)
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(gpus), "PYTHONUNBUFFERED": "1"}
    own = [sys.executable, str(Path(__file__).resolve()), "--configs", str(args.configs), "--out", str(args.out)]
    processes = []
    with (args.out / f"{name}.log").open("wb") as log:
        for rank in range(case.dp):
            process = subprocess.Popen(
                [*own, "--child", str(rank), name],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | variables(case, rank) | visible,
                start_new_session=True,  # so that one kill reaches the engine's own processes
            )
            processes.append(process)
    return Running(name=name, processes=processes, gpus=gpus)


def start(running: Running, args: argparse.Namespace, ends: float) -> None:
    running.began = time.time()
    running.limit_s = min(CASES[running.name].limit_s, ends - running.began)
    go = args.out / f"{running.name}.go"
    go.with_suffix(".going").write_text(str(running.began + running.limit_s))
    go.with_suffix(".going").replace(go)
    where = ",".join(running.gpus)
    print(f"start {running.name} on GPU {where}, at most {running.limit_s:.0f} s", file=sys.stderr, flush=True)


def finish(running: Running, code: int | None, args: argparse.Namespace, machine: dict[str, Any]) -> None:
    """Stop what is left of a case and append its row."""
    running.kill()
    name, case = running.name, CASES[running.name]
    log = (args.out / f"{name}.log").read_text(errors="replace")
    said = [json.loads(path.read_text()) for rank in range(case.dp) if (path := said_by(args.out, name, rank)).exists()]
    config = json.loads((args.configs / f"{case.config}_config.json").read_text())
    row = {
        "case": name,
        "model": case.config.replace("--", "/"),
        "config_overrides": overrides(case, config),
        "layout": {"tp": case.tp, "pp": case.pp, "dp": case.dp, "ep": bool(case.engine.get("enable_expert_parallel"))},
        "settings": settings(case),
        "environment": variables(case),
        "one_rank_alone": case.alone,
        "routers_spread": case.spread,
        "command": f"scripts/measure-vllm-gpu.py --configs CONFIGS --out OUT {name}",
        "box": machine,
        "outcome": outcome(code, log, running),
        "wall_s": round(time.time() - running.began, 1),
        "printed": printed(log),
        "chosen": sorted({re.sub(r"^.*?\] ", "", line)[:200] for line in log.splitlines() if CHOICES.search(line)})[
            :20
        ],
        **(said[0] if said else {}),
    }
    if case.dp > 1:
        row["ranks"] = [rank for part in said for rank in part.get("ranks", ())]
        row["runs_of_other_ranks"] = [part.get("runs", []) for part in said[1:]]
    noted = sorted(args.out.glob(f"{name}.rank*.json"))
    if not row.get("ranks") and noted:
        row["ranks"] = [json.loads(path.read_text()) for path in noted]
    with (args.out / "rows.jsonl").open("a") as rows:
        rows.write(json.dumps(row) + "\n")
    print(f"{name}: {row['outcome'][:300]} ({row['wall_s']} s) {row['printed']}", file=sys.stderr, flush=True)


def run_all(args: argparse.Namespace) -> None:
    machine, ends = box(), time.time() + args.deadline_s
    everything = [str(index) for index in range(len(machine["gpus"]))]
    free, waiting, active = list(everything), list(args.cases), list[Running]()
    ahead: Running | None = None
    while waiting or active:
        if waiting and CASES[waiting[0]].gpus <= len(free) and ends - time.time() > args.least_s:
            name = waiting.pop(0)
            taken, free = free[: CASES[name].gpus], free[CASES[name].gpus :]
            running, ahead = ahead or prepare(name, taken, args), None
            start(running, args, ends)
            active.append(running)
            continue
        if waiting and not active:
            print(f"not started, no time or too few GPUs: {' '.join(waiting)}", file=sys.stderr)
            break
        if waiting and ahead is None and CASES[waiting[0]].gpus == len(everything):
            ahead = prepare(waiting[0], everything, args)  # its imports take as long as a case's first steps
        time.sleep(0.5)
        for running in list(active):
            code, case = running.code(), CASES[running.name]
            ranks = len(list(args.out.glob(f"{running.name}.rank*.json")))
            running.pool_allocated = code is None and case.until_pool and ranks == case.gpus
            if code is not None or running.pool_allocated or time.time() - running.began > running.limit_s:
                finish(running, code, args, machine)
                active.remove(running)
                free += running.gpus
    if ahead is not None:
        ahead.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--configs", type=Path, required=True, help="folder of ORGANISATION--MODEL_config.json files")
    parser.add_argument("--out", type=Path, required=True, help="folder for rows.jsonl and logs")
    parser.add_argument("--deadline-s", type=float, default=3600, help="all cases end by then")
    parser.add_argument("--least-s", type=float, default=60, help="start no case with less time than this left")
    parser.add_argument("--child", type=int, metavar="DP_RANK", help=argparse.SUPPRESS)
    parser.add_argument("cases", nargs="+", choices=list(CASES), metavar="CASE", help=", ".join(CASES))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.child is not None:
        run_case(args.cases[0], args.configs, args.out, args.child)
    else:
        run_all(args)


if __name__ == "__main__":
    main()
