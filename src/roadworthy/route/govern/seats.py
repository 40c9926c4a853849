"""What a governor keeps of one tenant."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from roadworthy.route.govern.footprint import OutputLengths
from roadworthy.route.govern.values import Limits

if TYPE_CHECKING:
    from roadworthy.route.govern.fair import FairClass, Line
    from roadworthy.route.govern.footprint import BlockShape
    from roadworthy.route.govern.permit import HeldPermit
    from roadworthy.spec.values import Tenant

MODELS_REMEMBERED = 64
"""Models of one tenant whose answers' lengths are remembered; a name costs a client nothing to invent."""


class Seat:
    """One tenant: its limits, what its answers are like, what of it waits.

    Args:
        expected: tokens of an answer by model, once enough are known.
        lines: by rank, the tenant's place in each class; looking it up there would cost two dictionaries.
        to_own: borrowed requests that wait, oldest first; each becomes the tenant's own when ``freed_blocks`` cover it.
        freed_blocks: of the quota, given back by requests of the tenant since, and not yet passed on.
    """

    __slots__ = (
        "expected", "freed_blocks", "lengths", "limits", "lines", "models", "priority", "tenant", "to_own", "waiting",
        "weight",
    )  # fmt: skip

    def __init__(self, tenant: Tenant, shape: BlockShape | None) -> None:
        self.expected: dict[str, int] = {}
        self.lengths: dict[str, OutputLengths] = {}
        self.lines: dict[int, tuple[FairClass, Line]] = {}
        self.to_own: deque[HeldPermit] = deque()
        self.freed_blocks = 0
        self.waiting = 0
        self.follow(tenant, shape)

    def follow(self, tenant: Tenant, shape: BlockShape | None) -> None:
        """The tenant is as ``tenant`` says from now on; what waits keeps its place."""
        self.tenant = tenant
        self.weight = tenant.weight
        self.priority = tenant.priority
        self.models = frozenset(tenant.models) if tenant.models else None
        self.limits = Limits.of(tenant, shape)
        for fair, _ in self.lines.values():
            fair.line(tenant.id, tenant.weight)

    def learn(self, model: str, output_tokens: int) -> None:
        """An answer of ``model`` ended by itself after so many tokens."""
        lengths = self.lengths.get(model)
        if lengths is None:
            if len(self.lengths) >= MODELS_REMEMBERED:
                return
            lengths = self.lengths[model] = OutputLengths()
        if lengths.learn(output_tokens):
            p90 = lengths.p90
            if p90 is not None:
                self.expected[model] = p90
