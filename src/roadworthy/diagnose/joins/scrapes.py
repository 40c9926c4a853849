"""What scrapes of an engine or a GPU exporter say, alone and before against after."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from roadworthy.diagnose.joins.exporter import exported, gpus
from roadworthy.diagnose.metrics.engines import (
    EXPERT_TIMES,
    EXPERTS,
    MIN_QUERIED_TOKENS,
    RUNNING,
    USAGE,
    WAITING,
    share_of,
)
from roadworthy.diagnose.probes.tables import samples
from roadworthy.diagnose.values import derived

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.probes.tables import Sample
    from roadworthy.diagnose.values import Clue, ClueBook, Document


def scrapes(book: ClueBook) -> Iterator[Clue]:
    """Judges every document that is a scrape, and two of the same endpoint as a pair."""
    groups: dict[str, list[tuple[Document, list[Sample]]]] = defaultdict(list)
    for document in book.documents:
        if some := samples(document):
            groups[re.sub(r"\.?(?:t\d+|before|after|\d+)(?=\.|$)", "", document.file)].append((document, some))
    judged: list[Clue] = []
    for group in groups.values():
        group.sort(key=lambda item: item[0].file)
        judged += _judge(group)
    none_here = any(clue.name == "cache.zero-hits" for clue in judged)
    for clue in judged:  # another model hits on the same traffic: that speaks for the one that does not
        yield derived(clue, "cache.other-model-hits") if none_here and clue.name == "cache.good-hits" else clue


def _total(some: list[Sample], *names: str, label: str = "") -> float | None:
    """The sum over the first of ``names`` that is there; ``_total`` may stand at its end."""
    for name in names:
        if values := [one.value for one in some if one.name in (name, f"{name}_total") and label in one.labels]:
            return sum(values)
    return None


def _peak(some: list[Sample], *names: str) -> tuple[float, Sample] | None:
    values = [(one.value, one) for one in some if one.name in names]
    return max(values, key=lambda item: item[0]) if values else None


def _judge(group: list[tuple[Document, list[Sample]]]) -> Iterator[Clue]:
    document, last = group[-1]
    first = group[0][1] if len(group) > 1 else []
    usage = _peak(last, *USAGE)
    running, waiting = _total(last, *RUNNING), _total(last, *WAITING)
    preempted = _total(last, "num_preemptions")
    grown = (preempted or 0.0) - (_total(first, "num_preemptions") or 0.0) if first else (preempted or 0.0)
    if usage is not None:
        share = share_of(usage[0])
        line = usage[1].line
        if share >= 0.9 and grown > 0:
            where = next(one.line for one in last if one.name.startswith("num_preemptions"))
            yield document.clue("kv.full-and-preempting", line, where, usage=f"{share:.0%}", preemptions=f"{grown:g}")
        if share >= 0.8 and (running or 0) <= 1 and running is not None:
            yield document.clue(
                "kv.full-while-idle", line, usage=f"{share:.0%}", running=f"{running:g}", waiting=f"{waiting or 0:g}"
            )
        elif share >= 0.95 and (waiting or 0) > 0:
            yield document.clue("kv.full-and-waiting", line, usage=f"{share:.0%}", waiting=f"{waiting:g}")
        elif share < 0.8:
            yield document.clue("kv.has-room", line, usage=f"{share:.0%}")
    before, now = (_total(some, "request_success", label="abort") or 0.0 for some in (first, last))
    aborted = now - before
    if aborted >= 10:
        where = next(one.line for one in last if "abort" in one.labels)
        yield document.clue("requests.aborted", where, count=f"{aborted:g}")
    yield from _hits(document, first, last)
    yield from _experts(document, last)
    yield from gpus(document, first, last)
    yield from exported(document, first, last)


def _hits(document: Document, first: list[Sample], last: list[Sample]) -> Iterator[Clue]:
    def grown(*names: str) -> float | None:
        for name in names:
            if (now := _total(last, name)) is not None:
                return now - (_total(first, name) or 0.0)
        return None

    queries = grown("prefix_cache_queries", "gpu_prefix_cache_queries")
    hits = grown("prefix_cache_hits", "gpu_prefix_cache_hits")
    if queries is None or hits is None or queries < MIN_QUERIED_TOKENS:
        return
    line = next(one.line for one in last if "prefix_cache_hits" in one.name)
    asked = next(one.line for one in last if "prefix_cache_queries" in one.name)
    if hits == 0:
        yield document.clue("cache.zero-hits", line, asked, queries=f"{queries:g}")
    elif hits < 0.05 * queries:
        yield document.clue(
            "cache.few-hits", line, asked, queries=f"{queries:g}", hits=f"{hits:g}", share=f"{hits / queries:.1%}"
        )
    elif hits > 0.3 * queries:
        yield document.clue("cache.good-hits", line, share=f"{hits / queries:.0%}")


def _experts(document: Document, last: list[Sample]) -> Iterator[Clue]:
    load = [one for one in last if one.labels and EXPERTS.search(one.name)]
    if len(load) >= 3:
        top = max(load, key=lambda one: one.value)
        rest = sorted(one.value for one in load if one is not top)
        usual = rest[len(rest) // 2]
        if usual > 0 and top.value > EXPERT_TIMES * usual:
            rank = re.search(r'(?:rank|expert|gpu)="?(\w+)', top.labels)
            yield document.clue(
                "moe.rank-overloaded", top.line, rank=rank.group(1) if rank else "", tokens=f"{top.value:g}",
                usual=f"{usual:g}", times=f"{top.value / usual:.1f}",
            )  # fmt: skip


JOINS = (scrapes,)
