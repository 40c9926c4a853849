"""A run by tenant, by length of the prompt and by kind of session: whose promise was broken.

A percentile over everybody hides the one for whom it is not met, so each group is held to the same limits, and one
with too few requests for a verdict gets none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.advise.objectives import Objective, latency_objectives, meets_limits, success_objective
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
    return _grouped(records, sla, lambda record: record.tenant)


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
    groups: dict[str, list[RequestRecord]] = {}
    for record in records:
        groups.setdefault(name(record), []).append(record)
    if set(groups) <= {""}:
        return ()
    return tuple(_report(key, groups[key], sla) for key in sorted(groups))


def _report(name: str, records: Sequence[RequestRecord], sla: Sla) -> GroupReport:
    done = [record for record in records if record.ok]
    ttft = LatencySummary.of(record.user_ttft_s for record in done if record.user_ttft_s is not None)
    tpot = LatencySummary.of(record.tpot_s for record in done if record.tpot_s is not None)
    return GroupReport(
        id=name,
        requests=len(records),
        failed=len(records) - len(done),
        tokens=sum(record.n_in + record.n_out for record in done),
        sla_misses=len(records) - sum(meets_limits(record, sla) for record in done),
        ttft_s=ttft,
        tpot_s=tpot,
        e2e_s=LatencySummary.of(record.e2e_s for record in done),
        objectives=(*latency_objectives(sla, ttft, tpot), success_objective(len(done), len(records), sla)),
    )
