"""One priority class: tenants in it are served by virtual token counters, each tenant's requests first in, first out.

Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024): a tenant's counter rises by the work done for it,
divided by its weight; the smallest counter goes next; a tenant that had nothing waiting starts at the smallest counter
of those that have, so that it gains no credit by being idle. Where nobody waits it starts at the counter that was
served last. Two tenants that always have something waiting then never differ by more than twice the largest amount
that can be charged between two of one's turns, whatever happens to the others.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.route.govern.permit import HeldPermit


_NONE: deque[HeldPermit] = deque()
"""What a line has that never had anything; nothing is put into it. An empty deque takes 600 bytes."""


class Line:
    """One tenant's requests that wait in one class, and its counter there.

    ``waiting`` may hold permits that have left already; ``live`` counts those that have not.
    """

    __slots__ = ("counter", "key", "live", "tenant_id", "waiting", "weight")

    def __init__(self, tenant_id: str, weight: float) -> None:
        self.tenant_id = tenant_id
        self.weight = weight
        self.counter = 0.0
        self.key = -1.0  # of its valid entry in the heap
        self.live = 0
        self.waiting: deque[HeldPermit] = _NONE


class FairClass:
    """The lines of one class, lowest ``rank`` served first. What a permit has to know of the settings is kept here, so
    that it need not carry it.

    The heap is lazy: counters only rise while tenants are served, so an entry is brought up to date when it comes to
    the top; one whose key is not its line's is left over. Every operation is O(log tenants), amortised.
    """

    __slots__ = (
        "_floor", "_heap", "_order", "charge_every_tokens", "computed_blocks", "count", "lines", "output_weight",
        "rank", "weight_waiting",
    )  # fmt: skip

    def __init__(self, rank: int, *, output_weight: float = 2.0, charge_every_tokens: int = 32) -> None:
        self.rank = rank
        self.output_weight, self.charge_every_tokens = output_weight, charge_every_tokens
        self.computed_blocks = 0  # of the prompts of running requests whose answers have begun
        self.count = 0
        self.weight_waiting = 0.0
        self.lines: dict[str, Line] = {}
        self._heap: list[tuple[float, int, Line]] = []
        self._floor = 0.0
        self._order = 0

    def line(self, tenant_id: str, weight: float) -> Line:
        """The tenant's line here. A weight that has changed counts from now on."""
        line = self.lines.get(tenant_id)
        if line is None:
            line = self.lines[tenant_id] = Line(tenant_id, weight)
        elif line.weight != weight:
            if line.live:
                self.weight_waiting += weight - line.weight
            line.weight = weight
        return line

    def serve_at_once(self, line: Line, work: float) -> None:
        """A request of ``line`` runs without having waited, and is charged ``work``."""
        counter = line.counter
        if counter < self._floor:
            counter = self._floor
        else:
            self._floor = counter
        line.counter = counter + work / line.weight

    def add(self, line: Line, permit: HeldPermit) -> None:
        """``permit`` waits from now on, last in its line."""
        if line.waiting is _NONE:
            line.waiting = deque()
        line.waiting.append(permit)
        self.count += 1
        if not line.live:
            first = self.first()
            line.counter = max(line.counter, first.counter if first is not None else self._floor)
            self.weight_waiting += line.weight
            self._push(line)
        line.live += 1

    def first(self) -> Line | None:
        """The line to be served next; None when nothing waits."""
        heap = self._heap
        while heap:
            key, _, line = heap[0]
            if key != line.key or not line.live:
                heappop(heap)
                if key == line.key:
                    line.key = -1.0
            elif line.counter > key:
                line.key = line.counter
                self._order += 1
                heapreplace(heap, (line.counter, self._order, line))
            else:
                return line
        return None

    def set_aside(self, line: Line) -> None:
        """Let the line after this one be ``first``; ``line`` is the first. ``take_back`` undoes it."""
        heappop(self._heap)
        line.key = -1.0

    def take_back(self, line: Line) -> None:
        if line.live:
            self._push(line)

    @staticmethod
    def head(line: Line) -> HeldPermit:
        """The request of ``line`` that came first and still waits; there is one."""
        waiting = line.waiting
        while waiting[0].line is not line or not waiting[0].waiting:
            waiting.popleft()
        return waiting[0]

    def take(self, line: Line) -> HeldPermit:
        """Take the head of ``line`` out: it is served now."""
        permit = self.head(line)
        line.waiting.popleft()
        self._floor = max(self._floor, line.counter)
        self._left(line)
        return permit

    def drop(self, line: Line) -> None:
        """One request of ``line`` has left without being served; it is marked so already, or has another line."""
        self._left(line)
        waiting = line.waiting
        if len(waiting) > 32 and len(waiting) > 2 * line.live:
            line.waiting = deque(one for one in waiting if one.waiting and one.line is line)

    def charge(self, line: Line, work: float) -> None:
        """``work`` was done for ``line``'s tenant; negative where it turned out to be less than was charged."""
        line.counter += work / line.weight
        if work < 0 and line.counter < line.key:
            self._push(line)

    def _left(self, line: Line) -> None:
        line.live -= 1
        self.count -= 1
        if not line.live:
            self.weight_waiting -= line.weight
            if not self.count:
                self.weight_waiting = 0.0  # sums of floats would drift

    def _push(self, line: Line) -> None:
        line.key = line.counter
        self._order += 1
        heappush(self._heap, (line.counter, self._order, line))
