"""When vLLM's engine core schedules, where more than one batch may be under way.

``EngineCore.step_with_batch_queue`` (vLLM 0.32 and 0.33) takes turns. In each it looks for new requests, schedules what
it can, and puts the batch into a queue, an empty one too while requests are unfinished. While the queue has places, the
next turn follows: at once after a batch, after a sleep when nothing was scheduled. Once it is full the core waits for
the oldest batch and handles its result; empty ones are passed over. So a request that comes while a batch is under way
is seen within a few milliseconds of the last turn or not before the next result, at low load micro-batches merge, and
every result that is waited for with an empty batch in the queue costs one sleep more.

Turns are numbered, and a batch has the number of the turn in which it was formed: what counts is how many came since
the oldest batch, whatever they scheduled.

In a pipeline with asynchronous scheduling (vLLM's own choice with its V2 model runner) a request that was scheduled in
a turn decodes again as many turns later as there are stages, results or not. So each batch has its place in that cycle,
and a turn may find something although nobody came.
"""

from __future__ import annotations

import math

from roadworthy.plan.timing import POLL_S


class CoreLoop:
    """The turns of one core with ``places`` batches in its queue."""

    __slots__ = ("_turns", "_vain_from_s", "places")

    def __init__(self, places: int) -> None:
        self.places = places
        self._turns = 0
        self._vain_from_s = -math.inf  # the first of the turns that find nothing to schedule

    @property
    def turn(self) -> int:
        """The number of the next turn."""
        return self._turns

    def take_turn(self) -> int:
        """The number of a turn that is taken."""
        turn = self._turns
        self._turns = turn + 1
        return turn

    def free_places(self, oldest: int) -> int:
        """Turns until the core waits for the batch of turn ``oldest``."""
        return self.places - (self._turns - oldest)

    def waits_from_s(self, oldest: int, now_s: float) -> float:
        """When the core waits for the batch of turn ``oldest``, now that it can schedule no more: turns in vain follow
        until the queue is full."""
        self._vain_from_s = now_s
        return now_s + max(0, self.free_places(oldest) - 1) * POLL_S

    def next_look_s(self, oldest: int, now_s: float) -> float | None:
        """When the core next looks for new requests, None when it waits for the batch of turn ``oldest``. The turns in
        vain before are taken."""
        vain = max(1, math.ceil((now_s - self._vain_from_s) / POLL_S - 1e-9))
        if vain >= self.free_places(oldest):
            return None
        self._turns += vain
        return max(now_s, self._vain_from_s + vain * POLL_S)

    def result(self, turn: int) -> bool:
        """Note that the result of the oldest batch, of ``turn``, has been handled; whether the core sleeps before its
        next turn."""
        vain = self.free_places(turn)
        self._turns += vain
        return vain > 0
