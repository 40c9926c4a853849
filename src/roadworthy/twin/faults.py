"""What goes wrong with an engine, as an input of the twin: a fault has a moment, perhaps an end, and a size.

====================  =============================================================================================
``crash``             every request is lost (it ends with reason ``abort``), nothing is accepted before ``until_s``,
                      and the prefix cache is empty then; a slow restart is a late ``until_s``
``slow``              steps take ``size`` times as long: a throttled GPU, or a rank that all others wait for; with
                      ``stage``, only that pipeline stage does, and the others wait for it
``link``              the link that limits has 1/``size`` of its rate, and collectives ``size`` times their latency
``hot-experts``       the fullest expert rank has ``size`` times the mean load beyond its share: a traffic mix that
                      picks few experts
``leak``              ``size`` free KV blocks a second are lost, until the pool has none or the engine restarts
``refuse``            a share ``size`` of new requests is refused (``queue_full``), as vLLM refuses streams
``forget``            the prefix cache loses what nobody uses: a reset, or state that did not follow a re-route
====================  =============================================================================================

The factors are what an operator states, not a model of the hardware: where they come from is measured elsewhere.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Literal

from roadworthy.core.errors import Refused
from roadworthy.twin.engine import Detail, Engine
from roadworthy.twin.requests import Finished, Output
from roadworthy.twin.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.plan.timing import RooflineStepTime
    from roadworthy.twin.config import TwinConfig
    from roadworthy.twin.requests import Sequence, TwinRequest

FaultKind = Literal["crash", "slow", "link", "hot-experts", "leak", "refuse", "forget"]

LEAK_EVERY_S: Final = 1.0
_AT_LEAST_ONE: Final = ("slow", "link")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault; the module says what ``size`` means for each kind.

    Raises:
        ValueError: it ends before it begins, or its size means nothing.
    """

    kind: FaultKind
    from_s: float
    until_s: float = math.inf
    size: float = 1.0
    stage: int | None = None

    def __post_init__(self) -> None:
        if self.until_s <= self.from_s:
            raise ValueError(f"{self.kind} from {self.from_s} s until {self.until_s} s: it ends before it begins")
        if self.kind in _AT_LEAST_ONE and self.size < 1:
            raise ValueError(f"{self.kind} by a factor of {self.size}: wanted at least 1")
        if self.size < 0 or (self.kind == "refuse" and self.size > 1):
            raise ValueError(
                f"{self.kind} of size {self.size}: wanted {'0 to 1' if self.kind == 'refuse' else '0 or more'}"
            )
        if self.stage is not None and self.kind != "slow":
            raise ValueError(f"{self.kind} of stage {self.stage}: only slow knows stages")


class FaultyEngine(Engine):
    """An :class:`Engine` that things happen to.

    A crash puts out every request that was here, with reason ``abort`` and the tokens it had; whoever drives the
    engine sends them again, or not.
    """

    def __init__(
        self,
        config: TwinConfig,
        faults: Iterable[Fault],
        *,
        detail: Detail = "requests",
        repeat_steps: bool = True,
    ) -> None:
        super().__init__(config, detail=detail, repeat_steps=repeat_steps)
        self._changes: list[tuple[float, int, Fault, bool]] = []
        for fault in faults:
            if fault.stage is not None and not 0 <= fault.stage < self._stages:
                raise ValueError(f"slow stage {fault.stage}: the pipeline has stages 0 to {self._stages - 1}")
            self._changes.append((fault.from_s, len(self._changes), fault, True))
            if fault.until_s < math.inf:
                self._changes.append((fault.until_s, len(self._changes), fault, False))
        heapify(self._changes)
        self._active: list[Fault] = []
        self.leaked_blocks = 0

    @property
    def down(self) -> bool:
        """Whether it has crashed and not come back."""
        return any(fault.kind == "crash" for fault in self._active)

    def add(self, request: TwinRequest, now_s: float) -> None:
        self._catch_up(now_s)
        if self.down:
            raise Refused("the engine is down", code="engine_down", status=503)
        for fault in self._active:
            if fault.kind == "refuse" and zlib.crc32(request.id.encode()) / 2**32 < fault.size:
                self._refused += 1
                raise Refused("the engine refuses the stream", code="queue_full", status=503)
        super().add(request, now_s)

    def next_event_s(self) -> float | None:
        due_s = self._due()
        if not self._changes or not self._sequences:
            return due_s  # what happens to an idle engine can wait until somebody asks
        return self._changes[0][0] if due_s is None else min(due_s, self._changes[0][0])

    def advance(self, now_s: float, *, stop_at_output: bool = False) -> tuple[Output, ...]:
        outputs: list[Output] = []
        while self._changes and self._changes[0][0] <= now_s:
            at_s = max(self._changes[0][0], self._now_s)
            outputs += super().advance(at_s, stop_at_output=stop_at_output)
            if stop_at_output and outputs:
                return tuple(outputs)
            outputs += self._change(at_s)
            if stop_at_output and outputs:
                return tuple(outputs)
        outputs += super().advance(now_s, stop_at_output=stop_at_output)
        return tuple(outputs)

    def _catch_up(self, now_s: float) -> None:
        """Let faults happen that nobody was there to notice."""
        while self._changes and self._changes[0][0] <= now_s and not self._sequences:
            self._change(max(self._changes[0][0], self._now_s))

    def _change(self, at_s: float) -> list[Output]:
        """Begin or end the next fault; returns the requests that this lost."""
        _, order, fault, begins = heappop(self._changes)
        self._settle_stretches(at_s)
        outputs: list[Output] = []
        if fault.kind == "leak":
            self._leak(fault, order, at_s)
        elif fault.kind == "forget":
            if begins:
                self._scheduler.pool.forget()
        elif begins:
            self._active.append(fault)
            if fault.kind == "crash":
                outputs = self._crash(at_s)
        else:
            self._active.remove(fault)
        self._apply()
        return outputs

    def _leak(self, fault: Fault, order: int, at_s: float) -> None:
        if at_s > fault.from_s:
            self.leaked_blocks += self._scheduler.pool.leak(round(fault.size * LEAK_EVERY_S))
        if at_s + LEAK_EVERY_S < fault.until_s and self._scheduler.pool.free_blocks:
            heappush(self._changes, (at_s + LEAK_EVERY_S, order, fault, True))

    def _crash(self, at_s: float) -> list[Output]:
        lost = [Output(seq.request.id, at_s, self._lost(seq, at_s)) for seq in self._sequences.values()]
        self._finished["abort"] += len(lost)
        old, self._scheduler = self._scheduler, Scheduler(self.config)
        for name in ("preemptions", "query_tokens", "hit_tokens"):
            setattr(self._scheduler, name, getattr(old, name))
        self._sequences.clear()
        self._late.clear()
        self._in_flight.clear()
        self._stage_free_s = [-math.inf] * self._stages
        self._spare_lane = self._due_s = self._resting = None
        self.leaked_blocks = 0
        return lost

    def _lost(self, seq: Sequence, at_s: float) -> Finished:
        if seq.lane is not None:
            seq.lane.leave(seq)
        return seq.finished("abort", seq.last_s if seq.generated else at_s)

    def _apply(self) -> None:
        """Set the step times as the active faults leave them."""
        step_time, factors = self.config.step_time, [1.0] * self._stages
        for fault in self._active:
            if fault.kind == "slow":
                for stage in range(self._stages) if fault.stage is None else (fault.stage,):
                    factors[stage] *= fault.size
            else:
                step_time = degraded(step_time, fault)
        if self._stages == 1:
            step_time, factors = _slower(step_time, factors[0]), [1.0]
        self._stage_factors = factors
        self._seconds = step_time.real_step() if self.config.draft_tokens else step_time.compiled()


def degraded(step_time: RooflineStepTime, fault: Fault) -> RooflineStepTime:
    """Step times under one ``link`` or ``hot-experts`` fault; unchanged by others."""
    if fault.kind == "link":
        return replace(
            step_time,
            link_bytes_per_s=step_time.link_bytes_per_s / fault.size,
            comm_latency_s=step_time.comm_latency_s * fault.size,
        )
    if fault.kind == "hot-experts":
        return replace(step_time, expert_excess_ratio=max(step_time.expert_excess_ratio, fault.size))
    return step_time


def _slower(step_time: RooflineStepTime, factor: float) -> RooflineStepTime:
    """Everything of a step ``factor`` times as long."""
    if factor == 1:
        return step_time
    return replace(
        step_time,
        launch_s=step_time.launch_s * factor,
        prefill_launch_s=step_time.prefill_launch_s * factor,
        sequence_s=step_time.sequence_s * factor,
        draft_launch_s=step_time.draft_launch_s * factor,
        comm_latency_s=step_time.comm_latency_s * factor,
        hbm_bytes_per_s=step_time.hbm_bytes_per_s / factor,
        flops_per_s=step_time.flops_per_s / factor,
        link_bytes_per_s=step_time.link_bytes_per_s / factor,
    )
