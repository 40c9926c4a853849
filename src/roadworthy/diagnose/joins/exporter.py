"""What one or two scrapes of the GPU exporter (DCGM) say: clocks held down, memory errors, Xids."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.diagnose.metrics import series_clues
from roadworthy.diagnose.metrics.machines import FELL_TO, GREW, REASONS, STANDS, VIOLATIONS
from roadworthy.diagnose.metrics.series import series_of
from roadworthy.diagnose.probes.tables import reasons_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.probes.tables import Sample
    from roadworthy.diagnose.values import Clue, Document, Line

HOSTS = ("node_", "container_", "kube_pod_")
"""Prefixes of exporters whose rules read series: what they need of time is only which scrape came first."""

BETWEEN_S = 60.0
"""Seconds assumed between two scrapes that carry no time; no rule of these families divides by it."""


def exported(document: Document, first: list[Sample], last: list[Sample]) -> Iterator[Clue]:
    """What the rules for series say of the scrapes of host, container and cluster exporters."""
    if not any(one.name.startswith(HOSTS) for one in last):
        return
    points: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    where: dict[tuple[str, str], Line] = {}
    for time_s, some in ((0.0, first), (BETWEEN_S, last)):
        for one in some:
            if one.name.startswith(HOSTS):
                points[one.name, one.labels].append((time_s, one.value))
                where[one.name, one.labels] = one.line
    series = (
        series_of(_labels(labels), values, file=document.file, line=where[name, labels].number, name=name)
        for (name, labels), values in points.items()
    )
    stood = {line.number: line for line in where.values()}
    for clue in series_clues(one for one in series if one is not None):
        yield replace(clue, lines=tuple(stood.get(line.number, line) for line in clue.lines), time_s=None)


def _labels(text: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', text))


def gpus(document: Document, first: list[Sample], last: list[Sample]) -> Iterator[Clue]:
    """Clues of the newest scrape ``last``, counters against ``first`` (empty with a single scrape)."""
    yield from _clocks(document, last)
    if not first:
        return
    before = {(one.name, _gpu(one)): one for one in first}
    for one in last:
        old = before.get((one.name, _gpu(one)))
        if one.name in STANDS and one.value > 0:
            yield document.clue(STANDS[one.name], one.line, gpu=_gpu(one))
        if old is None or one.value <= old.value:
            continue
        grown = f"{one.value - old.value:g}"
        if one.name in GREW:
            yield document.clue(GREW[one.name], old.line, one.line, count=grown, gpu=_gpu(one))
        elif one.name == "DCGM_FI_DEV_XID_ERRORS":
            yield document.clue(f"xid.{one.value:g}", old.line, one.line, bus=f"GPU {_gpu(one)}", xid=f"{one.value:g}")
        elif one.name in VIOLATIONS and _is_below_peers(last, _gpu(one)):
            name = VIOLATIONS[one.name]
            yield document.clue(f"clocks.{name}", old.line, one.line, gpu=_gpu(one), reason=name.replace("-", " "))


def _gpu(one: Sample) -> str:
    found = re.search(r'gpu="?(\w+)', one.labels)
    return found.group(1) if found else one.labels


def _is_below_peers(last: list[Sample], gpu: str) -> bool:
    """Whether the clock of ``gpu`` is far below its peers' middle."""
    clocks = [one for one in last if one.name == "DCGM_FI_DEV_SM_CLOCK"]
    own = next((one for one in clocks if _gpu(one) == gpu), None)
    peers = sorted(one.value for one in clocks if _gpu(one) != gpu)
    return own is not None and bool(peers) and own.value < FELL_TO * peers[len(peers) // 2]


def _clocks(document: Document, last: list[Sample]) -> Iterator[Clue]:
    """``clocks.fell`` of the GPU exporter: far below its peers while a hardware or thermal reason is set."""
    clocks = {one.labels.split(",")[0]: one for one in last if one.name == "DCGM_FI_DEV_SM_CLOCK"}
    reasons = {one.labels.split(",")[0]: one for one in last if one.name in REASONS}
    for gpu, clock in clocks.items():
        peers = sorted(one.value for other, one in clocks.items() if other != gpu)
        reason = reasons.get(gpu)
        held = (
            [name for name in reasons_of(int(reason.value)) if name not in ("idle", "sw-power-cap")] if reason else []
        )
        if peers and reason is not None and held and clock.value < FELL_TO * peers[len(peers) // 2]:
            yield document.clue(
                "clocks.fell", clock.line, reason.line, mhz=f"{clock.value:g}", high=f"{peers[len(peers) // 2]:g}",
                who=gpu.replace('"', "").replace("=", " "), power="", limit="",
            )  # fmt: skip
            for name in held:
                yield document.clue(f"clocks.{name}", reason.line, gpu=gpu, reason=name.replace("-", " "))
