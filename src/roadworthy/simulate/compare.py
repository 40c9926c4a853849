"""One load under several routing policies, each with the same seed, so that only routing differs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Literal, get_args

from roadworthy.core.latency import percentile
from roadworthy.route.settings import Policy, RoutingSettings
from roadworthy.route.values import Decision
from roadworthy.simulate.run import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from roadworthy.advise.arrivals import Schedule
    from roadworthy.route.values import EndpointView, RouteRequest
    from roadworthy.simulate.result import SimulatedRun
    from roadworthy.twin.config import TwinConfig

Compared = Literal["round-robin", Policy]
"""Round robin is no policy of the gateway; it stands for a balancer that knows nothing of requests."""

COMPARED: tuple[Compared, ...] = ("round-robin", *get_args(Policy)[::-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """What one policy made of the load.

    Args:
        cached_ratio: share of prompt tokens that an engine held already.
        ttft_p50_s, ttft_p99_s: time to first token; None when no request was answered.
        failed: requests that no engine took.
        busiest_ratio: requests of the engine with the most, over the mean of all.
    """

    policy: Compared
    cached_ratio: float
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    utilisation_ratio: float
    failed: int
    busiest_ratio: float


class RoundRobin:
    """Each engine in turn."""

    def __init__(self) -> None:
        self._turn = count()

    def __call__(
        self,
        endpoints: Sequence[EndpointView],
        request: RouteRequest,  # noqa: ARG002 - what it does not look at is the point
        *,
        tried: Collection[str],
    ) -> Decision:
        left = [one for one in endpoints if one.url not in tried]
        if not left:
            return Decision(outcome="no_engine", endpoint=None)
        return Decision(outcome="routed", endpoint=left[next(self._turn) % len(left)].url)


def compare_policies(
    configs: Sequence[TwinConfig],
    arrivals: Callable[[], Schedule],
    *,
    routing: RoutingSettings,
    policies: Sequence[Compared] = COMPARED,
    priorities: Mapping[str, int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[PolicyResult, ...]:
    """The load of ``arrivals`` (a new schedule each time it is called) under each of ``policies``.

    ``routing`` is the document's; its policy is replaced, its weights and bounds hold for all.
    """
    results = []
    for policy in policies:
        if policy == "round-robin":
            run = simulate(
                configs, arrivals(), pick=RoundRobin(), priorities=priorities, keep_gaps=False, progress=progress
            )
        else:
            settings = replace(routing, policy=policy)
            run = simulate(
                configs, arrivals(), routing=settings, priorities=priorities, keep_gaps=False, progress=progress
            )
        results.append(policy_result(policy, run))
    return tuple(results)


def policy_result(policy: Compared, run: SimulatedRun) -> PolicyResult:
    """The figures of one run."""
    ttfts_s = sorted(record.ttft_s for record in run.records if record.ttft_s is not None)
    by_engine: dict[str, int] = {}
    for record in run.records:
        by_engine[record.engine] = by_engine.get(record.engine, 0) + 1
    by_engine.pop("", None)
    answered = sum(by_engine.values())
    return PolicyResult(
        policy=policy,
        cached_ratio=run.cached_ratio,
        ttft_p50_s=percentile(ttfts_s, 50) if ttfts_s else None,
        ttft_p99_s=percentile(ttfts_s, 99) if ttfts_s else None,
        utilisation_ratio=run.utilisation_ratio,
        failed=sum(not record.ok for record in run.records),
        busiest_ratio=max(by_engine.values()) * len(run.engines) / answered if answered else 0.0,
    )
