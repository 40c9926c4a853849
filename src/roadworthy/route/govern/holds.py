"""A hold-down: on after so many in a row, off again when a single request has tried it."""

from __future__ import annotations

from typing import Literal

Verdict = Literal["free", "held", "probe"]


class Hold:
    """One rule's hold-down for one group of engines.

    ::

        free --(in_a_row over, one after the other)--> held --(hold_s)--> half-open --(the probe is over)--> held
                                                                                    --(the probe is not)--> free

    While half-open one request is under way and all others are held. A probe of which nothing is heard for ``hold_s``
    is taken for lost, and the next request is one.
    """

    __slots__ = ("_probing", "_streak", "_until_s", "on")

    def __init__(self) -> None:
        self.on = False
        self._streak = 0
        self._until_s = 0.0
        self._probing = False

    def judge(self, now_s: float, hold_s: float) -> Verdict:
        """What is to be done with a request that comes now; ``probe`` only for one at a time."""
        if not self.on:
            return "free"
        if now_s < self._until_s:
            return "held"
        self._until_s = now_s + hold_s
        self._probing = True
        return "probe"

    def ended(self, over: bool | None, *, probe: bool, in_a_row: int, hold_s: float, now_s: float) -> None:
        """A request of the scenario ended; ``over`` is None where it says nothing."""
        if self.on:
            if not probe or not self._probing:
                return  # it began before the hold did
            self._probing = False
            if over is None:
                self._until_s = now_s  # the next one tries
            elif over:
                self._until_s = now_s + hold_s
            else:
                self.on, self._streak = False, 0
            return
        if over is None:
            return
        self._streak = self._streak + 1 if over else 0
        if self._streak >= in_a_row:
            self.on, self._until_s, self._probing = True, now_s + hold_s, False
