"""How routing weighs: the document's words, and what only an engineer would turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.spec.routing_values import LongLane, Policy, RoutingSpec, Weights

if TYPE_CHECKING:
    from roadworthy.spec.values import GatewaySpec

__all__ = ["LongLane", "Policy", "RoutingSettings", "Weights"]

_SPEC = RoutingSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSettings:
    """All of it. The first six are the document's (``spec.routing_values`` says what they do).

    Args:
        ring_points: of one engine on the hash ring; 160 keep its share of sessions within some 8 % of even.
        index_entries: prefixes remembered over all engines, the bound of the index's memory: some 120 bytes each, and
            some 400 where its engine publishes events.
        bytes_per_token: of a prompt, until answers' ``usage`` says better.
    """

    policy: Policy = _SPEC.policy
    weights: Weights = _SPEC.weights
    load_factor: float = _SPEC.load_factor
    prefix_load_factor: float = _SPEC.prefix_load_factor
    load_floor: int = _SPEC.load_floor
    long_lane: LongLane | None = None
    ring_points: int = 160
    index_entries: int = 65_536
    bytes_per_token: float = 4.0

    def __post_init__(self) -> None:
        if not min(self.load_factor, self.prefix_load_factor) >= 1:
            raise ValueError(f"load factors {self.load_factor}, {self.prefix_load_factor}: one is below the mean")
        if min(self.load_floor, self.ring_points, self.index_entries) < 1 or not self.bytes_per_token > 0:
            raise ValueError(f"routing settings are not positive: {self}")

    @classmethod
    def of(cls, gateway: GatewaySpec) -> RoutingSettings:
        """What the document asks for."""
        spec = gateway.routing
        return cls(
            policy=spec.policy,
            weights=spec.weights,
            load_factor=spec.load_factor,
            prefix_load_factor=spec.prefix_load_factor,
            load_floor=spec.load_floor,
            long_lane=gateway.lanes.long,
        )
