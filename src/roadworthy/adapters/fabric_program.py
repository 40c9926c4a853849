"""Measures with torch alone where perftest and nccl-tests are missing: two ranks on two hosts, or the GPUs of one.

Sent as text to an interpreter on another host (`python -c TEXT pair …`), so it imports nothing of ours and nothing that
Python 3.8 lacks. It prints lines that begin with a mark and ends by itself; whoever started it may end it at any time.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import importlib
import json
import os
import socket
import struct
import sys
import time

MARK, READY = "@@@ measured ", "@@@ ready "
SMALLEST_BYTES, LARGEST_BYTES = 1 << 20, 1 << 28
LARGEST_ON_CPU_BYTES = 1 << 25
SMALL_ROUNDS = 200
SIOCGIFADDR = 0x8915
PATIENCE_S = 60


def say(**fields: object) -> None:
    print(MARK + json.dumps(fields), flush=True)


def interface_towards(peer: str) -> str:
    """Name of the interface that the route to ``peer`` takes; empty when the system does not tell."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((socket.gethostbyname(peer), 9))
            own = probe.getsockname()[0]
            for _, name in socket.if_nameindex():
                asked = struct.pack("256s", name.encode()[:15])
                try:
                    answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, asked)
                except OSError:
                    continue  # an interface without an IPv4 address
                if socket.inet_ntoa(answer[20:24]) == own:
                    return name
    except OSError:
        pass
    return ""


def pair(arguments: argparse.Namespace) -> None:
    """All-reduce between two ranks: the time of a small one, the bus bandwidth of large ones."""
    interface = interface_towards(arguments.peer)
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if interface and not os.environ.get(variable):
            os.environ[variable] = interface
    torch = importlib.import_module("torch")
    dist = importlib.import_module("torch.distributed")
    patience = datetime.timedelta(seconds=PATIENCE_S)
    first = arguments.rank == 0
    store = dist.TCPStore(
        "0.0.0.0" if first else arguments.peer, 0 if first else arguments.port, 2, first, patience, False
    )
    if first:
        print(READY + str(store.port), flush=True)
    dist.init_process_group(arguments.backend, store=store, rank=arguments.rank, world_size=2, timeout=patience)
    on_gpu = arguments.backend == "nccl"
    device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")

    def times(size_bytes: int, rounds: int) -> float:
        """Seconds of one all-reduce of ``size_bytes``."""
        data = torch.ones(max(1, size_bytes // 4), dtype=torch.float32, device=device)
        dist.all_reduce(data)
        settle(torch, on_gpu)
        dist.barrier()
        began = time.perf_counter()
        for _ in range(rounds):
            dist.all_reduce(data)
        settle(torch, on_gpu)
        return (time.perf_counter() - began) / rounds

    small_s = times(4, SMALL_ROUNDS // 10)
    small_s = min(small_s, times(4, agreed(torch, dist, device, small_s, arguments.seconds / 4)))
    say(latency_s=small_s, backend=arguments.backend, interface=interface, torch=str(torch.__version__))
    size = SMALLEST_BYTES
    while size <= (LARGEST_BYTES if on_gpu else LARGEST_ON_CPU_BYTES):
        once_s = times(size, 1)
        rounds = agreed(torch, dist, device, once_s, arguments.seconds / 4)
        each_s = times(size, rounds)
        # bus bandwidth of an all-reduce: size / time * 2 (n - 1) / n, which is size / time for two ranks
        say(bytes_per_s=size / each_s, size_bytes=size, rounds=rounds, backend=arguments.backend)
        size *= 4
    dist.barrier()
    dist.destroy_process_group()


def agreed(torch: object, dist: object, device: object, once_s: float, budget_s: float) -> int:
    """How many rounds both ranks make: what the first one finds to fill ``budget_s``."""
    wanted = max(3, min(SMALL_ROUNDS, int(budget_s / max(once_s, 1e-6))))
    told = torch.tensor([wanted], dtype=torch.int64, device=device)  # type: ignore[attr-defined]
    dist.broadcast(told, 0)  # type: ignore[attr-defined]
    return int(told.item())


def settle(torch: object, on_gpu: bool) -> None:
    if on_gpu:
        torch.cuda.synchronize()  # type: ignore[attr-defined]


def gpus() -> None:
    """Copies between every two GPUs, one direction at a time, all else quiet."""
    torch = importlib.import_module("torch")
    number = torch.cuda.device_count()
    size = LARGEST_BYTES
    for one in range(number):
        source = torch.empty(size, dtype=torch.uint8, device=torch.device("cuda", one))
        for two in range(number):
            if one == two:
                continue
            target = torch.empty(size, dtype=torch.uint8, device=torch.device("cuda", two))
            target.copy_(source)
            both = (torch.device("cuda", one), torch.device("cuda", two))
            for device in both:
                torch.cuda.synchronize(device)
            rounds = 8
            began = time.perf_counter()
            for _ in range(rounds):
                target.copy_(source, non_blocking=True)
            for device in both:
                torch.cuda.synchronize(device)
            each_s = (time.perf_counter() - began) / rounds
            say(**{
                "from": one, "to": two, "bytes_per_s": size / each_s, "size_bytes": size,
                "peer_access": bool(torch.cuda.can_device_access_peer(one, two)),
            })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="fabric")
    parser.add_argument("what", choices=("pair", "gpus"))
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--peer", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args(sys.argv[1:])
    if arguments.what == "gpus":
        gpus()
    else:
        pair(arguments)


if __name__ == "__main__":
    main()
