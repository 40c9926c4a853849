"""Independent pieces of work on several cores, each in a process that ends with ours."""

from __future__ import annotations

import copyreg
import ctypes
import gc
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children, get_context, resource_tracker
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Work = TypeVar("Work")
Outcome = TypeVar("Outcome")

_PR_SET_PDEATHSIG = 1


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spawned_pool(processes: int) -> ProcessPoolExecutor:
    """A pool whose processes end with ours, however it ends."""
    context = get_context("spawn")  # forking a process that may have threads is not safe
    return ProcessPoolExecutor(max_workers=processes, mp_context=context, initializer=end_with_parent)


def each(function: Callable[[Work], Outcome], pieces: Sequence[Work], *, processes: int) -> Iterator[Outcome]:
    """``function`` of each of ``pieces``, in their order, on at most ``processes`` processes.

    With one process or one piece it runs here. ``function`` must be found by its name in a module, pieces and outcomes
    must be values that can be pickled; an exception of any of them is raised here. All processes have ended, and have
    been waited for, when the iterator is exhausted or closed.
    """
    processes = min(processes, len(pieces))
    if processes <= 1:
        yield from map(function, pieces)
        return
    copyreg.pickle(MappingProxyType, _pickled_proxy)
    try:
        yield from _pooled(function, pieces, processes)
    finally:
        _end_tracker()


def _pooled(function: Callable[[Work], Outcome], pieces: Sequence[Work], processes: int) -> Iterator[Outcome]:
    others = set(active_children())
    pool = spawned_pool(processes)
    try:
        yield from pool.map(function, pieces)
    except BaseException:  # interrupted, failed, or nobody wants the rest: what runs is not waited for
        for child in set(active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        del pool  # the error's traceback would keep its semaphores beyond the helper that looks after them


def _end_tracker() -> None:
    """Wait for the helper process that the standard library starts with the first spawned one: before Python 3.13 it
    outlives us by some milliseconds, unwaited for."""
    gc.collect()  # semaphores of the pool sign off with it when they go; later they would start another
    stop = getattr(getattr(resource_tracker, "_resource_tracker", None), "_stop", None)
    if callable(stop) and not active_children():
        stop()


def _pickled_proxy(
    proxy: MappingProxyType[Any, Any],
) -> tuple[Callable[..., MappingProxyType[Any, Any]], tuple[Any, ...]]:
    """Read-only mappings, which documents are made of, travel as what they show."""
    return _proxy_of, (dict(proxy),)


def _proxy_of(shown: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """The type cannot be named in a pickle; this can."""
    return MappingProxyType(shown)


def end_with_parent() -> None:
    """In the child: Ctrl-C is the parent's to handle, and when it dies, however it dies, so do we (Linux)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
