"""A request that waits or runs, as the governor holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.route.govern.fair import FairClass, Line
    from roadworthy.route.govern.prefill import Backlog
    from roadworthy.route.govern.seats import Seat
    from roadworthy.route.govern.values import Grant, QueueClass, Treatment


class HeldPermit:
    """See :class:`govern.values.Permit`. Owners read; only the governor writes.

    ``waiting`` and ``running`` are never both true; both are false once it is over. ``owner``, ``entered_s`` and
    ``give_up_s`` are set only where it had to wait. ``backlog`` is that of the engine which has its prompt still to
    compute, where that is bounded; ``streams`` says that its first token will tell.
    """

    __slots__ = (
        "_charged_output", "_waited_s", "backlog", "borrowed", "entered_s", "fair", "give_up_s", "grant", "line",
        "owner", "queue_class", "running", "seat", "streams", "treatment", "waiting",
    )  # fmt: skip

    owner: object
    entered_s: float
    give_up_s: float
    _waited_s: float

    def __init__(
        self,
        grant: Grant,
        seat: Seat,
        treatment: Treatment | None,
        queue_class: QueueClass,
        fair: FairClass,
        line: Line,
        *,
        streams: bool,
        running: bool,
    ) -> None:
        self.grant = grant
        self.seat = seat
        self.treatment = treatment
        self.queue_class = queue_class
        self.fair = fair
        self.line = line
        self.borrowed = grant.borrowed
        self.streams = streams
        self.backlog: Backlog | None = None
        self.running = running
        self.waiting = False
        self._charged_output = 0

    @property
    def tenant_id(self) -> str:
        return self.grant.tenant_id

    @property
    def priority(self) -> int:
        return self.fair.rank

    @property
    def waited_s(self) -> float:
        return getattr(self, "_waited_s", 0.0)

    def has_its_turn(self, waited_s: float) -> None:
        """It runs from now on, after so many seconds."""
        self.running, self._waited_s = True, waited_s

    def streamed(self, output_tokens: int) -> None:
        """See :meth:`Permit.streamed`."""
        fresh = output_tokens - self._charged_output
        fair = self.fair
        if fresh >= fair.charge_every_tokens and self.running:
            if not self._charged_output:
                fair.computed_blocks += self.prompt_blocks
            self._charged_output = output_tokens
            line = self.line
            line.counter += fresh * fair.output_weight / line.weight

    @property
    def prompt_blocks(self) -> int:
        """The prompt's part of its blocks; none too many where blocks do not grow with tokens alone."""
        charge = self.grant.charge
        return charge.blocks * charge.prompt_tokens // ((charge.prompt_tokens + charge.output_tokens) or 1)

    @property
    def computed(self) -> bool:
        """Whether its prompt is computed for certain: tokens of the answer have come."""
        return self._charged_output > 0

    def uncharged_output(self, output_tokens: int) -> int:
        """Tokens of the answer that fairness has not been charged; negative where there were fewer than streamed."""
        return output_tokens - self._charged_output
