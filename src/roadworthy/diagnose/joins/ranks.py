"""Which process failed first: the errors of the others are consequences."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.diagnose.values import derived

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.values import Clue, ClueBook


OWN_SIGNALS = ("-4", "-7", "-8", "-9", "-11")
"""Ends that no watchdog gives to a process that only waited: illegal instruction, bus error, kill, segmentation fault.
An abort (-6) is how the watchdog itself ends one."""


def watchdogs(book: ClueBook) -> Iterator[Clue]:
    """``rank.died-first``: another process failed for its own reason before collectives complained, or beside them."""
    followers = book.all("collective.*", "kv-transfer.handshake", "kv-transfer.zmq-again", "engine.shm-broadcast-wait")
    if not followers:
        return
    causes = book.all(
        "cuda.illegal-access", "memory.cuda-oom", "nccl.cuda-oom", "engine.fatal", "process.segfault", "process.killed",
        "ray.actor-died",
        "process.bus-error", "engine.worker-died", "cuda.launch-failure", "process.python-error",
    )  # fmt: skip
    named = book.first("torchrun.root-cause")
    if named is not None and named.value("exit") in OWN_SIGNALS:  # the launcher itself says who was first
        who = f"rank {named.value('first')} (exit code {named.value('exit')})"
        yield derived(named, "rank.died-first", followers[0], who=who, file=named.lines[0].file)
        return
    own = [
        clue
        for clue in causes
        if not re.search(r"[Ww]atchdog|NCCL error|ncclRemote|DistBackendError", clue.lines[0].text)
    ]
    dated = [clue for clue in own if clue.time_s is not None]
    first = min(dated, key=lambda clue: clue.time_s or 0.0) if dated else (own[0] if own else None)
    if first is None:
        return
    apart = [
        clue for clue in followers
        if (clue.lines[0].file, clue.rank, clue.host) != (first.lines[0].file, first.rank, first.host)
    ]  # fmt: skip
    late = [clue for clue in apart if clue.time_s is None or first.time_s is None or clue.time_s >= first.time_s - 1.0]
    if late:
        who = f"rank {first.rank}" if first.rank is not None else (first.host or first.lines[0].file)
        yield derived(first, "rank.died-first", late[0], who=who, file=first.lines[0].file)


JOINS = (watchdogs,)
