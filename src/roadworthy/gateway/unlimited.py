"""The short way of a tenant that nothing bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.route.govern.values import CLASS_RANK, Treatment

if TYPE_CHECKING:
    from roadworthy.route.govern.values import Grant, QueueClass
    from roadworthy.spec.values import Tenant


class Unlimited:
    """Ticket and permit in one for all requests of a tenant that nothing bounds: it has no limit that is counted, no
    business rule looks at it, and the engines' room is not bounded. Nothing is reserved, so nothing is given back.
    ``adopted`` are grants for those that run when the tenant gets a limit."""

    __slots__ = ("adopted", "in_flight", "models", "permit", "priority", "treatment")
    borrowed = False
    queue_class: QueueClass = "normal"

    def __init__(self, tenant: Tenant) -> None:
        self.in_flight = 0
        self.adopted: list[Grant] = []
        self.permit = self
        self.treatment = Treatment(model="")
        self.follow(tenant)

    def follow(self, tenant: Tenant) -> None:
        self.models = frozenset(tenant.models)
        self.priority = CLASS_RANK["normal"] + tenant.priority

    def streamed(self, output_tokens: int) -> None:
        """Nobody else waits for its turn."""
