"""Long prompts in a lane of their own, so that one prefill of minutes does not stand before a hundred short answers.

The lane of a request is decided before an engine is, from the estimated tokens of its prompt. What the lane is made of
is the document's choice: engines that only long prompts use, or a number of slots on every engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.route.settings import LongLane
    from roadworthy.route.values import EndpointView, Lane


class LongPrompts:
    """How many long prompts each engine has from us now."""

    __slots__ = ("_in_flight",)

    def __init__(self) -> None:
        self._in_flight: dict[str, int] = {}

    def on(self, url: str) -> int:
        return self._in_flight.get(url, 0)

    def started(self, url: str) -> None:
        self._in_flight[url] = self._in_flight.get(url, 0) + 1

    def ended(self, url: str) -> None:
        left = self._in_flight.get(url, 0) - 1
        if left > 0:
            self._in_flight[url] = left
        else:
            self._in_flight.pop(url, None)


def in_lane(
    engines: Sequence[EndpointView], lane: Lane, policy: LongLane, long_prompts: LongPrompts
) -> tuple[list[EndpointView], str]:
    """The engines of ``lane`` among those open to the request, and a word when it is not as it should be.

    A lane of which no engine is open borrows the other's: slower beats refused. Slots are not borrowed: all of them
    taken gives an empty list.
    """
    if policy.engines:
        own = [one for one in engines if (one.url in policy.engines) == (lane == "long")]
        if own:
            return own, ""
        return list(engines), f"no engine of the {lane} lane is open: borrowing one of the other's"
    if lane == "main" or policy.slots is None:
        return list(engines), ""
    free = [one for one in engines if long_prompts.on(one.url) < policy.slots]
    return free, "" if free else f"all {policy.slots} slots for long prompts are taken on {len(engines)} engines"
