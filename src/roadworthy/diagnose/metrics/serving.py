"""What scraping itself, Kubernetes and our gateway say over time: who was gone, who restarted, who was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.diagnose.metrics.series import lasting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.metrics.series import Family
    from roadworthy.diagnose.values import Clue

GONE_S = 60.0
FAILED_SHARE, FAILED_LEAST = 0.05, 20


def gone(family: Family) -> Iterator[Clue]:
    """``engine.unreachable``: a target that answered and then did not for a minute; ``engine.restarted``."""
    for one in (*family.all("up"), *family.all("roadworthy_gateway_engine_up")):
        down = [span for span in lasting(one.when(lambda value: value == 0), GONE_S) if span[0] > one.times[0]]
        for start, end in down[:1]:
            yield one.clue("engine.unreachable", time_s=start, seconds=f"{end - start:.0f}")
    for one in family.all("process_start_time_seconds"):
        for at in range(1, len(one.values)):
            if one.values[at] > one.values[at - 1] + 1:
                yield one.clue("engine.restarted", time_s=one.times[at])
    for one in family.all("kube_pod_container_status_restarts"):
        if count := one.increase():
            at_s = next(one.times[at] for at in range(1, len(one.values)) if one.values[at] != one.values[at - 1])
            yield one.clue("k8s.restarted", time_s=at_s, count=f"{count:.0f}")


def outcomes(family: Family) -> Iterator[Clue]:
    """``gateway.failures``: more than a few per cent of the gateway's requests ended in an error."""
    grown = [(one, one.increase()) for one in family.all("roadworthy_gateway_requests")]
    total = sum(count for _, count in grown)
    for one, count in grown:
        failed = one.label("status_class").startswith("5")
        if failed and count >= FAILED_LEAST and count >= FAILED_SHARE * total:
            outcome = one.label("outcome")
            yield one.clue("gateway.failures", outcome=outcome, count=f"{count:.0f}", share=f"{count / total:.0%}")


READERS = (gone, outcomes)
