"""How a run under way shows on stderr: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from roadworthy.adapters.load_run import BenchRequest, Watcher
    from roadworthy.bench.driver import Progress

LINE_EVERY_S = 5.0


@contextlib.contextmanager
def watching(request: BenchRequest) -> Iterator[Watcher]:
    """A watcher for the run of ``request``; the display ends with the block."""
    if sys.stderr.isatty():
        with _bar(request) as watch:
            yield watch
    else:
        yield _lines()


class Pace:
    """How fast a run goes of late: rates between two looks at its counters."""

    def __init__(self) -> None:
        self._at_s, self._completed, self._tokens = 0.0, 0, 0

    def describe(self, progress: Progress, elapsed_s: float) -> str:
        """Counters in words, and what came since the last time this was asked."""
        since_s = elapsed_s - self._at_s
        if since_s <= 0:  # another load began
            self._completed = self._tokens = 0
            since_s = max(elapsed_s, 1e-3)
        per_s = (progress.completed - self._completed) / since_s
        tokens_per_s = (progress.output_tokens - self._tokens) / since_s
        self._at_s, self._completed, self._tokens = elapsed_s, progress.completed, progress.output_tokens
        failed = f", {progress.failed:,} failed" if progress.failed else ""
        return (
            f"{elapsed_s:.0f} s: {progress.sent:,} sent, {progress.in_flight:,} in flight, "
            f"{progress.completed:,} completed{failed}; now {per_s:.1f}/s, {tokens_per_s:,.0f} tokens/s"
        )


def _lines() -> Watcher:
    next_s, last_s, pace = LINE_EVERY_S, 0.0, Pace()

    def watch(progress: Progress, elapsed_s: float) -> None:
        nonlocal next_s, last_s
        if elapsed_s < last_s:  # the next load of a sweep
            next_s = LINE_EVERY_S
        last_s = elapsed_s
        if elapsed_s >= next_s:
            next_s = elapsed_s + LINE_EVERY_S
            click.echo(pace.describe(progress, elapsed_s), err=True)

    return watch


@contextlib.contextmanager
def _bar(request: BenchRequest) -> Iterator[Watcher]:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Display

    from roadworthy.cli.output import console

    columns = (BarColumn(bar_width=20), TextColumn("{task.description}"))
    with Display(*columns, console=console(stderr=True), transient=True) as display:
        task, pace = display.add_task("asking the target", total=1.0), Pace()

        def watch(progress: Progress, elapsed_s: float) -> None:
            sent = progress.sent / request.requests if request.requests else 0.0
            passed = elapsed_s / request.duration_s if request.duration_s else 0.0
            display.update(task, completed=min(1.0, max(sent, passed)), description=pace.describe(progress, elapsed_s))

        yield watch
