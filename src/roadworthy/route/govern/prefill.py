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
    """The prompts at one engine, or on their way to it, that are not computed yet; ``full`` when there are enough."""

    __slots__ = ("_all", "_due_s", "engine", "full", "most_tokens", "silent", "tokens", "tokens_per_s")

    def __init__(self, engine: Engine, among: Backlogs) -> None:
        self.engine = engine
        self._all = among
        self.full = False
        self.tokens = 0
        self.most_tokens = 0
        self.tokens_per_s = 1.0
        self._due_s = 0.0  # when all that was sent is computed, at the planned pace
        self.silent: deque[tuple[float, float, HeldPermit]] = deque()  # sent, due, whose

    def bound(self, most_tokens: int, tokens_per_s: float) -> None:
        """So many there should be at most, and so many are computed in a second."""
        self.most_tokens, self.tokens_per_s = most_tokens, tokens_per_s
        self.full = self.engine.backlogged = self.tokens >= most_tokens

    def take(self, permit: HeldPermit) -> None:
        """The prompt of ``permit`` is one of them."""
        permit.backlog = self
        self.tokens = tokens = self.tokens + permit.grant.charge.prompt_tokens
        if not self.full and tokens >= self.most_tokens:
            self.turn()

    def sent(self, permit: HeldPermit, now_s: float) -> None:
        """``permit``, one of them, is on its way. Only of answers in one piece need one remember when."""
        due_s = self._due_s if self._due_s > now_s else now_s
        self._due_s = due_s = due_s + permit.grant.charge.prompt_tokens / self.tokens_per_s
        if not permit.streams:
            silent = self.silent
            if silent and (silent[0][2].backlog is not self or silent[0][1] <= now_s):
                self.pass_to(now_s)
            silent.append((now_s, due_s, permit))

    def turn(self) -> None:
        """There are enough now, or no longer."""
        self.full = self.engine.backlogged = not self.full
        self._all.turned()

    def pass_to(self, now_s: float) -> None:
        """Time has passed: what should be computed by now counts as that."""
        silent = self.silent
        while silent:
            _, due_s, permit = silent[0]
            if permit.backlog is self:
                if due_s > now_s:
                    return
                begun(permit)
            silent.popleft()

    def caught_up(self, at_s: float) -> None:
        """At that moment nothing waited inside the engine: what was sent before is being computed."""
        silent = self.silent
        while silent and silent[0][0] < at_s:
            permit = silent.popleft()[2]
            if permit.backlog is self:
                begun(permit)
        self._due_s = min(self._due_s, at_s)


def begun(permit: HeldPermit) -> None:
    """The prompt of ``permit`` is computed, or never will be. Once and for all."""
    backlog = permit.backlog
    if backlog is not None:
        permit.backlog = None
        backlog.tokens = tokens = backlog.tokens - permit.grant.charge.prompt_tokens
        if backlog.full and tokens < backlog.most_tokens:
            backlog.turn()


class Backlogs:
    """Those of all engines that can be used now. Without engines, nothing is bounded.

    The first token of a stream says that its prompt is done (``begun``). An answer that comes in one piece says so only
    at its very end, so for those time is reckoned: prompts are computed in the order in which they were sent, at the
    planned pace, or sooner where an engine says that nothing waits in it (``caught_up``).

    A request is counted where routing sends it (``placed``), which is told at once; several that start together are
    counted at the engines with the fewest tokens until then (``started``).

    Args:
        shut: every engine has enough; nothing more may start.
    """

    __slots__ = ("_by_url", "_engines", "_reserve_ratio", "shut")

    def __init__(self, reserve_ratio: float) -> None:
        self._reserve_ratio = reserve_ratio
        self._by_url: dict[str, Backlog] = {}
        self._engines: tuple[Backlog, ...] = ()
        self.shut = False

    def bound(self, engines: Sequence[Engine], most_tokens: int, tokens_per_s: float) -> None:
        """These are the engines, each of which is to have at most so many tokens and computes so many a second."""
        by_url = {}
        for engine in engines:
            backlog = self._by_url.get(engine.url)
            if backlog is None or backlog.engine is not engine:
                backlog = Backlog(engine, self)
            backlog.bound(most_tokens, tokens_per_s)
            by_url[engine.url] = backlog
        for url, backlog in self._by_url.items():
            if by_url.get(url) is not backlog:
                backlog.engine.backlogged = False
        self._by_url, self._engines = by_url, tuple(by_url.values())
        self.turned()

    def turned(self) -> None:
        """An engine has enough now, or no longer."""
        self.shut = bool(self._engines) and all(one.full for one in self._engines)

    def keep(self, reserve_ratio: float) -> None:
        """Borrowed work leaves this share of the engines' time alone from now on."""
        self._reserve_ratio = reserve_ratio

    def fits_borrowed(self) -> bool:
        """Whether a prompt beyond its tenant's quota, however long, may start: what matters is that no more follows."""
        if not self._engines:
            return True
        kept_ratio = 1 - self._reserve_ratio
        for one in self._engines:  # noqa: SIM110 - a generator costs five times as much
            if one.tokens < one.most_tokens * kept_ratio:
                return True
        return False

    def started(self, permit: HeldPermit) -> None:
        """``permit`` runs from now on, and others may start before it is sent."""
        if self._engines:
            min(self._engines, key=_TOKENS).take(permit)

    def placed(self, permit: HeldPermit, url: str, now_s: float) -> None:
        """Routing sends it there."""
        there = self._by_url.get(url)
        if there is None or not permit.running:
            return
        if permit.backlog is not there:
            begun(permit)
            there.take(permit)
        there.sent(permit, now_s)

    def pass_to(self, now_s: float) -> None:
        """Time has passed."""
        for one in self._engines:
            if one.silent:
                one.pass_to(now_s)

    def caught_up(self, url: str, at_s: float) -> None:
        """At that moment nothing waited inside the engine at ``url``."""
        backlog = self._by_url.get(url)
        if backlog is not None:
            backlog.caught_up(at_s)


_TOKENS = attrgetter("tokens")
