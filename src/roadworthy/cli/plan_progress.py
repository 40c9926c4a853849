"""How far the simulation of the best layouts is: one line on stderr, on a terminal only, gone when it is done."""

from __future__ import annotations

import sys
from types import TracebackType

import click

EVERY = 100


class PlanProgress:
    """Called with a layout's name, its ended requests and all of them; leaves nothing behind, whatever happens."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __call__(self, layout: str, ended: int, requests: int) -> None:
        if self._shown and ended % EVERY == 0:
            click.echo(f"\r\x1b[Ksimulating {layout}: {ended:,} of {requests:,} requests", err=True, nl=False)

    def __enter__(self) -> PlanProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)
