"""A run by tenant, by length of the prompt and by kind of session: whose promise was broken.

A percentile over everybody hides the one for whom it is not met, so each group is held to the same limits, and one
with too few requests for a verdict gets none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING

from roadworthy.advise.latencies import Latencies
from roadworthy.advise.objectives import Objective, latency_objectives, success_objective
from roadworthy.core.columns import Columns
from roadworthy.core.latency import LatencySummary

if TYPE_CHECKING:
    from roadworthy.core.records import RequestRecord
    from roadworthy.spec.values import Sla

PROMPT_CLASS_TOKENS = (1024, 4096, 16_384, 65_536)
"""Where the classes of prompt lengths end; what costs most, prefill, grows about fourfold from one to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """One group's part of a run; ``ttft_s`` starts at the scheduled arrival, as objectives do.

    ``tokens`` are those of completed requests, in and out. ``sla_misses`` counts requests that failed or broke a
    per-request limit.
    """

    id: str
    requests: int
    failed: int
    tokens: int
    sla_misses: int
    ttft_s: LatencySummary
    tpot_s: LatencySummary
    e2e_s: LatencySummary
    objectives: tuple[Objective, ...]


def by_tenant(records: Iterable[RequestRecord], sla: Sla) -> tuple[GroupReport, ...]:
    """One report a tenant, by id; nothing where requests have none."""
    columns = Columns.of(tuple(records))
    return grouped(columns, columns.tenant, columns.tenants, sla)


def by_kind(records: Iterable[RequestRecord], sla: Sla) -> tuple[GroupReport, ...]:
    """One report for each kind of session in a mixed load; nothing where it is not mixed."""
    return _grouped(records, sla, lambda record: record.kind)


def by_prompt_length(records: Iterable[RequestRecord], sla: Sla) -> tuple[GroupReport, ...]:
    """One report for each class of prompt length that occurs, shortest first."""
    groups = _grouped(records, sla, lambda record: prompt_class(record.n_in))
    order = [prompt_class(tokens) for tokens in (*PROMPT_CLASS_TOKENS, PROMPT_CLASS_TOKENS[-1] + 1)]
    return tuple(sorted(groups, key=lambda group: order.index(group.id)))


def prompt_class(tokens: int) -> str:
    """The class of a prompt of ``tokens``, such as ``1K to 4K``."""
    below = 0
    for limit in PROMPT_CLASS_TOKENS:
        if tokens <= limit:
            return f"up to {limit // 1024}K" if not below else f"{below // 1024}K to {limit // 1024}K"
        below = limit
    return f"over {below // 1024}K"


def _grouped(
    records: Iterable[RequestRecord], sla: Sla, name: Callable[[RequestRecord], str]
) -> tuple[GroupReport, ...]:
    records = tuple(records)
    names: dict[str, int] = {}
    groups = [names.setdefault(name(record), len(names)) for record in records]
    return grouped(Columns.of(records), groups, tuple(names), sla)


def grouped(
    columns: Columns, groups: Sequence[int], names: Sequence[str], sla: Sla, latencies: Latencies | None = None
) -> tuple[GroupReport, ...]:
    """One report for each group of requests, by name; nothing where no request has one.

    Args:
        groups: for each request the place of its group in ``names``.
        latencies: of the completed requests, where somebody has worked them out already.
    """
    requests = Counter(groups)
    if {names[group] for group in requests} <= {""}:
        return ()
    done = columns.done()
    if done is not columns:
        groups = [group for group, error in zip(groups, columns.error, strict=True) if not error]
    if latencies is None:
        latencies = Latencies.of(done)
    kept = Counter(compress(groups, latencies.within(sla)))
    parts = [_Part() for _ in names]
    ends = [(part.ttft_s.append, part.tpot_s.append, part.e2e_s.append, part.n_out.append) for part in parts]
    for group, ttft_s, tpot_s, e2e_s, n_out in zip(
        groups, latencies.user_ttft_s, latencies.tpot_s, latencies.e2e_s, done.n_out, strict=True
    ):
        first, each, whole, tokens = ends[group]
        first(ttft_s)
        each(tpot_s)
        whole(e2e_s)
        tokens(n_out)
    for group, n_in in zip(groups, done.n_in, strict=True):
        parts[group].prompt_tokens += n_in
    return tuple(
        _report(names[group], requests[group], kept[group], parts[group], sla)
        for group in sorted(requests, key=names.__getitem__)
    )


class _Part:
    """The completed requests of one group, in columns."""

    __slots__ = ("e2e_s", "n_out", "prompt_tokens", "tpot_s", "ttft_s")

    def __init__(self) -> None:
        self.ttft_s: list[float] = []
        self.tpot_s: list[float] = []
        self.e2e_s: list[float] = []
        self.n_out: list[int] = []
        self.prompt_tokens = 0


def _report(name: str, requests: int, kept: int, part: _Part, sla: Sla) -> GroupReport:
    done = len(part.n_out)
    ttft = LatencySummary.of(part.ttft_s)
    tpot = LatencySummary.of(compress(part.tpot_s, [tokens >= 2 for tokens in part.n_out]))
    return GroupReport(
        id=name,
        requests=requests,
        failed=requests - done,
        tokens=part.prompt_tokens + sum(part.n_out),
        sla_misses=requests - kept,
        ttft_s=ttft,
        tpot_s=tpot,
        e2e_s=LatencySummary.of(part.e2e_s),
        objectives=(*latency_objectives(sla, ttft, tpot), success_objective(done, requests, sla)),
    )
