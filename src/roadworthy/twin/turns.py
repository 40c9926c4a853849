"""When an engine forms a step: the turns of its core's loop, see :mod:`twin.core_loop`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from roadworthy.plan.timing import POLL_S
from roadworthy.twin.lane import Lane
from roadworthy.twin.steps import Steps
from roadworthy.twin.times import Stretch

if TYPE_CHECKING:
    from roadworthy.twin.batch import Batch


class Turns(Steps):
    """Three ways of one loop: one batch at a time; more, with turns in vain between them; and places in a cycle, which
    a pipeline has with asynchronous scheduling (exactly with ``_stagger``, in lanes with ``_cycle``)."""

    def _schedule(self, now_s: float, lane: Lane | None = None) -> None:
        """Form batches while there is a free place in the pipeline and something to run; ``lane`` has just ended."""
        if self._cycle:
            self._take_turns(now_s)
            return
        before = len(self._in_flight)
        self._form(now_s, lane)
        if not self._one_place and not self._stagger:
            self._wait(now_s)
        if self._late and (len(self._in_flight) > before or not self._in_flight):
            for seq in self._late:
                self._scheduler.enqueue(seq)
            self._late.clear()

    def _take_turns(self, now_s: float) -> None:
        """Turns of a pipeline with asynchronous scheduling, until the one of the batch whose result comes next.

        vLLM takes that turn now as well, and what it schedules runs after the result. Here it is formed when the result
        is there, so that a lane has one step under way; requests that come in between are kept for the next turn.
        """
        while True:
            for seq in self._late:
                self._scheduler.enqueue(seq)
            self._late.clear()
            if self._in_flight:
                ahead = self._loop.turn - self._in_flight[0].turn
                if ahead > self._cycle or (ahead == self._cycle and _samples(self._in_flight[0])):
                    return
            if not self._form_one(now_s, None):
                self._turn_in_vain(now_s)
                return

    def _wait(self, now_s: float) -> None:
        """The core looks at the oldest result when it has taken its turns in vain, not before."""
        if self._in_flight:
            self._hold_back(self._loop.waits_from_s(self._in_flight[0].turn, now_s))

    def _hold_back(self, until_s: float) -> None:
        """Let the oldest result be handled no sooner."""
        flight = self._in_flight[0]
        if flight.done_s < until_s:
            flight.done_s = until_s
            if isinstance(flight, Lane) and flight.stretch is not None:
                start_s = flight.stretch.start_s
                flight.stretch = Stretch(flight.stretch.first, 1, start_s, until_s - start_s, 0.0)

    def _go_on(self, flight: Lane | Batch, at_s: float) -> None:
        """Schedule again, now that the result of ``flight`` has been handled, or let the core sleep first."""
        lane = flight if isinstance(flight, Lane) else None
        if self._cycle:
            taken = self._loop.turn - flight.turn > self._cycle  # by prompts that had not to wait for its tokens
            if taken and lane is not None:
                lane.dissolve()
            if (taken and not self._vain) or (not taken and self._form_one(at_s, lane)):
                self._take_turns(at_s)
            elif taken:
                self._sleep(at_s)
            else:
                self._turn_in_vain(at_s)
            return
        if self._one_place or not (self._vain if self._stagger else self._loop.result(flight.turn)):
            self._schedule(at_s, lane)
            if self._late_admission and not self._in_flight:  # so there was no step behind this one
                self._awake_s = at_s + POLL_S
                self._want_schedule(at_s)
            return
        self._resting = lane
        self._sleep(at_s)

    def _has_place(self) -> bool:
        flights = self._in_flight
        return not flights or (not self._one_place and self._loop.free_places(flights[0].turn) > 0)

    def _want_schedule(self, now_s: float) -> None:
        """Schedule for someone who is there, unless the core waits for a result."""
        scheduler = self._scheduler
        if self._due_s is None and (
            scheduler.may_admit or scheduler.prefilling or len(scheduler.running) > self._sampling()
        ):
            if not self._in_flight:
                self._due_s = max(now_s, self._awake_s)
            elif not (self._one_place or self._stagger or self._cycle):
                self._due_s = self._loop.next_look_s(self._in_flight[0].turn, now_s)

    def _form(self, now_s: float, lane: Lane | None) -> None:
        while self._has_place() and self._form_one(now_s, lane):
            lane = None
            if self._one_place:
                return
        if self._stagger and self._has_place():
            self._turn_in_vain(now_s)

    def _turn_in_vain(self, now_s: float) -> None:
        """Take a turn that schedules nothing, and the next one after the core's sleep if the queue has a place."""
        turn = self._loop.take_turn()
        if self._stagger:
            self._sampled_s[turn % self._stagger] = -math.inf
        self._vain = True
        if self._scheduler.running or self._scheduler.may_admit or self._late:
            if self._cycle:
                full = bool(self._in_flight) and self._loop.turn - self._in_flight[0].turn > self._cycle
            else:
                full = not self._has_place()
            if not full:
                self._sleep(now_s)
        elif self._cycle:
            self._awake_s = now_s + POLL_S

    def _sleep(self, now_s: float) -> None:
        """The core's sleep, and its next turn after that."""
        self._due_s = now_s + POLL_S
        if self._in_flight:
            self._hold_back(self._due_s)


def _samples(flight: Lane | Batch) -> bool:
    """Whether a step brings tokens."""
    return (isinstance(flight, Lane) and bool(flight.members)) or any(
        entry.samples for entry in flight.entries.values()
    )
