"""Rules about what a host or container leaves an engine: memory, processes, ports, the version that is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.core.units import GIB
from roadworthy.diagnose.hosts.facts import Expected, HostFacts, finding, gpus_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.core.finding import Finding
    from roadworthy.diagnose.values import Clue

HUGE_PAGES_SHARE = 0.1
"""Of memory; what a database's leftover reserves is far above, what a driver takes far below."""

MEMORY_PER_GPU_BYTES = 16 * GIB
"""Of host memory: one process of the engine and its pinned buffers; rendered pods get twice as much."""

PIDS_FEW = 4096
"""Assumption: each rank starts hundreds of threads (torch's pools, CUDA, NCCL's proxies), and eight ranks share a pod."""


def memory(facts: HostFacts, _: Expected) -> Iterator[Finding]:
    """Memory that is there and not to be had: huge pages, a container's limit, kills that happened."""
    book, gpus = facts.book, len(gpus_of(facts.book))
    if (clue := book.first("memory.huge-pages")) is not None:
        reserved, whole = int(clue.value("bytes")), int(clue.value("of_bytes"))
        if reserved >= HUGE_PAGES_SHARE * whole:
            yield finding(
                "host-oom-kill", facts, (clue,), confidence=0.55,
                diagnosis=f"{reserved / GIB:.0f} of {whole / GIB:.0f} GiB are reserved as huge pages, which neither vLLM nor "
                "NCCL nor Ray takes: they are missing while weights load. `sysctl vm.nr_hugepages=0` gives them back.",
            )  # fmt: skip
    if (clue := book.first("cgroup.oom-kills")) is not None:
        yield finding(
            "host-oom-kill", facts, (clue,), confidence=0.7,
            diagnosis=f"{clue.value('count')} processes of this container were killed at its memory limit.",
        )  # fmt: skip
    limit = book.first("cgroup.memory-limit")
    if limit is not None and gpus and int(limit.value("bytes")) < gpus * MEMORY_PER_GPU_BYTES:
        yield finding(
            "host-oom-kill", facts, (limit,), confidence=0.6,
            diagnosis=f"The container may use {int(limit.value('bytes')) / GIB:.0f} GiB of memory for {gpus} GPUs; an engine "
            f"wants {MEMORY_PER_GPU_BYTES // GIB} GiB for each, /dev/shm counted in.",
        )  # fmt: skip


def version(facts: HostFacts, expected: Expected) -> Iterator[Finding]:
    """Another vLLM than the document's: its flags may be unknown there."""
    clue = facts.book.first("package.vllm")
    if clue is None or expected.engine_version is None:
        return
    installed = clue.value("version").partition("+")[0]
    if installed.split(".")[:2] != expected.engine_version.split(".")[:2]:
        yield finding(
            "invalid-engine-flags", facts, (clue,), confidence=0.6,
            diagnosis=f"vLLM {installed} is installed, the document's start files are for {expected.engine_version}: flags "
            "come and go between them. Change `engine.version` and render again, or install the other.",
        )  # fmt: skip


def notes(facts: HostFacts, expected: Expected) -> Iterator[dict[str, str]]:
    """What is no root cause by itself: ports that are taken, a limit on processes."""
    book = facts.book
    engine_runs = book.has("process.engine")
    for clue in _taken(facts, expected):
        if not engine_runs:
            yield _note(
                facts, "port-in-use",
                f"Port {clue.value('port')} is in use ({clue.value('address')}), and an engine will want it: "
                f"`ss -ltnp 'sport = :{clue.value('port')}'` names who has it.",
            )  # fmt: skip
    pids = book.first("cgroup.pids-limit")
    if pids is not None and gpus_of(book) and int(pids.value("limit")) < PIDS_FEW:
        yield _note(
            facts, "few-processes",
            f"The container may have {pids.value('limit')} processes and threads together; every rank of an engine starts "
            "hundreds, and none starts beyond the limit.",
        )  # fmt: skip


def _taken(facts: HostFacts, expected: Expected) -> tuple[Clue, ...]:
    """One listener for each port that is wanted and taken."""
    found: dict[str, Clue] = {}
    for clue in facts.book.all("port.listening"):
        if clue.value("port") in {str(port) for port in expected.ports}:
            found.setdefault(clue.value("port"), clue)
    return tuple(found.values())


def _note(facts: HostFacts, what: str, text: str) -> dict[str, str]:
    return {"what": what, "subject": facts.host, "text": f"{facts.host}: {text}"}


RULES = (memory, version)
