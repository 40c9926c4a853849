"""How borrowed work that waits becomes its tenant's own: when work of the quota ends, the oldest takes its place.

What is passed on was freed in this process, so that all gateways together never own more than one quota's worth.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from roadworthy.route.govern.values import CLASS_RANK

if TYPE_CHECKING:
    from roadworthy.route.govern.permit import HeldPermit
    from roadworthy.route.govern.seats import Seat
    from roadworthy.route.govern.waiting import WaitingRoom

_SLACK = 64
"""Left-overs of a tenant's line of borrowed requests that are put up with before they are swept out."""


def remember(permit: HeldPermit) -> None:
    """``permit`` is borrowed and waits. One that is larger than the whole quota can never be the tenant's own."""
    seat = permit.seat
    quota = seat.limits.kv_blocks
    if quota is None or permit.grant.charge.blocks > quota:
        return
    if seat.to_own is None:
        seat.to_own = deque()
    seat.to_own.append(permit)
    if len(seat.to_own) > 2 * seat.waiting + _SLACK:
        seat.to_own = deque(one for one in seat.to_own if one.waiting)


def pass_on(seat: Seat, blocks: int, room: WaitingRoom, now_s: float) -> None:
    """``blocks`` of the tenant's quota are free again: its oldest borrowed requests that they cover become its own."""
    seat.freed_blocks += blocks
    to_own = seat.to_own
    while to_own:
        permit = to_own[0]
        if permit.waiting:
            needed = permit.grant.charge.blocks
            if needed > seat.freed_blocks:
                return
            seat.freed_blocks -= needed
            _own(permit, room, now_s)
        to_own.popleft()
    seat.freed_blocks = 0


def _own(permit: HeldPermit, room: WaitingRoom, now_s: float) -> None:
    permit.borrowed = False
    treatment = permit.treatment
    room.rename(permit, "normal" if treatment is None else treatment.queue_class)
    rank = CLASS_RANK[permit.queue_class] + permit.seat.priority
    if rank != permit.fair.rank:
        fair, line = permit.seat.place(rank, room)
        room.move(permit, fair, line, now_s)
