"""What a governor keeps of one tenant."""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING

from roadworthy.route.govern.footprint import OutputLengths
from roadworthy.route.govern.values import Limits

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Container

    from roadworthy.route.govern.fair import FairClass, Line
    from roadworthy.route.govern.footprint import BlockShape
    from roadworthy.route.govern.permit import HeldPermit
    from roadworthy.route.govern.waiting import WaitingRoom
    from roadworthy.spec.values import Tenant

_FEW = 4
"""Up to so many a list is looked through as quickly as a set."""

_TOGETHER = 8
"""Answers that are looked at together, which costs each next to nothing."""

MODELS_REMEMBERED = 64
"""Models of one tenant whose answers' lengths are remembered; a name costs a client nothing to invent."""


_WEIGHTS: dict[float, float] = {}
"""One object for each weight there is, as ``values`` does with limits."""


def may_use(tenant: Tenant, model: str) -> bool:
    """Whether ``tenant``'s list of models, if it has one, names ``model``."""
    return not tenant.models or model in tenant.models


class Seat:
    """One tenant: its limits, what its answers are like, what of it waits.

    Args:
        expected: tokens of an answer by model, once enough are known of one; None before.
        own_rank, own_line, own_fair: its place in the class that its priority gives it. Nearly all requests take it,
            and among ten thousand tenants each thing that need not be looked at is a miss of the cache less.
        lines: by rank, its places in other classes.
        to_own: borrowed requests that wait, oldest first, None while there never were any; each becomes the tenant's
            own when ``freed_blocks`` cover it.
        freed_blocks: of the quota, given back by requests of the tenant since, and not yet passed on.
    """

    __slots__ = (
        "_answers", "_answers_of", "expected", "freed_blocks", "lengths", "limits", "lines", "models", "own_fair",
        "own_line", "own_rank", "priority", "tenant", "to_own", "waiting", "weight",
    )  # fmt: skip

    own_fair: FairClass
    own_line: Line
    own_rank: int | None

    def __init__(self, tenant: Tenant, shape: BlockShape | None) -> None:
        self.expected: dict[str, int] | None = None
        self.lengths: dict[str, OutputLengths] = {}
        self._answers: list[int] = []
        self._answers_of = ""
        self.lines: dict[int, tuple[FairClass, Line]] = {}
        self.to_own: deque[HeldPermit] | None = None
        self.freed_blocks = 0
        self.waiting = 0
        self.own_rank = None
        self.follow(tenant, shape)

    def follow(self, tenant: Tenant, shape: BlockShape | None) -> None:
        """The tenant is as ``tenant`` says from now on; what waits keeps its place."""
        self.tenant = tenant
        self.weight = _WEIGHTS.setdefault(tenant.weight, tenant.weight) if len(_WEIGHTS) < 4096 else tenant.weight
        self.priority = tenant.priority
        if self.own_rank is not None and self.own_rank != tenant.priority:
            self.own_rank = None
        models = tuple([intern(model) for model in tenant.models])  # thousands of tenants name the same few
        self.models: Container[str] | None = (models if len(models) <= _FEW else frozenset(models)) or None
        self.limits = Limits.of(tenant, shape)
        for fair, _ in self.lines.values():
            fair.line(tenant.id, self.weight)

    def place(self, rank: int, room: WaitingRoom) -> tuple[FairClass, Line]:
        """The class of ``rank``, and the tenant's line there."""
        place = self.lines.get(rank)
        if place is None:
            fair = room.fair(rank)
            place = self.lines[rank] = fair, fair.line(self.tenant.id, self.weight)
        if rank == self.priority:
            self.own_rank, (self.own_fair, self.own_line) = rank, place
        return place

    def learn(self, model: str, output_tokens: int) -> None:
        """An answer of ``model`` ended by itself after so many tokens. Looked at some at a time."""
        if model != self._answers_of:
            self._look_at_answers()
            self._answers_of = model
        answers = self._answers
        answers.append(output_tokens)
        if len(answers) >= _TOGETHER:
            self._look_at_answers()

    def _look_at_answers(self) -> None:
        model, answers = self._answers_of, self._answers
        if not answers:
            return
        lengths = self.lengths.get(model)
        if lengths is None and len(self.lengths) < MODELS_REMEMBERED:
            lengths = self.lengths[model] = OutputLengths()
        if lengths is not None:
            lengths.learn(answers)
            p90 = lengths.p90
            if p90 is not None:
                if self.expected is None:
                    self.expected = {}
                self.expected[model] = p90
        answers.clear()
