"""What comes of a simulated run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from roadworthy.simulate.timeline import Timeline

if TYPE_CHECKING:
    from roadworthy.core.records import RequestRecord
    from roadworthy.route.values import ChosenBy
    from roadworthy.simulate.log import RunLog
    from roadworthy.twin.requests import EngineStats


@dataclass(frozen=True, kw_only=True)
class SimulatedRun:
    """What came of a run. ``utilisation_ratio`` is the mean share of time that a pipeline stage computed, from the
    first arrival to the last token; ``engines`` are the counters of each twin at the end; ``chosen_by`` counts what
    tipped the scales of each routing decision; ``borrowed`` counts requests beyond their tenant's KV quota, by tenant;
    ``timeline`` is what the engines looked like second by second."""

    log: RunLog
    engines: tuple[EngineStats, ...]
    utilisation_ratio: float
    chosen_by: Mapping[ChosenBy, int] = field(default_factory=dict)
    borrowed: Mapping[str, int] = field(default_factory=dict)
    timeline: Timeline = field(default_factory=Timeline, compare=False)

    @cached_property
    def records(self) -> tuple[RequestRecord, ...]:
        """Every request as `bench` would have measured it, in the order of ends."""
        return tuple(self.log.records())

    @property
    def preemptions(self) -> int:
        return sum(engine.preemptions for engine in self.engines)

    @property
    def cached_ratio(self) -> float:
        """Share of all prompt tokens that were not computed because an engine held them; 0 without any prompt."""
        log = self.log
        prompt_tokens = sum([n_in for n_in, error in zip(log.n_in, log.error, strict=True) if not error])
        return sum(log.cached) / prompt_tokens if prompt_tokens else 0.0


class Preempted(Exception):
    """A run that was to go on only as long as no engine preempts."""
