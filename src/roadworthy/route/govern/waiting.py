"""The requests that wait for room: in classes, aged, until a deadline; and how long one more would wait."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING

from roadworthy.route.govern.fair import FairClass
from roadworthy.route.govern.pace import Pace

if TYPE_CHECKING:
    from roadworthy.route.govern.fair import Line
    from roadworthy.route.govern.permit import HeldPermit
    from roadworthy.route.govern.pool import Pool
    from roadworthy.route.govern.prefill import Backlogs
    from roadworthy.route.govern.settings import GovernSettings
    from roadworthy.route.govern.values import QueueClass

_RANK = attrgetter("rank")
_NOBODY = 2**62
"""A rank behind every class: nothing waits."""
_AGED_AT_ONCE = 500
"""Requests that move up in one call; the rest in the next. Ten thousand that came in a burst grow old in one as well,
and to move them all would hold the relay up for tens of milliseconds."""
_SLACK = 1024
"""Left-overs in a heap or queue that are put up with before they are swept out."""


class WaitingRoom:
    """All classes of one governor. ``best_rank`` is the first class in which something waits.

    A class is served before those behind it, so its order is strict; within one, :class:`FairClass`. What does not fit
    into the pool may be passed by what does, at most ``overtaken_most`` requests at a time, until it has waited for
    ``ageing_s``: then nothing passes it any more. So no room stands empty while something fits, and no request starves
    for being large.
    """

    def __init__(self, pool: Pool, backlogs: Backlogs, settings: GovernSettings) -> None:
        self.best_rank = _NOBODY
        self.count = 0
        self.by_class: dict[QueueClass, int] = {"high": 0, "normal": 0, "low": 0}
        self.by_tenant: dict[str, int] = {}
        self._pool, self._backlogs = pool, backlogs
        self._classes: dict[int, FairClass] = {}
        self._ladder: list[FairClass] = []  # every class there ever was, best first
        self._order: list[FairClass] = []
        self._ageing: deque[tuple[float, HeldPermit]] = deque()
        self._deadlines: list[tuple[float, int, HeldPermit]] = []
        self._arrivals: deque[HeldPermit] = deque()
        self._entered = 0
        self._pace = Pace()
        self.follow(settings)

    def follow(self, settings: GovernSettings) -> None:
        """The document says this from now on."""
        self._settings = settings
        self._ageing_s, self._overtaken_most = settings.queue.ageing_s, settings.overtaken_most
        for fair in self._classes.values():
            fair.output_weight, fair.charge_every_tokens = settings.output_weight, settings.charge_every_tokens

    def fair(self, rank: int) -> FairClass:
        fair = self._classes.get(rank)
        if fair is None:
            settings = self._settings
            fair = self._classes[rank] = FairClass(
                rank, output_weight=settings.output_weight, charge_every_tokens=settings.charge_every_tokens
            )
            insort(self._ladder, fair, key=_RANK)
        return fair

    def classes(self) -> tuple[FairClass, ...]:
        """Those in which something waits, best first."""
        return tuple(self._order)

    @property
    def computed_blocks(self) -> int:
        """Blocks that the prompts hold, each by itself, of requests whose answers have begun."""
        return sum(fair.computed_blocks for fair in self._classes.values())

    def join(self, permit: HeldPermit, now_s: float) -> None:
        """``permit`` waits from now on, in its class and line; its ``give_up_s`` is set."""
        if not self.count:
            self._pace.backlog_began(now_s)
        self.count += 1
        permit.waiting = True
        seat = permit.seat
        seat.waiting += 1
        self.by_tenant[permit.tenant_id] = seat.waiting
        self.by_class[permit.queue_class] += 1
        self._put(permit, now_s)
        self._entered += 1
        self._arrivals.append(permit)
        heappush(self._deadlines, (permit.give_up_s, self._entered, permit))
        if len(self._deadlines) > 2 * self.count + _SLACK:
            self._deadlines = [one for one in self._deadlines if one[2].waiting]
            heapify(self._deadlines)
            self._arrivals = deque(one for one in self._arrivals if one.waiting)

    def drop(self, permit: HeldPermit) -> None:
        """``permit`` waits no longer and was not served."""
        self._out(permit)
        permit.fair.drop(permit.line)
        self._closed(permit.fair)

    def move(self, permit: HeldPermit, fair: FairClass, line: Line, now_s: float) -> None:
        """``permit`` waits in another class from now on."""
        old_fair, old_line = permit.fair, permit.line
        permit.fair, permit.line = fair, line
        old_fair.drop(old_line)
        self._closed(old_fair)
        self._put(permit, now_s)

    def forget(self, tenant_ids: set[str]) -> None:
        """These tenants are gone, and nothing of theirs waits."""
        for fair in self._classes.values():
            for tenant_id in tenant_ids:
                fair.lines.pop(tenant_id, None)

    def rename(self, permit: HeldPermit, queue_class: QueueClass) -> None:
        """It is called so from now on; ``move`` is what changes its place."""
        self.by_class[permit.queue_class] -= 1
        permit.queue_class = queue_class
        self.by_class[queue_class] += 1

    def next(self, now_s: float) -> HeldPermit | None:
        """The request to be served now, taken out; None when nothing that waits may start."""
        if not self._pool.slot_free() or self._backlogs.shut:
            return None
        passed: list[tuple[FairClass, Line]] = []
        found: tuple[FairClass, Line] | None = None
        for fair in self._order:
            found, going_on = self._fitting(fair, passed, now_s)
            if found is not None or not going_on:
                break
        for fair, line in passed:
            fair.take_back(line)
        if found is None:
            return None
        fair, line = found
        permit = fair.take(line)
        self._out(permit)
        self._closed(fair)
        self._pace.started(now_s)
        return permit

    def age(self, now_s: float) -> None:
        """Move each request one class up that has waited for another ``ageing_s``: to the next one in which something
        waits, else to the next one there is, where nothing that comes later passes it any more."""
        ageing = self._ageing
        for _ in range(_AGED_AT_ONCE):
            if not ageing or ageing[0][0] > now_s:
                return
            _, permit = ageing.popleft()
            if not permit.waiting or permit.borrowed:
                continue
            above = _above(self._order, permit.fair.rank) or _above(self._ladder, permit.fair.rank)
            if above is None:
                self._ageing.append((now_s + self._ageing_s, permit))
            else:
                self.move(permit, above, above.line(permit.tenant_id, permit.seat.weight), now_s)

    def late(self, now_s: float, most: int | None) -> list[HeldPermit]:
        """Those whose time is over, taken out; at most ``most`` of them."""
        late: list[HeldPermit] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_s and len(late) != most:
            permit = heappop(deadlines)[2]
            if permit.waiting:
                self.drop(permit)
                late.append(permit)
        return late

    def expected_s(self, fair: FairClass, line: Line, now_s: float) -> float | None:
        """How long one more request of ``line`` would wait, if nobody came behind it; None while that is unknown.

        Ahead of it are the better classes, and in its own class either everyone or, where that is less, its tenant's
        requests with what others are served meanwhile by their weights.
        """
        per_s = self._pace.per_s(now_s) if self.count else None
        if per_s is None:
            return None
        ahead = 0
        for other in self._order:
            if other.rank >= fair.rank:
                break
            ahead += other.count
        weights = fair.weight_waiting + (0.0 if line.live else line.weight)
        turn = (line.live + 1) * weights / line.weight
        return (ahead + min(fair.count + 1.0, turn)) / per_s

    def turn_s(self, fair: FairClass, line: Line, now_s: float) -> float | None:
        """How long until the tenant's line is shorter by one; None while that is unknown."""
        per_s = self._pace.per_s(now_s) if self.count else None
        return None if per_s is None else max(1.0, fair.weight_waiting / line.weight) / per_s

    def oldest_s(self, now_s: float) -> float:
        """How long the request has waited that has waited longest; 0 when nothing waits."""
        arrivals = self._arrivals
        while arrivals and not arrivals[0].waiting:
            arrivals.popleft()
        return max(0.0, now_s - arrivals[0].entered_s) if arrivals else 0.0

    # within

    def _fitting(
        self, fair: FairClass, passed: list[tuple[FairClass, Line]], now_s: float
    ) -> tuple[tuple[FairClass, Line] | None, bool]:
        """The first line of ``fair`` whose head fits, and whether classes behind may be looked at if there is none."""
        while (line := fair.first()) is not None:
            permit = fair.head(line)
            borrowed = permit.borrowed
            if self._pool.fits(permit.grant.charge.blocks, borrowed=borrowed) and (
                not borrowed or self._backlogs.fits_borrowed()
            ):
                return (fair, line), True
            overdue = not borrowed and now_s - permit.entered_s >= self._ageing_s
            if overdue or len(passed) >= self._overtaken_most:
                return None, False
            fair.set_aside(line)
            passed.append((fair, line))
        return None, True

    def _put(self, permit: HeldPermit, now_s: float) -> None:
        fair = permit.fair
        fair.add(permit.line, permit)
        if fair.count == 1:
            insort(self._order, fair, key=_RANK)
            self.best_rank = self._order[0].rank
        if not permit.borrowed:
            self._ageing.append((now_s + self._ageing_s, permit))
            if len(self._ageing) > 2 * self.count + _SLACK:
                self._ageing = deque(one for one in self._ageing if one[1].waiting)

    def _out(self, permit: HeldPermit) -> None:
        permit.waiting = False
        self.count -= 1
        self.by_class[permit.queue_class] -= 1
        seat = permit.seat
        seat.waiting -= 1
        if seat.waiting:
            self.by_tenant[permit.tenant_id] = seat.waiting
        else:
            del self.by_tenant[permit.tenant_id]

    def _closed(self, fair: FairClass) -> None:
        """Take ``fair`` out of the order when nothing waits in it."""
        if not fair.count:
            self._order.remove(fair)
            self.best_rank = self._order[0].rank if self._order else _NOBODY


def _above(classes: list[FairClass], rank: int) -> FairClass | None:
    """The last of ``classes`` that is better than ``rank``."""
    at = bisect_left(classes, rank, key=_RANK)
    return classes[at - 1] if at else None
