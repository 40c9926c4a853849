"""The twin: a stepped machine that takes requests and moments, and says which token came when.

Nothing happens between calls. ``next_event_s`` tells when something will; ``advance`` makes everything up to a
moment happen. The virtual driver jumps from event to event, the server sleeps until the next one.

A batch passes ``pipeline_stages`` equal stages, first in first out, each busy for its share of the step time; so up
to that many batches are under way at once (one more with asynchronous scheduling); when a new one is formed is the
business of :mod:`twin.core_loop`. CPU work is in the step time's fixed cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.core.errors import Refused
from roadworthy.twin.blocks import Holding
from roadworthy.twin.lane import Lane
from roadworthy.twin.requests import EngineStats, Output, Sequence
from roadworthy.twin.steps import Detail
from roadworthy.twin.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from roadworthy.twin.config import TwinConfig
    from roadworthy.twin.requests import TwinRequest

__all__ = ["Detail", "Engine"]


class Engine(Turns):
    """One simulated engine core.

    Args:
        detail: ``tokens`` puts every token out as it comes; ``requests`` only the last one of each request, with the
            times of all; ``ends`` the same without the times of those between the first and the last.
        repeat_steps: let requests decode in lanes (see :mod:`twin.lane`) and many steps be one event; False looks at
            every request in every step, which gives the same outputs and is there to be compared with.
    """

    def __init__(self, config: TwinConfig, *, detail: Detail = "requests", repeat_steps: bool = True) -> None:
        super().__init__(config, detail=detail, repeat_steps=repeat_steps)

    # -- cheap reads -----------------------------------------------------------------------------------------------

    @property
    def unit_tokens(self) -> int:
        """Tokens of one step of the prefix cache: hits are multiples of it."""
        return self._scheduler.pool.unit_tokens

    @property
    def running(self) -> int:
        """Requests that run."""
        return len(self._scheduler.running)

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._scheduler.waiting)

    @property
    def kv_usage_ratio(self) -> float:
        """Share of the pool in use now."""
        pool = self._scheduler.pool
        coming = 0
        for lane in self._in_flight:
            if isinstance(lane, Lane) and lane.stretch is not None and lane.stretch.steps > 1:
                ended = min(lane.stretch.ended(self._now_s), lane.stretch.steps - 1)
                coming += lane.needs(ended)
        return 1 - (pool.free_blocks - coming) / pool.total_blocks

    @property
    def busy_s(self) -> float:
        """Time that one pipeline stage has computed, as of now."""
        busy_s = self._busy_s
        for lane in self._in_flight:
            if isinstance(lane, Lane) and lane.stretch is not None and lane.stretch.steps > 1:
                stretch = lane.stretch
                ended = min(stretch.ended(self._now_s), stretch.steps - 1)
                busy_s -= stretch.end_s(stretch.steps) - stretch.end_s(ended + 1)
        return busy_s

    def progress(self, request_id: str) -> tuple[float | None, int]:
        """When the first token of an unfinished request came, None before it, and how many have come by now."""
        seq = self._sequences[request_id]
        generated, lane = seq.generated, seq.lane
        if lane is not None:
            generated += lane.steps - seq.joined
            if lane.stretch is not None:
                generated += min(lane.stretch.ended(self._now_s), lane.stretch.steps - 1)
        return (seq.first_token_s if generated else None), generated

    def stats(self) -> EngineStats:
        """The counters as of now, repeated steps included."""
        scheduler = self._scheduler
        tokens, steps = self._generation_tokens, self._steps
        for lane in self._in_flight:
            stretch = lane.stretch if isinstance(lane, Lane) else None
            if stretch is not None and stretch.steps > 1:
                assert isinstance(lane, Lane)
                ended = min(stretch.ended(self._now_s), stretch.steps - 1)
                tokens += ended * len(lane.members)
                steps -= stretch.steps - 1 - ended
        return EngineStats(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting) + len(self._late),
            kv_usage_ratio=self.kv_usage_ratio,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=tokens,
            prefix_cache_query_tokens=scheduler.query_tokens,
            prefix_cache_hit_tokens=scheduler.hit_tokens,
            preemptions=scheduler.preemptions,
            refused=self._refused,
            finished=dict(self._finished),
            steps=steps,
            busy_s=self.busy_s,
        )

    # -- requests --------------------------------------------------------------------------------------------------

    def add(self, request: TwinRequest, now_s: float) -> None:
        """Queue ``request``. Requests added before the next ``advance`` at the same moment may share a batch.

        Raises:
            Refused: ``max_num_queued_reqs`` requests are unfinished (code ``queue_full``, status 503).
            ValueError: the id is in use, the prompt leaves no room for a token, or ``now_s`` lies in the past.
        """
        self._move_clock(now_s)
        limit, room = self.config.max_num_queued_reqs, self.config.max_model_len - request.prompt_tokens
        if limit is not None and len(self._sequences) >= limit:
            self._refused += 1
            raise Refused(
                f"{len(self._sequences)} requests are unfinished, the limit is {limit}", code="queue_full", status=503
            )
        if room < 1:
            raise ValueError(
                f"request {request.id}: {request.prompt_tokens} prompt tokens leave no room in max_model_len "
                f"{self.config.max_model_len}"
            )
        if request.id in self._sequences:
            raise ValueError(f"request {request.id}: the id is in use")
        scheduler = self._scheduler
        pool = scheduler.pool
        answer_tokens = request.output_tokens if request.output_tokens <= room else room
        self._order += 1
        if pool.caching:
            pieces = self._pieces(request, answer_tokens)
            holding = pool.holding(pieces, request.prompt_tokens, salt=request.cache_salt)
        else:
            holding = Holding(None, request.prompt_tokens)
        seq = Sequence(request, holding, limit=answer_tokens, order=self._order, queued_s=now_s)
        self._sequences[request.id] = seq
        if self._late_admission and (self._in_flight or (self._cycle and self._due_s is not None)):
            self._late.append(seq)
            self._settle_stretches(now_s)
            return
        scheduler.enqueue(seq)
        if not scheduler.head_blocked:
            self._settle_stretches(now_s)
        self._want_schedule(now_s)

    def _pieces(self, request: TwinRequest, answer_tokens: int) -> Iterable[tuple[Hashable, int]]:
        if request.contents is not None:
            unit = self.unit_tokens
            return [(content, unit) for content in request.contents]
        return (*request.segments, (request.answer_id or self._order, answer_tokens))

    def abort(self, request_id: str, now_s: float) -> bool:
        """End a request and free its blocks at once, wherever it is; False when it is not here (any more)."""
        self._move_clock(now_s)
        seq = self._sequences.pop(request_id, None)
        if seq is None:
            return False
        self._settle_stretches(now_s)
        if seq.lane is not None:
            seq.lane.leave(seq)
        for flight in self._in_flight:
            flight.entries.pop(seq, None)
        if seq in self._late:
            self._late.remove(seq)
        else:
            self._scheduler.drop(seq)
        self._finished["abort"] += 1
        self._want_schedule(now_s)
        return True

    # -- time ------------------------------------------------------------------------------------------------------

    def next_event_s(self) -> float | None:
        """The moment of the next thing to happen, None while idle. Unless something is added or aborted before,
        nothing comes out until then."""
        done_s = self._in_flight[0].done_s if self._in_flight else None
        if self._due_s is None:
            return done_s
        return self._due_s if done_s is None else min(self._due_s, done_s)

    def _due(self) -> float | None:
        done_s = self._in_flight[0].done_s if self._in_flight else None
        if self._due_s is None:
            return done_s
        return self._due_s if done_s is None else min(self._due_s, done_s)

    def advance(self, now_s: float, *, stop_at_output: bool = False) -> tuple[Output, ...]:
        """Let everything up to and including ``now_s`` happen; what came out, in order of time.

        With ``stop_at_output`` the engine stands still after the first event that put something out, so that a
        caller can react to it before time goes on.
        """
        outputs: list[Output] = []
        in_flight, one_place = self._in_flight, self._one_place
        while True:
            due_s = self._due_s
            # a core that sleeps schedules before it handles a result of the same moment
            if in_flight and (
                due_s is None or in_flight[0].done_s < due_s or (one_place and in_flight[0].done_s == due_s)
            ):
                at_s = in_flight[0].done_s
                if at_s > now_s:
                    break
                self._now_s = at_s
                flight = in_flight.popleft()
                self._due_s = None
                if isinstance(flight, Lane):
                    if not flight.entries and self._repeat(flight, at_s):
                        if not one_place:
                            self._wait(at_s)
                        continue
                    self._end_lane_step(flight, at_s, outputs)
                else:
                    self._end_batch(flight, at_s, outputs)
                self._go_on(flight, at_s)
            elif due_s is None or due_s > now_s:
                break
            else:
                self._now_s = due_s
                self._due_s = None
                lane, self._resting = self._resting, None
                self._schedule(due_s, lane)
            if stop_at_output and outputs:
                return tuple(outputs)
        if now_s < self._now_s:
            raise ValueError(f"at {now_s}: time stands at {self._now_s}")
        self._now_s = now_s
        return tuple(outputs)

    def _move_clock(self, now_s: float) -> None:
        due_s, in_flight = self._due_s, self._in_flight
        if now_s < self._now_s or (due_s is not None and due_s < now_s) or (in_flight and in_flight[0].done_s < now_s):
            raise ValueError(f"at {now_s}: time stands at {self._now_s}, and something is due at {self._due()}")
        self._now_s = now_s
