"""Series over time, as a Prometheus answers a range query, judged by what engines, GPUs and hosts count with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.diagnose.metrics import engines, fabric, machines, serving
from roadworthy.diagnose.metrics.series import Family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from roadworthy.diagnose.metrics.series import Series
    from roadworthy.diagnose.values import Clue


def series_clues(series: Iterable[Series]) -> Iterator[Clue]:
    """What ``series`` say, by every reader that knows their names."""
    family = Family.of(series)
    if family:
        for reader in (*engines.READERS, *machines.READERS, *fabric.READERS, *serving.READERS):
            yield from reader(family)
