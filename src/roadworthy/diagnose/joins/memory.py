"""Which kind of out-of-memory it was, shared memory, occupied devices, leaks of blocks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.diagnose.probes.host import size_bytes
from roadworthy.diagnose.values import derived

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.values import Clue, ClueBook

LATER_LINES = 4000
"""How far after a phase's own lines an out-of-memory still belongs to it."""


def out_of_memory(book: ClueBook) -> Iterator[Clue]:
    """Names each device out-of-memory by what ran when it struck: load, profile, graph capture, serving; and
    tells fragmentation by the numbers of the message."""
    for clue in book.all("memory.oom-numbers", "memory.oom-old-numbers"):
        yield from _fragmented(clue)
    for oom in book.all("memory.cuda-oom", "nccl.cuda-oom"):
        phase = _phase(book, oom)
        if phase is not None:
            yield derived(oom, f"oom.{phase[0]}", *phase[1:2])


def _fragmented(clue: Clue) -> Iterator[Clue]:
    def amount(key: str) -> float:
        return size_bytes(clue.value(key).replace("iB", "").replace(" ", "").replace("0bytes", "0")) or 0.0

    asked, free, total = amount("asked"), amount("free"), amount("total")
    unallocated = amount("unallocated") or max(
        0.0, amount("reserved") - amount("allocated") if clue.value("reserved") else 0.0
    )
    if asked and unallocated and free + unallocated >= asked:
        if unallocated >= 0.1 * total or unallocated >= asked:
            yield derived(
                clue,
                "oom.fragmented",
                asked=clue.value("asked"),
                free=clue.value("free"),
                unallocated=clue.value("unallocated"),
            )
    elif asked and clue.value("free"):
        yield derived(clue, "oom.really-full")


PHASES = (
    ("graph-capture", "memory.graph-capture"), ("profile-run", "memory.profile-run"),
    ("weights-load", "memory.in-load"), ("kv-allocation", "memory.kv-allocation"),
)  # fmt: skip


def _phase(book: ClueBook, oom: Clue) -> tuple[str, Clue] | None:
    """The phase whose line stands nearest to the out-of-memory: shortly before it, or in its traceback."""
    line = oom.lines[0]
    best: tuple[int, str, Clue] | None = None
    for name, signal in PHASES:
        for clue in book.all(signal):
            seen = clue.lines[0]
            if seen.file != line.file:
                continue
            distance = line.number - seen.number
            if not -3 <= distance <= LATER_LINES:
                continue
            if name == "graph-capture" and book.has("memory.graph-captured"):
                done = book.all("memory.graph-captured")[0].lines[0]
                if done.file == line.file and seen.number < done.number < line.number:
                    continue
            reach = abs(distance)
            if best is None or reach < best[0]:
                best = (reach, name, clue)
    started = [
        c
        for c in book.all("engine.started", "engine.served")
        if c.lines[0].file == line.file and c.lines[0].number < line.number
    ]
    if started and (best is None or best[0] > 60):
        return ("serving", started[-1])
    return (best[1], best[2]) if best else None


def shared_memory(book: ClueBook) -> Iterator[Clue]:
    """``shm.exhausted``: a failed segment, wherever the reason lies."""
    for clue in book.all("shm.nccl-create-failed", "process.no-space-shm", "process.bus-error"):
        yield derived(clue, "shm.exhausted")
        return


OTHERS_SHARE = 0.1
"""Of a device's memory: what another process holds beyond this is why the rest does not fit."""


def occupied(book: ClueBook) -> Iterator[Clue]:
    """``gpu.held-by-orphan``: the process that holds device memory has lost its parent; ``gpu.other-process-named``:
    the out-of-memory message itself names another process."""
    for clue in book.all("memory.other-process"):
        total = next(
            (one.value("total") for one in book.all("memory.oom-numbers") if one.lines[0] == clue.lines[0]), ""
        )
        if (_gibi(clue.value("amount")) or 0.0) > OTHERS_SHARE * (_gibi(total) or float("inf")):
            yield derived(clue, "gpu.other-process-named")
    orphans = {clue.value("pid"): clue for clue in book.all("process.orphan")}
    for clue in book.all("gpu.process"):
        if clue.value("pid") in orphans:
            yield derived(clue, "gpu.held-by-orphan", orphans[clue.value("pid")])
        elif int(clue.number("mib")) > 1000:
            yield derived(clue, "gpu.held")


def head_of_ray(book: ClueBook) -> Iterator[Clue]:
    """``kernel.killed-ray-head``: the cgroup killed the head's own servers."""
    for clue in book.all("kernel.cgroup-kill", "kernel.oom-kill"):
        if re.search(r"gcs_server|dashboard|ray start|redis-server", clue.value("process")):
            yield derived(clue, "kernel.killed-ray-head")
        else:
            yield derived(clue, "kernel.killed-process")


def disk(book: ClueBook) -> Iterator[Clue]:
    """``ray.disk-really-full``: little is left in bytes too; 5 % of a large volume is plenty."""
    for clue in book.all("ray.disk-full"):
        available = _bytes(clue.value("available"))
        if available is not None and available < 10 * 2**30:
            yield derived(clue, "ray.disk-really-full")
            return
    if book.has("ray.disk-full"):
        yield derived(book.all("ray.disk-full")[0], "ray.disk-share-only")


def _gibi(text: str) -> float | None:
    return size_bytes(text.replace("iB", "").replace(" ", "")) if text else None


def _bytes(text: str) -> float | None:
    return size_bytes(text.replace("B", "").replace(" ", "")) if text else None


def xids(book: ClueBook) -> Iterator[Clue]:
    """``xid.N`` of every Xid; those of NVLink 5 and later (144 to 150) as ``xid.nvlink5``."""
    for clue in book.all("gpu.xid"):
        number = int(clue.number("xid"))
        yield derived(clue, f"xid.{number}")
        if 144 <= number <= 150 and "Nonfatal" not in clue.value("what"):
            yield derived(clue, "xid.nvlink5")


def fabric(book: ClueBook) -> Iterator[Clue]:
    """Fabric manager down for good, or restarted while jobs ran."""
    states = [(clue, clue.value("state").lower()) for clue in book.all("fabric.state")]
    stopped = [clue for clue, state in states if state in ("stopped", "stopping") or state.startswith("restart")]
    started = [clue for clue, state in states if state.startswith(("started", "active"))]
    if stopped and started:
        yield derived(stopped[0], "fabric.restarted", started[-1])
    elif stopped or any(state in ("inactive", "failed", "dead", "not running") for _, state in states):
        first = next(
            clue
            for clue, state in states
            if state in ("inactive", "failed", "dead", "not running", "stopped", "stopping")
        )
        yield derived(first, "fabric.down")


def exits(book: ClueBook) -> Iterator[Clue]:
    """``k8s.exit-N``: what a container ended with, 137 for a kill and 143 for a termination."""
    for clue in book.all("k8s.exit-code"):
        yield derived(clue, f"k8s.exit-{clue.value('code')}")


def visible_devices(book: ClueBook) -> Iterator[Clue]:
    """``env.visible-devices-beyond``: an index above the GPUs that the same place lists."""
    for clue in book.all("env.visible-devices"):
        listed = {one.value("gpu") for one in book.all("gpu.listed") if one.host == clue.host}
        if listed and max(map(int, clue.value("value").split(","))) >= len(listed):
            yield derived(clue, "env.visible-devices-beyond", count=len(listed))


JOINS = (exits, visible_devices, xids, fabric, out_of_memory, shared_memory, occupied, head_of_ray, disk)
