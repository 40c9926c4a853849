"""How a gateway treated each tenant, as far as a client can see it: answered, turned away by status, served by weight.

What waited in the gateway's queue and what was borrowed is the gateway's own to tell, in its console and its metrics.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from roadworthy.bench.sections import TableSection
from roadworthy.core.units import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roadworthy.advise.breakdown import GroupReport
    from roadworthy.core.records import RequestRecord

PROMPT_WORK, OUTPUT_WORK = 1, 2
"""A token of each as fairness counts them."""

_REFUSALS = {"403": "not allowed", "422": "by a rule", "429": "over a limit", "503": "no room"}
_STATUS = re.compile(r"(?:HTTP|error event) (?P<status>\d{3})\b")


def tenants_table(
    records: Iterable[RequestRecord], groups: Iterable[GroupReport], weights: Mapping[str, float]
) -> tuple[TableSection, ...]:
    """One row a tenant; nothing where requests have none, or where there is one that was never turned away."""
    refused: dict[str, Counter[str]] = {}
    work: Counter[str] = Counter()
    for record in records:
        if record.ok:
            work[record.tenant] += PROMPT_WORK * record.n_in + OUTPUT_WORK * record.n_out
            continue
        match = _STATUS.match(record.error)
        status = match["status"] if match is not None else ""
        refused.setdefault(record.tenant, Counter())[_REFUSALS.get(status, "")] += 1
    groups = tuple(groups)
    if not groups or (len(groups) == 1 and not refused):
        return ()
    everybody, total = sum(weights.values()), sum(work.values())
    rows = []
    for group in groups:
        turned = refused.get(group.id, Counter())
        said = ", ".join(f"{format_count(times)} {why}" for why, times in turned.most_common() if why)
        rows.append(
            (
                group.id or "(none)",
                format_count(group.requests),
                format_count(group.requests - group.failed),
                said or "0",
                format_count(turned[""]),
                format_count(group.tokens),
                f"{weights[group.id] / everybody:.1%}" if group.id in weights and everybody else "–",
                f"{work[group.id] / total:.1%}" if total else "–",
                format_count(group.sla_misses),
            )
        )
    columns = (
        "tenant", "requests", "answered", "refused", "failed", "tokens served", "weight", "work", "SLA misses",
    )  # fmt: skip
    note = (
        "Weight is the tenant's share of all weights, work its share of what was computed (an output token counts as "
        "two). Who asks for less than its share leaves the rest to others."
    )
    return (TableSection(title="Governance", columns=columns, rows=tuple(rows), note=note),)
