"""How much of the engines' time prompts may take that are sent and not computed yet.

An engine computes prompts first come, first served. A queue of them inside it knows no tenants: ten thousand pages of
one tenant's, all within its quota, would stand before the next question of another. So no more is sent than keeps the
engines busy for a moment, and the rest waits where it can be put in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan
    from roadworthy.route.govern.permit import HeldPermit
    from roadworthy.route.govern.pool import Pool
    from roadworthy.spec.values import Deployment

BATCHES_AT_LEAST = 3
"""Batches of prompts that an engine always gets: one that it computes, one scheduled behind it, one on its way."""

SHARE_OF_TTFT = 0.25
PRESET_S = 1.0
"""Of the objective for the first token, what may be spent behind prompts that others sent before; and without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillPace:
    """How fast one engine, with so many data-parallel ranks, computes prompts when it does nothing else.

    Args:
        tokens_per_s: with full batches, as planned.
        batch_tokens: what its ranks compute in one step (``max_num_batched_tokens`` of each).
    """

    tokens_per_s: float
    batch_tokens: int

    @classmethod
    def planned(cls, judged: LayoutPlan, *, ranks: int) -> PrefillPace | None:
        """Of ``ranks`` ranks of the layout that the plan chose; None where the plan predicts no speed."""
        from roadworthy.plan.timing import StepLoad  # a gateway without a plan needs none of it

        step, setting = judged.step_time, judged.settings.get("max_num_batched_tokens")
        if step is None or setting is None or not isinstance(setting.value, int) or setting.value < 1:
            return None
        batch = setting.value
        prompt = batch if judged.demand is None else max(1.0, judged.demand.prompt_mean)
        load = StepLoad(prefill_tokens=batch, prefill_context_tokens=int(batch * prompt / 2))
        return cls(tokens_per_s=ranks * batch * step.pipeline_stages / step.step_s(load), batch_tokens=ranks * batch)

    def tokens_in(self, backlog_s: float) -> int:
        """Tokens of prompts that take it about so long; never so few that it would stand still in between."""
        return max(int(self.tokens_per_s * backlog_s), BATCHES_AT_LEAST * self.batch_tokens)


def backlog_s_of(deployment: Deployment) -> float | None:
    """How long engines may be busy with prompts that are sent already; None where that is not bounded."""
    asked, ttft_s = deployment.governance.prefill_backlog_s, deployment.sla.ttft_p99_s
    if asked is not None:
        return asked or None
    return PRESET_S if ttft_s is None else SHARE_OF_TTFT * ttft_s


class Uncomputed:
    """The prompts that are at the engines and not computed yet, as far as can be told.

    The first token of a stream says that its prompt is done (``begun``). An answer that comes in one piece says so only
    at its very end, so for those time is reckoned: prompts are computed in the order in which they were sent, at the
    planned pace, or sooner where an engine says that nothing waits in it (``caught_up``).
    """

    __slots__ = ("_due_s", "_pool", "_silent", "tokens_per_s")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.tokens_per_s = 0.0  # of all engines; 0 where nobody has said
        self._due_s = 0.0
        self._silent: deque[tuple[float, float, HeldPermit]] = deque()  # sent, due, whose

    def sent(self, permit: HeldPermit, now_s: float) -> None:
        """``permit`` runs from now on; its prompt is counted in the pool already."""
        due_s = (self._due_s if self._due_s > now_s else now_s) + permit.uncomputed_tokens / self.tokens_per_s
        self._due_s = due_s
        if not permit.streams:
            self.pass_to(now_s)
            self._silent.append((now_s, due_s, permit))

    def begun(self, permit: HeldPermit) -> bool:
        """Its prompt is computed. Whether that was news."""
        tokens = permit.uncomputed_tokens
        if not tokens or not permit.running:
            return False
        permit.uncomputed_tokens = 0
        self._pool.prompt_tokens -= tokens
        return True

    def pass_to(self, now_s: float) -> None:
        """Time has passed: what should be computed by now counts as that."""
        silent = self._silent
        while silent and (silent[0][1] <= now_s or not silent[0][2].running):
            self.begun(silent.popleft()[2])

    def caught_up(self, at_s: float) -> None:
        """At that moment nothing waited inside any engine: what was sent before is being computed."""
        silent = self._silent
        while silent and silent[0][0] < at_s:
            self.begun(silent.popleft()[2])
        self._due_s = min(self._due_s, at_s)
