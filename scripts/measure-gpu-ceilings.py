#!/usr/bin/env python3
"""Measure what the GPUs here can do at best: device copies, matrix products, all-reduce between them.

    scripts/measure-gpu-ceilings.py OUT.jsonl

One JSON line for each number, in microseconds, each the median of several timings by CUDA events after warm-up.
Matrix operands are random, since zeros run faster than real data. Needs PyTorch with CUDA, nothing else.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ROWS = (1, 16, 64, 128, 256, 512, 1024, 4096, 8192)
SHAPES = {
    "llama8b gate_up": (28672, 4096),
    "llama8b down": (4096, 14336),
    "llama8b qkv": (6144, 4096),
    "square 8192": (8192, 8192),
}
MESSAGE_BYTES = tuple(8192 * 4**power for power in range(9))  # 8 KiB to 512 MiB


def microseconds(work: Callable[[], Any], *, repeat: int = 7, inner: int = 10) -> float:
    """Median over `repeat` of the mean time of `inner` calls."""
    for _ in range(5):
        work()
    times = []
    for _ in range(repeat):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(inner):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / inner * 1e3)
    return round(statistics.median(times), 3)


def graphed(work: Callable[[], Any], *, inner: int = 10) -> Callable[[], Any]:
    """`inner` calls captured as one CUDA graph, which leaves the launch from the host out of the timing."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL has a watchdog thread
        for _ in range(inner):
            work()
    return graph.replay


def append(path: str, row: dict[str, Any]) -> None:
    with Path(path).open("a") as out:
        out.write(json.dumps(row) + "\n")


def copies(path: str) -> None:
    source = torch.empty(4 << 30, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    took, moved = microseconds(lambda: target.copy_(source)), 2 * source.numel()
    row = {"what": "device copy", "bytes_read_and_written": moved, "us": took, "gb_per_s": round(moved / took / 1e3, 1)}
    append(path, row)


def products(path: str) -> None:
    for name, (columns, inner) in SHAPES.items():
        weights = [
            torch.randn(columns, inner, dtype=torch.bfloat16, device="cuda") for _ in range(4)
        ]  # more than the L2 holds
        for rows in ROWS:
            operand = torch.randn(rows, inner, dtype=torch.bfloat16, device="cuda")
            out = torch.empty(rows, columns, dtype=torch.bfloat16, device="cuda")
            replay = graphed(lambda o=operand, w=weights, r=out: [torch.mm(o, each.T, out=r) for each in w], inner=3)
            took = microseconds(replay, inner=3) / 12
            flops, moved = 2 * rows * columns * inner, 2 * (columns * inner + rows * (columns + inner))
            row = {
                "what": "bf16 matrix product",
                "shape": name,
                "m": rows,
                "n": columns,
                "k": inner,
                "us": round(took, 3),
            }
            rates = {"tflop_per_s": round(flops / took / 1e6, 1), "gb_per_s": round(moved / took / 1e3, 1)}
            append(path, row | rates)


def one_gpu(rank: int, path: str) -> None:
    torch.cuda.set_device(rank)
    copies(path)
    products(path)


def each_rank(rank: int, world: int, path: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    for size in MESSAGE_BYTES:
        message = torch.ones(size // 2, dtype=torch.bfloat16, device="cuda")
        reduce = partial(dist.all_reduce, message, op=dist.ReduceOp.MAX)  # a sum repeated this often would overflow
        row = {"what": "nccl all-reduce", "gpus": world, "bytes": size, "us": microseconds(reduce)}
        took = round(microseconds(graphed(reduce), inner=3) / 10, 3)
        bus = round(size * 2 * (world - 1) / world / took / 1e3, 1)
        if rank == 0:
            append(path, row | {"graph_us": took, "bus_gb_per_s": bus})
    dist.destroy_process_group()


def main() -> None:
    path, gpus = sys.argv[1], torch.cuda.device_count()
    torch.multiprocessing.spawn(one_gpu, (path,), 1)
    if gpus > 1:
        torch.multiprocessing.spawn(each_rank, (gpus, path), gpus)


if __name__ == "__main__":
    main()
