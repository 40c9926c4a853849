"""A request that waits or runs, as the governor holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.route.govern.fair import FairClass, Line
    from roadworthy.route.govern.seats import Seat
    from roadworthy.route.govern.values import Grant, QueueClass, Treatment


class HeldPermit:
    """See :class:`govern.values.Permit`. Owners read; only the governor writes.

    ``waiting`` and ``running`` are never both true; both are false once it is over. ``owner``, ``entered_s`` and
    ``give_up_s`` are set only where it had to wait.
    """

    __slots__ = (
        "_charged_output", "_every", "_output_weight", "borrowed", "entered_s", "fair", "give_up_s", "grant", "line",
        "owner", "priority", "queue_class", "running", "seat", "tenant_id", "treatment", "waited_s", "waiting",
    )  # fmt: skip

    owner: object
    entered_s: float
    give_up_s: float

    def __init__(
        self,
        grant: Grant,
        seat: Seat,
        treatment: Treatment | None,
        queue_class: QueueClass,
        fair: FairClass,
        line: Line,
        output_weight: float,
        every: int,
    ) -> None:
        self.grant = grant
        self.tenant_id = grant.tenant_id
        self.seat = seat
        self.treatment = treatment
        self.queue_class = queue_class
        self.borrowed = grant.borrowed
        self.fair = fair
        self.line = line
        self.priority = fair.rank
        self.waited_s = 0.0
        self.waiting = self.running = False
        self._charged_output = 0
        self._output_weight = output_weight
        self._every = every

    def streamed(self, output_tokens: int) -> None:
        """See :meth:`Permit.streamed`."""
        fresh = output_tokens - self._charged_output
        if fresh >= self._every and self.running:
            self._charged_output = output_tokens
            line = self.line
            line.counter += fresh * self._output_weight / line.weight

    def uncharged_output(self, output_tokens: int) -> int:
        """Tokens of the answer that fairness has not been charged; negative where there were fewer than streamed."""
        return output_tokens - self._charged_output
