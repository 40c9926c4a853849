"""How each tenant fared: served, turned away, kept waiting; its part of the work and of the cost; how even it all was.

Work is counted as fairness counts it: a prompt token as one, an output token as two (``route.govern``), since decoding
one token takes an engine about that much longer than reading one. The cost of a run is shared out by it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.core.latency import percentile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roadworthy.simulate.log import RunLog

PROMPT_WORK, OUTPUT_WORK = 1.0, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantStanding:
    """One tenant's part of a run.

    Args:
        weight_ratio: its part of all tenants' weights, None where no weights are known.
        work_ratio: its part of the work that was done.
        admitted: requests that were given to an engine.
        borrowed: requests that went beyond its KV quota.
        refused: requests turned away or given up, by code.
        waited: requests that stood in the gateway's queue; ``waited_p50_s``, ``waited_p99_s`` are theirs, None
            without one.
    """

    id: str
    requests: int
    completed: int
    tokens: int
    work_ratio: float
    admitted: int
    refused: tuple[tuple[str, int], ...]
    waited: int
    waited_p50_s: float | None
    waited_p99_s: float | None
    borrowed: int = 0
    weight_ratio: float | None = None

    @property
    def completed_ratio(self) -> float:
        return self.completed / self.requests if self.requests else 0.0


def standings(
    log: RunLog, *, weights: Mapping[str, float] | None = None, borrowed: Mapping[str, int] | None = None
) -> tuple[TenantStanding, ...]:
    """Every tenant of the run, by name; none where requests have no tenant.

    Args:
        weights: by tenant, those that sent nothing included.
        borrowed: requests beyond their KV quota, by tenant.
    """
    weights, borrowed = weights or {}, borrowed or {}
    everybody = sum(weights.values())
    names = log.tenants.words
    work = [0.0] * len(names)
    tokens, requests, completed = [0] * len(names), [0] * len(names), [0] * len(names)
    waits: list[list[float]] = [[] for _ in names]
    refused: list[Counter[int]] = [Counter() for _ in names]
    admitted = Counter(tenant for tenant, engine in zip(log.tenant, log.engine, strict=True) if engine >= 0)
    rows = zip(log.tenant, log.error, log.n_in, log.n_out, log.waited_s, strict=True)
    for tenant, error, n_in, n_out, waited_s in rows:
        requests[tenant] += 1
        if waited_s > 0:
            waits[tenant].append(waited_s)
        if error:
            refused[tenant][error] += 1
            continue
        completed[tenant] += 1
        tokens[tenant] += n_in + n_out
        work[tenant] += PROMPT_WORK * n_in + OUTPUT_WORK * n_out
    total = sum(work)
    return tuple(
        TenantStanding(
            id=name,
            requests=requests[at],
            completed=completed[at],
            tokens=tokens[at],
            work_ratio=work[at] / total if total else 0.0,
            admitted=admitted[at],
            borrowed=borrowed.get(name, 0),
            weight_ratio=weights[name] / everybody if name in weights and everybody else None,
            refused=tuple((log.errors.words[error], times) for error, times in refused[at].most_common()),
            waited=len(waits[at]),
            waited_p50_s=percentile(sorted(waits[at]), 50) if waits[at] else None,
            waited_p99_s=percentile(sorted(waits[at]), 99) if waits[at] else None,
        )
        for at, name in sorted(enumerate(names), key=lambda pair: pair[1])
        if name
    )


def jain_index(shares: Iterable[float]) -> float:
    """How even ``shares`` are: 1 when all are the same, 1/n when one has everything (Jain, Chiu and Hawe 1984); NaN of
    nothing."""
    values = list(shares)
    squares = math.fsum(share * share for share in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else math.nan


def served_tokens(log: RunLog, *, from_s: float, to_s: float) -> dict[str, tuple[float, float]]:
    """(Prompt tokens, output tokens) that each tenant got between two moments.

    A prompt counts when its first token comes; an answer's tokens are taken to come evenly from the first to the last.
    """
    names = log.tenants.words
    prompts, outputs = [0.0] * len(names), [0.0] * len(names)
    rows = zip(log.tenant, log.n_in, log.n_out, log.t_first_s, log.t_last_s, strict=True)
    for tenant, n_in, n_out, first_s, last_s in rows:
        if first_s < 0 or first_s >= to_s or last_s < from_s:
            continue
        if first_s >= from_s:
            prompts[tenant] += n_in
        if last_s > first_s:
            outputs[tenant] += n_out * (min(last_s, to_s) - max(first_s, from_s)) / (last_s - first_s)
        elif first_s >= from_s:
            outputs[tenant] += n_out
    return {name: (prompts[at], outputs[at]) for at, name in enumerate(names)}
