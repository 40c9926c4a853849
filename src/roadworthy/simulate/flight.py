"""One request on its way through a simulated service, and the gate that it passes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roadworthy.advise.arrivals import PlannedRequest
    from roadworthy.core.errors import Refused
    from roadworthy.route.govern.values import Ending, Grant, Permit
    from roadworthy.route.state import Placement
    from roadworthy.route.values import RouteRequest
    from roadworthy.simulate.fleet import SimulatedEngine

TICK_S = 0.25
"""How often a queue is looked at though nothing has ended: for deadlines, and for who has aged into another class."""


class Flight:
    """A request from its arrival to its end. ``grant`` and ``permit`` are governance's, None without it; ``engine`` and
    ``placement`` are None until it is dispatched; ``id`` is ``order`` as engines and meters are told it."""

    __slots__ = ("asked", "engine", "grant", "id", "order", "permit", "placement", "planned", "priority", "waited_s")

    def __init__(self, planned: PlannedRequest, asked: RouteRequest, order: int) -> None:
        self.planned = planned
        self.asked = asked
        self.order = order
        self.id = str(order)
        self.priority = 0
        self.waited_s = 0.0
        self.grant: Grant | None = None
        self.permit: Permit | None = None
        self.engine: SimulatedEngine | None = None
        self.placement: Placement | None = None


class Gate(Protocol):
    """What stands before the engines: who may go now, who waits, who is turned away."""

    judges_gaps: bool
    """Whether ``leave`` wants to be told the 99th percentile of the gaps between tokens."""
    follows_streams: bool
    """Whether permits want to be told of tokens though nobody waits."""
    tick_s: float
    """How often flights that wait are looked at though nothing has ended."""
    bounds_prompts: bool
    """Whether it wants to hear of first tokens."""

    @property
    def borrowed(self) -> Mapping[str, int]:
        """Flights that went beyond their tenant's KV quota, by tenant."""

    @property
    def waiting(self) -> int:
        """Flights that wait."""

    def arrive(self, flight: Flight, now_s: float) -> bool:
        """Whether ``flight`` may go now; False: it waits until ``ready`` names it. Raises Refused."""

    @property
    def full_of_prompts(self) -> bool:
        """Nothing may go before a first token comes."""

    def placed(self, flight: Flight, url: str, now_s: float) -> None:
        """``flight`` goes to the engine at ``url``."""

    def awaits_first(self, flight: Flight) -> bool:
        """Whether ``flight``, which went, is under way and no first token of it was told of."""

    def began(self, flight: Flight) -> None:
        """The first token of ``flight`` has come. Ask ``ready`` afterwards."""

    def leave(
        self,
        flight: Flight,
        ending: Ending,
        now_s: float,
        *,
        output_tokens: int,
        cached_tokens: int = 0,
        ttft_s: float | None = None,
        itl_p99_s: float | None = None,
    ) -> None:
        """``flight``, which went, is over. Those that it makes room for are in ``ready``."""

    def ready(self, now_s: float) -> Sequence[Flight]:
        """Those that waited and may go now."""

    def expired(self, now_s: float) -> Sequence[tuple[Flight, Refused]]:
        """Those that waited too long."""

    def fleet_changed(self, engines: Sequence[SimulatedEngine]) -> None:
        """An engine went down or came back."""

    def scraped(self, engines: Sequence[SimulatedEngine]) -> None:
        """Engines have told anew how full they are. Ask ``ready`` afterwards."""


class OpenGate:
    """Everybody may go at once, with a tenant's priority towards the engine."""

    waiting = 0
    judges_gaps = follows_streams = bounds_prompts = full_of_prompts = False
    tick_s = TICK_S

    def __init__(self, priorities: dict[str, int]) -> None:
        self._priorities = priorities
        self.borrowed: Mapping[str, int] = {}

    def arrive(self, flight: Flight, now_s: float) -> bool:  # noqa: ARG002 - the clock is the protocol's
        flight.priority = self._priorities.get(flight.planned.tenant, 0)
        return True

    def placed(self, flight: Flight, url: str, now_s: float) -> None: ...

    def awaits_first(self, flight: Flight) -> bool:  # noqa: ARG002
        return False

    def began(self, flight: Flight) -> None: ...

    def leave(
        self,
        flight: Flight,
        ending: Ending,
        now_s: float,
        *,
        output_tokens: int,
        cached_tokens: int = 0,
        ttft_s: float | None = None,
        itl_p99_s: float | None = None,
    ) -> None: ...

    def ready(self, now_s: float) -> Sequence[Flight]:  # noqa: ARG002
        return ()

    def expired(self, now_s: float) -> Sequence[tuple[Flight, Refused]]:  # noqa: ARG002
        return ()

    def fleet_changed(self, engines: Sequence[SimulatedEngine]) -> None: ...

    def scraped(self, engines: Sequence[SimulatedEngine]) -> None: ...
