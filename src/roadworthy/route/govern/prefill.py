"""How much of the engines' time prompts may take that are sent and not computed yet.

An engine computes prompts first come, first served. A queue of them inside it knows no tenants: ten thousand pages of
one tenant's, all within its quota, would stand before the next question of another. So no more is sent than keeps the
engines busy for a moment, and the rest waits where it can be put in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.plan.timing import StepTimeModel
    from roadworthy.plan.values import LayoutPlan
    from roadworthy.route.govern.permit import HeldPermit
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
        step, setting = judged.step_time, judged.settings.get("max_num_batched_tokens")
        if step is None or setting is None or not isinstance(setting.value, int) or setting.value < 1:
            return None
        prompt = setting.value if judged.demand is None else max(1.0, judged.demand.prompt_mean)
        return cls.of(step, batch_tokens=setting.value, prompt_tokens=prompt, ranks=ranks)

    @classmethod
    def of(cls, step: StepTimeModel, *, batch_tokens: int, prompt_tokens: float, ranks: int = 1) -> PrefillPace:
        """Of ``ranks`` ranks whose steps take so long, with full batches of prompts of that length."""
        from roadworthy.plan.timing import StepLoad  # a gateway without a plan needs none of it

        load = StepLoad(prefill_tokens=batch_tokens, prefill_context_tokens=int(batch_tokens * prompt_tokens / 2))
        return cls(
            tokens_per_s=ranks * batch_tokens * step.pipeline_stages / step.step_s(load),
            batch_tokens=ranks * batch_tokens,
        )

    def tokens_in(self, backlog_s: float) -> int:
        """Tokens of prompts that take it about so long; never so few that it would stand still in between."""
        return max(int(self.tokens_per_s * backlog_s), BATCHES_AT_LEAST * self.batch_tokens)


def backlog_s_of(deployment: Deployment) -> float | None:
    """How long engines may be busy with prompts that are sent already; None where that is not bounded: by the document,
    or because long prompts have engines of their own, whose crowd is no reason to keep other prompts from the rest."""
    lane = deployment.gateway.lanes.long
    if lane is not None and lane.engines:
        return None
    asked, ttft_s = deployment.governance.prefill_backlog_s, deployment.sla.ttft_p99_s
    if asked is not None:
        return asked or None
    return PRESET_S if ttft_s is None else SHARE_OF_TTFT * ttft_s


class Engine(Protocol):
    """An engine as routing sees it: hears whether it has as many prompts as it should."""

    backlogged: bool

    @property
    def url(self) -> str: ...


class Backlog:
    """The prompts that are at one engine, or on their way to it, and not computed yet."""

    __slots__ = ("_due_s", "_engine", "_silent", "most_tokens", "tokens", "tokens_per_s")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.tokens = 0
        self.most_tokens = 0
        self.tokens_per_s = 1.0
        self._due_s = 0.0
        self._silent: deque[tuple[float, float, HeldPermit]] = deque()  # sent, due, whose

    def add(self, tokens: int) -> None:
        """So many more, or fewer."""
        self.tokens += tokens
        self._engine.backlogged = self.tokens >= self.most_tokens

    def sent(self, permit: HeldPermit, now_s: float) -> None:
        """``permit``, which is counted already, was sent. Only of answers in one piece need one remember when."""
        due_s = (self._due_s if self._due_s > now_s else now_s) + permit.uncomputed_tokens / self.tokens_per_s
        self._due_s = due_s
        if not permit.streams:
            self.pass_to(now_s)
            self._silent.append((now_s, due_s, permit))

    def pass_to(self, now_s: float) -> None:
        """Time has passed: what should be computed by now counts as that."""
        silent = self._silent
        while silent and (silent[0][1] <= now_s or not self._has(silent[0][2])):
            self._begun(silent.popleft()[2])

    def caught_up(self, at_s: float) -> None:
        """At that moment nothing waited inside the engine: what was sent before is being computed."""
        silent = self._silent
        while silent and silent[0][0] < at_s:
            self._begun(silent.popleft()[2])
        self._due_s = min(self._due_s, at_s)

    def _has(self, permit: HeldPermit) -> bool:
        return permit.running and permit.backlog is self

    def _begun(self, permit: HeldPermit) -> None:
        if self._has(permit):
            begun(permit)


def begun(permit: HeldPermit) -> None:
    """The prompt of ``permit`` is computed, or never will be. Once and for all."""
    backlog = permit.backlog
    if backlog is not None:
        permit.backlog = None
        backlog.add(-permit.uncomputed_tokens)


class Backlogs:
    """Those of all engines that can be used now. Without engines, nothing is bounded.

    The first token of a stream says that its prompt is done (``begun``). An answer that comes in one piece says so only
    at its very end, so for those time is reckoned: prompts are computed in the order in which they were sent, at the
    planned pace, or sooner where an engine says that nothing waits in it (``caught_up``).

    A request that starts is counted at the engine with the fewest tokens, and where routing sends it elsewhere, there.
    """

    __slots__ = ("_by_url", "_engines", "_reserve_ratio", "most_tokens")

    def __init__(self, reserve_ratio: float) -> None:
        self._reserve_ratio = reserve_ratio
        self._by_url: dict[str, Backlog] = {}
        self._engines: tuple[Backlog, ...] = ()
        self.most_tokens = 0

    def bound(self, engines: Sequence[Engine], most_tokens: int, tokens_per_s: float) -> None:
        """These are the engines, each of which is to have at most so many tokens and computes so many a second."""
        by_url = {}
        for engine in engines:
            backlog = self._by_url.get(engine.url)
            if backlog is None or backlog._engine is not engine:
                backlog = Backlog(engine)
            backlog.most_tokens, backlog.tokens_per_s = most_tokens, tokens_per_s
            backlog.add(0)
            by_url[engine.url] = backlog
        for url, backlog in self._by_url.items():
            if by_url.get(url) is not backlog:
                backlog._engine.backlogged = False
        self._by_url, self._engines, self.most_tokens = by_url, tuple(by_url.values()), most_tokens

    def keep(self, reserve_ratio: float) -> None:
        """Borrowed work leaves this share of the engines' time alone from now on."""
        self._reserve_ratio = reserve_ratio

    def fits(self, *, borrowed: bool) -> bool:
        """Whether one more prompt, however long, may start: what matters is that no more follows it."""
        if not self._engines:
            return True
        most = self.most_tokens * (1 - self._reserve_ratio) if borrowed else self.most_tokens
        for one in self._engines:  # noqa: SIM110 - a generator costs five times as much, twice for every request
            if one.tokens < most:
                return True
        return False

    def started(self, permit: HeldPermit) -> None:
        """``permit`` runs from now on."""
        if self._engines:
            permit.backlog = backlog = min(self._engines, key=_TOKENS)
            backlog.add(permit.uncomputed_tokens)

    def placed(self, permit: HeldPermit, url: str, now_s: float) -> None:
        """Routing sends it there."""
        backlog = permit.backlog
        if backlog is None:
            return
        there = self._by_url.get(url)
        if there is not None:
            if there is not backlog:
                backlog.add(-permit.uncomputed_tokens)
                there.add(permit.uncomputed_tokens)
                permit.backlog = there
            there.sent(permit, now_s)

    def pass_to(self, now_s: float) -> None:
        """Time has passed."""
        for one in self._engines:
            one.pass_to(now_s)

    def caught_up(self, url: str, at_s: float) -> None:
        """At that moment nothing waited inside the engine at ``url``."""
        backlog = self._by_url.get(url)
        if backlog is not None:
            backlog.caught_up(at_s)


_TOKENS = attrgetter("tokens")
