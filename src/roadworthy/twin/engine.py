"""The twin: a stepped machine that takes requests and moments, and says which token came when.

Nothing happens between calls. ``next_event_s`` tells when something will; ``advance`` makes everything up to a
moment happen. The virtual driver jumps from event to event, the server sleeps until the next one.

A batch passes ``pipeline_stages`` equal stages, first in first out, each busy for its share of the step time; so up
to that many batches are under way at once, and a new one is formed whenever there is a free place and something to
run. (vLLM looks for new requests when it handles a result, so that at low load its micro-batches merge; the twin's do
not.) CPU work is in the step time's fixed cost.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Literal

from roadworthy.core.errors import Refused
from roadworthy.twin.blocks import Holding
from roadworthy.twin.prompt import Segment, block_contents
from roadworthy.twin.requests import EngineStats, Finished, Output, Sequence
from roadworthy.twin.scheduler import Scheduler

if TYPE_CHECKING:
    from roadworthy.twin.batch import Batch
    from roadworthy.twin.config import TwinConfig
    from roadworthy.twin.requests import FinishReason, TwinRequest

Detail = Literal["tokens", "requests"]


class Engine:
    """One simulated engine core.

    Args:
        detail: ``tokens`` puts every token out as it comes; ``requests`` only the last one of each request, with the
            times of all.
        repeat_steps: let batches repeat plain decode steps (see :mod:`twin.batch`); False schedules each one anew,
            which gives the same outputs and is there to be compared with.
    """

    def __init__(self, config: TwinConfig, *, detail: Detail = "requests", repeat_steps: bool = True) -> None:
        self.config = config
        self._tell_tokens = detail == "tokens"
        self._repeat_steps = repeat_steps
        self._scheduler = Scheduler(config)
        self._sequences: dict[str, Sequence] = {}
        self._in_flight: deque[Batch] = deque()
        self._stages = config.step_time.pipeline_stages
        self._seconds = config.step_time.compiled()
        self._stage_free_s = [-math.inf] * self._stages
        self._due_s: float | None = None
        self._now_s = -math.inf
        self._order = 0
        self._left_out = 0  # running sequences in no batch, for lack of blocks or budget
        self._prompt_tokens = self._generation_tokens = self._steps = self._refused = 0
        self._finished: dict[FinishReason, int] = {"stop": 0, "length": 0, "abort": 0}
        self._busy_s = 0.0

    @property
    def unit_tokens(self) -> int:
        """Tokens of one step of the prefix cache: hits are multiples of it."""
        return self._scheduler.pool.unit_tokens

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
        answer = Segment(request.answer_id or f"answer of {request.id}", min(request.output_tokens, room))
        cut = block_contents((*request.segments, answer), self.unit_tokens)
        contents = cut if request.contents is None else request.contents
        holding = Holding(self._scheduler.pool.keys_of(contents, salt=request.cache_salt))
        self._order += 1
        seq = Sequence(request, holding, limit=answer.tokens, order=self._order, queued_s=now_s)
        self._sequences[request.id] = seq
        self._scheduler.enqueue(seq)
        self._want_schedule(now_s)

    def abort(self, request_id: str, now_s: float) -> bool:
        """End a request and free its blocks at once, wherever it is; False when it is not here (any more)."""
        self._move_clock(now_s)
        seq = self._sequences.pop(request_id, None)
        if seq is None:
            return False
        batch = next((batch for batch in self._in_flight if batch is seq.batch), None)
        if batch is not None:
            self._catch_up(batch)
            batch.decodes = [other for other in batch.decodes if other is not seq]
            batch.prefills = [(other, tokens) for other, tokens in batch.prefills if other is not seq]
            batch.steady_until = 0
        self._scheduler.drop(seq)
        self._finished["abort"] += 1
        self._want_schedule(now_s)
        return True

    def next_event_s(self) -> float | None:
        """The moment of the next thing to happen, None while idle."""
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
        while (at_s := self.next_event_s()) is not None and at_s <= now_s:
            self._now_s = at_s
            if self._in_flight and self._in_flight[0].done_s <= at_s:
                self._complete(self._in_flight.popleft(), at_s, outputs)
            else:
                self._due_s = None
                self._schedule(at_s)
            if stop_at_output and outputs:
                return tuple(outputs)
        self._move_clock(now_s)
        return tuple(outputs)

    def progress(self, request_id: str) -> tuple[float | None, int]:
        """When the first token of an unfinished request came, None before it, and how many have come by now."""
        seq = self._sequences[request_id]
        if not seq.generated:
            return None, 0
        batch = next((batch for batch in self._in_flight if batch is seq.batch), None)
        return seq.first_token_s, seq.generated + (len(batch.ends_s) if batch is not None else 0)

    def stats(self) -> EngineStats:
        """The counters as of now, repeated steps included."""
        scheduler = self._scheduler
        pending = sum(len(batch.ends_s) * len(batch.decodes) for batch in self._in_flight)
        return EngineStats(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            kv_usage_ratio=scheduler.pool.usage_ratio,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generation_tokens + pending,
            prefix_cache_query_tokens=scheduler.query_tokens,
            prefix_cache_hit_tokens=scheduler.hit_tokens,
            preemptions=scheduler.preemptions,
            refused=self._refused,
            finished=dict(self._finished),
            steps=self._steps,
            busy_s=self._busy_s,
        )

    def _move_clock(self, now_s: float) -> None:
        pending_s = self.next_event_s()
        if now_s < self._now_s or (pending_s is not None and pending_s < now_s):
            raise ValueError(f"at {now_s}: time stands at {self._now_s}, and something is due at {pending_s}")
        self._now_s = now_s

    def _want_schedule(self, now_s: float) -> None:
        """Schedule at the next ``advance`` when there is a place in the pipeline and someone for it."""
        place = len(self._in_flight) < self._stages
        if self._due_s is None and place and (self._scheduler.may_admit or self._left_out):
            self._due_s = now_s

    def _schedule(self, now_s: float) -> None:
        """Form batches while there is a free place in the pipeline and something to run."""
        while len(self._in_flight) < self._stages:
            batch, preempted = self._scheduler.schedule(now_s)
            if batch is not None:
                self._launch(batch, now_s)
            elif not preempted:
                break
        under_way = sum([len(batch.decodes) + len(batch.prefills) for batch in self._in_flight])
        self._left_out = len(self._scheduler.running) - under_way

    def _launch(self, batch: Batch, now_s: float) -> None:
        """Send ``batch`` through the pipeline: every stage takes it in turn, as soon as both are free."""
        prompts = sum([tokens for _, tokens in batch.prefills])
        stage_s = self._seconds(prompts, batch.prefill_pairs, len(batch.decodes), batch.context_tokens) / self._stages
        free_s = self._stage_free_s
        leaves_s = now_s
        for stage in range(self._stages):
            leaves_s = free_s[stage] = max(leaves_s, free_s[stage]) + stage_s
        batch.done_s = leaves_s
        self._in_flight.append(batch)
        self._steps += 1
        self._busy_s += stage_s

    def _complete(self, batch: Batch, at_s: float, outputs: list[Output]) -> None:
        if self._repeat_steps and self._repeats(batch):
            batch.ends_s.append(at_s)
            if self._tell_tokens:
                outputs.extend([Output(seq.request.id, at_s, None) for seq in batch.decodes])
            batch.context_tokens += len(batch.decodes)
            self._launch(batch, at_s)
            return
        self._catch_up(batch)
        self._settle(batch, at_s, outputs)
        self._due_s = None
        self._schedule(at_s)

    def _repeats(self, batch: Batch) -> bool:
        """Whether scheduling now would give this very batch again; the blocks it needs are then taken."""
        scheduler = self._scheduler
        if batch.steady_until < 0:
            batch.look_ahead()
        ended = len(batch.ends_s) + 1
        if ended >= batch.steady_until or self._left_out or scheduler.may_admit:
            return False
        if batch.growth and batch.growth[0][0] <= ended + 1:
            # a new cached prefix may let a waiting request in, so with one waiting the scheduler decides
            return not scheduler.waiting and scheduler.grow_repeated(batch, ended)
        return True

    def _catch_up(self, batch: Batch) -> None:
        """Credit the repeated steps to the batch's sequences."""
        steps = len(batch.ends_s)
        if not steps:
            return
        for seq in batch.decodes:
            seq.computed += steps
            seq.generated += steps
            if not self._tell_tokens:
                seq.times_s.extend(batch.ends_s)
        self._generation_tokens += steps * len(batch.decodes)
        batch.ends_s = []

    def _settle(self, batch: Batch, at_s: float, outputs: list[Output]) -> None:
        """Account for the step that ended: who has a token, and who is done."""
        for seq in batch.decodes:
            seq.batch = None
            seq.computed += 1
            self._token(seq, at_s, outputs)
        for seq, tokens in batch.prefills:
            seq.batch = None
            seq.computed += tokens
            if seq.computed == seq.prompt_tokens + seq.generated:
                self._token(seq, at_s, outputs)

    def _token(self, seq: Sequence, at_s: float, outputs: list[Output]) -> None:
        seq.generated += 1
        self._generation_tokens += 1
        if seq.generated == 1:
            seq.first_token_s = at_s
            self._prompt_tokens += seq.prompt_tokens
        if not self._tell_tokens:
            seq.times_s.append(at_s)
        if seq.generated == seq.limit:
            outputs.append(Output(seq.request.id, at_s, self._finish(seq, at_s)))
        elif self._tell_tokens:
            outputs.append(Output(seq.request.id, at_s, None))

    def _finish(self, seq: Sequence, at_s: float) -> Finished:
        reason: FinishReason = seq.request.ends_with if seq.limit == seq.request.output_tokens else "length"
        self._scheduler.drop(seq)
        del self._sequences[seq.request.id]
        self._finished[reason] += 1
        return Finished(
            reason=reason,
            prompt_tokens=seq.prompt_tokens,
            cached_tokens=seq.cached_tokens,
            output_tokens=seq.generated,
            queued_s=seq.queued_s,
            scheduled_s=seq.scheduled_s,
            first_token_s=seq.first_token_s,
            last_token_s=at_s,
            preemptions=seq.preemptions,
            token_times_s=tuple(seq.times_s),
        )
