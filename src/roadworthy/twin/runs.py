"""Cached blocks in runs: neighbouring blocks of one text and one cache group that share their fate.

A run is in use (``users`` > 0), or idle and in the :class:`IdleQueue`, which is vLLM's free queue from its first cached
block on: least recently freed first, of one run the last block first (vLLM 0.32 `vllm/v1/core/block_pool.py`,
``free_blocks``). Blocks without a cached prefix stand before all of them in vLLM's queue and are only counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.twin.texts import Text

Piece = tuple["Run", int, int]
"""Blocks ``[from, to)`` of a run."""

Hold = list["Run | int"]
"""``[run, to]``: what a request refers to, from the run's first block up to ``to``. When the run is cut, the rest
follows in ``run.rest``, so whoever held the whole of it need not be told."""


class Run:
    """Blocks ``[lo, hi)`` of one cache group that end in ``text``. ``cached_step`` is when the last one was cached."""

    __slots__ = ("after", "before", "cached_step", "group", "hi", "lo", "rest", "text", "users")

    def __init__(self, text: Text, group: int, lo: int, hi: int, *, users: int, cached_step: int) -> None:
        self.text = text
        self.group = group
        self.lo = lo
        self.hi = hi
        self.users = users
        self.cached_step = cached_step
        self.rest: Run | None = None
        self.before: Run | None = None
        self.after: Run | None = None


class IdleQueue:
    """Idle runs in the order of eviction; ``blocks`` counts their blocks."""

    __slots__ = ("_ends", "blocks", "on_evict")

    def __init__(self, on_evict: Callable[[Run, int, int], None] | None = None) -> None:
        self.blocks = 0
        self.on_evict = on_evict
        """Told of blocks ``[from, to)`` of a run that are about to be forgotten."""
        self._ends = Run.__new__(Run)  # stands before the first and after the last
        self._ends.before = self._ends.after = self._ends

    def append(self, run: Run) -> None:
        """Put a run that has just become idle at the end."""
        ends = self._ends
        last = ends.before
        assert last is not None
        run.before, run.after = last, ends
        last.after = ends.before = run
        self.blocks += run.hi - run.lo

    def remove(self, run: Run) -> None:
        """Take a run out that somebody uses again."""
        before, after = run.before, run.after
        assert before is not None
        assert after is not None
        before.after, after.before = after, before
        run.before = run.after = None
        self.blocks -= run.hi - run.lo

    def insert_before(self, run: Run, rest: Run) -> None:
        """``rest`` was cut from the end of ``run``, which is in the queue, and goes before it."""
        before = run.before
        assert before is not None
        rest.before, rest.after = before, run
        before.after = run.before = rest

    def evict(self, blocks: int) -> None:
        """Forget the first ``blocks`` blocks."""
        assert blocks <= self.blocks
        self.blocks -= blocks
        ends = self._ends
        while blocks:
            run = ends.after
            assert run is not None
            size = run.hi - run.lo
            if self.on_evict is not None:
                self.on_evict(run, max(run.lo, run.hi - blocks), run.hi)
            if size > blocks:
                run.hi -= blocks
                return
            blocks -= size
            after = run.after
            assert after is not None
            ends.after, after.before = after, ends
            run.before = run.after = None
            drop(run)


def drop(run: Run) -> None:
    """Take a run that is cached no more out of its text."""
    text = run.text
    runs = text.runs[run.group]
    if len(runs) > 1:
        runs.remove(run)
        return
    del text.runs[run.group]
    if not text.users:
        text.forget_if_unused()


def cut(run: Run, at: int, queue: IdleQueue) -> Run:
    """Cut ``run`` before block ``at``; returns the rest. Both stay used, or idle, as they were."""
    rest = Run(run.text, run.group, at, run.hi, users=run.users, cached_step=run.cached_step)
    rest.rest, run.rest = run.rest, rest
    run.hi = at
    runs = run.text.runs[run.group]
    runs.insert(runs.index(run) + 1, rest)
    if run.before is not None:
        queue.insert_before(run, rest)
    return rest


def holders_runs(hold: Hold) -> list[Run]:
    """All runs that a hold has become, in order."""
    run, to = hold
    assert isinstance(run, Run)
    found = [run]
    while run.hi < to:  # type: ignore[operator]
        assert run.rest is not None
        run = run.rest
        found.append(run)
    return found


def find(runs: list[Run], block: int) -> Run | None:
    """The run that vLLM would answer for ``block``: of several copies the first that was cached."""
    for run in runs:
        if run.lo <= block < run.hi:
            return run
    return None


def reach(runs: list[Run], run: Run, block: int) -> int:
    """The block up to which ``run`` is the answer from ``block`` on: an earlier copy may take over before its end."""
    to = run.hi
    if len(runs) > 1:
        for other in runs:
            if other is run:
                break
            if block < other.lo < to:
                to = other.lo
    return to
