"""How an engine forms its steps, sends them through its pipeline, and settles what they brought; when it does is in
:mod:`twin.turns`.

Where nothing but decoding goes on, requests are kept in a :class:`~roadworthy.twin.lane.Lane` and many steps are one
event; otherwise :class:`~roadworthy.twin.scheduler.Scheduler` looks at every request. Both do the same.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Literal

from roadworthy.plan.timing import POLL_S
from roadworthy.twin.batch import Batch, load_of
from roadworthy.twin.config import accepted_drafts
from roadworthy.twin.core_loop import CoreLoop
from roadworthy.twin.lane import LONG_HISTORY, Lane
from roadworthy.twin.requests import Finished, Output, new_output
from roadworthy.twin.scheduler import Scheduler
from roadworthy.twin.times import NO_TIMES, GapHistogram, Stretch, TokenTimes, new_stretch

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.twin.batch import Entry
    from roadworthy.twin.config import TwinConfig
    from roadworthy.twin.requests import FinishReason, Sequence

Detail = Literal["tokens", "requests", "ends"]


class Steps:
    """The steps under way of one engine; :class:`~roadworthy.twin.turns.Turns` says when they are formed, and
    :class:`~roadworthy.twin.engine.Engine` adds requests and moments."""

    def __init__(self, config: TwinConfig, *, detail: Detail, repeat_steps: bool) -> None:
        self.config = config
        self.gaps = GapHistogram()
        """Gaps between the tokens of one request, over all requests."""
        self.on_scheduled: Callable[[], None] | None = None
        """Called each time a step has been scheduled; for tests, which then look inside."""
        self._tell_tokens = detail == "tokens"
        self._keep_times = detail == "requests"
        self._lanes = repeat_steps and not config.async_scheduling and not config.draft_tokens
        self._scheduler = Scheduler(config)
        self._sequences: dict[str, Sequence] = {}
        self._in_flight: deque[Lane | Batch] = deque()
        self._stages = config.step_time.pipeline_stages
        self._loop = CoreLoop(self._stages + config.async_scheduling)
        self._one_place = self._loop.places == 1
        self._resting: Lane | None = None  # ended, and will be scheduled again after the core's sleep
        self._awake_s = -math.inf  # when the core's sleep ends, where nothing is under way
        self._stagger = config.turns_between_tokens
        self._cycle = self._stages if config.late_admission and self._stages > 1 else 0
        self._vain = False  # the last turn scheduled nothing, in a pipeline with asynchronous scheduling
        self._sampled_s = [-math.inf] * self._stagger  # when the batch of each turn of the cycle brings its tokens
        self._seconds = config.step_time.real_step() if config.draft_tokens else config.step_time.compiled()
        self._load_s = 1 / config.offload_tokens_per_s if config.offload_blocks else 0.0
        self._stage_free_s = [-math.inf] * self._stages
        self._stage_factors = [1.0] * self._stages  # how much longer each takes than it should
        self._spare_lane: Lane | None = None  # one without members, whose history goes on
        self._due_s: float | None = None
        self._now_s = -math.inf
        self._late_admission = config.late_admission
        self._late: list[Sequence] = []  # came while a step was under way, for which the next one is formed already
        self._order = 0
        self._prompt_tokens = self._generation_tokens = self._steps = self._refused = 0
        self._finished: dict[FinishReason, int] = {"stop": 0, "length": 0, "abort": 0}
        self._busy_s = 0.0

    def _sampling(self) -> int:
        """Running requests that put out a token when a step under way ends."""
        return sum(
            [
                (len(flight.members) if isinstance(flight, Lane) else 0)
                + sum([entry.samples and seq.running for seq, entry in flight.entries.items()])
                for flight in self._in_flight
            ]
        )

    def _settle_stretches(self, now_s: float) -> None:
        """Note the steps that have ended by now, and let no more than the step under way be decided."""
        for flight in self._in_flight:
            stretch = flight.stretch if isinstance(flight, Lane) else None
            if stretch is None or stretch.steps == 1:
                continue
            assert isinstance(flight, Lane)
            ended = min(stretch.ended(now_s), stretch.steps - 1)
            drop = stretch.steps - ended - 1
            if drop:
                self._steps -= drop
                done_s = stretch.end_s(ended + 1)
                self._busy_s -= stretch.end_s(stretch.steps) - done_s
                flight.done_s = self._stage_free_s[0] = done_s  # only one stage looks ahead
            if ended:
                end_s = flight.end_some(ended)
                self._count_decoded(flight, stretch.start_s, end_s, ended)
                flight.begin(1)
            elif drop:
                flight.stretch = Stretch(stretch.first, 1, stretch.start_s, stretch.step_s, stretch.growth_s)

    # -- forming steps ---------------------------------------------------------------------------------------------

    def _form_one(self, now_s: float, lane: Lane | None) -> bool:
        """Form one batch, with the members of ``lane``, whose step has just ended; False when there is nothing to run
        in this turn."""
        scheduler = self._scheduler
        if self._lanes:
            if (
                lane is not None
                and len(lane.members) == len(scheduler.running)  # so no prompt and no other step is under way
                and not scheduler.pool.slack_blocks
            ):
                ready: Lane | None = lane
            else:
                ready = self._lane_for(lane)
            if ready is not None:
                begun = self._begin_lane_step(ready, now_s)
                if begun is not False:
                    if begun is None:
                        self._spare_lane = ready
                    return begun is True
                lane = ready
        if lane is not None:
            lane.dissolve()
        for flight in tuple(self._in_flight):
            self._look_closer(flight)
        while True:
            batch, preempted = scheduler.schedule(now_s, self._loop.turn)
            if batch is not None:
                self._launch(batch, now_s)
                return True
            if not preempted or self._stagger or self._cycle:
                return False
            if self._in_flight and not self._one_place:  # a turn in vain too, but the next one finds something
                if self._loop.free_places(self._in_flight[0].turn) > 1:
                    self._loop.take_turn()
                    self._due_s = now_s + POLL_S
                return False

    def _look_closer(self, flight: Lane | Batch) -> None:
        if isinstance(flight, Lane):
            batch = flight.dissolve()
            batch.turn = flight.turn
            self._in_flight[self._in_flight.index(flight)] = batch

    def _lane_for(self, lane: Lane | None) -> Lane | None:
        """A lane with all running requests that no step under way holds; None when they need a closer look: some do
        not fit into one, or blocks are short."""
        scheduler = self._scheduler
        prefilling = scheduler.prefilling
        if len(prefilling) > 1 or (prefilling and next(reversed(scheduler.running)) not in prefilling):
            return None
        pool = scheduler.pool
        if pool.slack_blocks:
            # lanes hold a little more of windows and states than they must, or a little less
            free_blocks = pool.free_blocks - len(scheduler.running) * (len(pool.growing) + pool.slack_reserve)
            if free_blocks < 0 or (scheduler.waiting and not scheduler.all_fit(free_blocks)):
                return None
        free = len(scheduler.running) - len(prefilling)
        if self._in_flight:
            free -= self._sampling()
        members = len(lane.members) if lane is not None else 0
        if members == free:
            return self._lane_or_spare(lane)
        loose = [
            seq for seq in scheduler.running if seq.lane is None and not seq.in_flight and not seq.unfinished_prefill
        ]
        if pool.free_blocks < len(loose) * (1 + pool.slack_blocks):
            return None
        lane = self._lane_or_spare(lane)
        for seq in loose:
            lane.join(seq)
        return lane

    def _lane_or_spare(self, lane: Lane | None) -> Lane:
        if lane is None:
            lane = self._spare_lane or Lane(self._scheduler.pool, keep_times=self._keep_times)
            self._spare_lane = None
        return lane

    def _begin_lane_step(self, lane: Lane, now_s: float) -> bool | None:
        """Schedule the lane's next step, a prompt under way and waiting requests; False when requests need a closer
        look, None when there is nothing to run."""
        scheduler, pool = self._scheduler, self._scheduler.pool
        if pool.slack_blocks:
            lane.slide()
        members, needs = len(lane.members), lane.needs_next()
        budget = scheduler.budget_tokens - members
        if budget < 0 or (needs > pool.unused_blocks and needs > pool.free_blocks):
            return False
        scheduler.begin_step()
        if scheduler.prefilling or scheduler.waiting:
            batch = Batch()
            if scheduler.prefilling:
                (seq,) = scheduler.prefilling
                tokens = scheduler.tokens_of(seq, budget, scheduler.long_tokens())
                if tokens > 0 and needs + scheduler.lacks(seq, tokens) > pool.free_blocks:
                    return False
                lane.begin_next(needs)
                if tokens > 0:
                    scheduler.grow(seq, tokens)
                    scheduler.put(batch, seq, tokens)
                    budget -= tokens
            else:
                lane.begin_next(needs)
            if scheduler.waiting:
                scheduler.admit_waiting(now_s, budget, batch)
            lane.entries = entries = batch.entries
            if entries:
                scheduler.count_computed(batch)
                self._launch_lane(lane, members, now_s, batch.loaded_tokens * self._load_s)
                return True
        elif members:
            lane.begin_next(needs)
        if not members:
            lane.started = lane.steps
            return None
        self._launch_lane(lane, members, now_s, 0.0)
        return True

    def _launch_lane(self, lane: Lane, members: int, now_s: float, load_s: float) -> None:
        context = lane.context + members
        if lane.entries:
            prompts, pairs, decodes, more = load_of(lane.entries)
            step_s = load_s + self._seconds(prompts, pairs, members + decodes, context + more)
            steps, growth_s = 1, 0.0
        else:
            step_s = self._seconds(0, 0, members, context)
            steps, growth_s = self._look_ahead(lane, members, context, step_s)
        if self._stages == 1:
            lane.stretch = stretch = new_stretch((lane.steps + 1, steps, now_s, step_s, growth_s))
            lane.done_s = done_s = now_s + step_s if steps == 1 else stretch.end_s(steps)
            self._stage_free_s[0] = done_s
            self._busy_s += done_s - now_s
        else:
            lane.done_s = self._through_stages(step_s, now_s)
            lane.stretch = Stretch(lane.steps + 1, 1, now_s, lane.done_s - now_s, 0.0)
        self._steps += steps
        lane.turn = self._loop.take_turn()
        self._vain = False
        self._in_flight.append(lane)
        if self.on_scheduled is not None:
            self.on_scheduled()

    def _look_ahead(self, lane: Lane, members: int, context: int, step_s: float) -> tuple[int, float]:
        """How many steps can be one event, and by how much each is longer than the one before."""
        scheduler = self._scheduler
        waiting = scheduler.waiting
        asking = self._late or (waiting and not scheduler.head_blocked)
        if self._stages > 1 or self._tell_tokens or scheduler.prefilling or asking:
            return 1, 0.0
        steps = lane.next_end() - lane.steps
        if steps == 1:
            return 1, 0.0
        pool = scheduler.pool
        free = pool.free_blocks
        if pool.slack_blocks:
            slide = lane.next_slide()
            if slide is not None:
                steps = min(steps, slide - lane.steps)
            free -= members * (len(pool.growing) + pool.slack_reserve)
            if lane.needs_at_most(steps) > free or (waiting and not scheduler.seats_taken):
                return 1, 0.0  # the next step may need a closer look
        elif waiting and not scheduler.seats_taken and scheduler.head_may_hit_more():
            return 1, 0.0
        elif lane.needs_at_most(steps) > free:
            while steps > 1 and lane.needs(steps - 1) > free:
                steps //= 2
        seconds = self._seconds
        while steps > 1:
            last_s = seconds(0, 0, members, context + members * (steps - 1))
            growth_s = (last_s - step_s) / (steps - 1)
            if steps < 3:
                return steps, growth_s
            middle = (steps - 1) // 2
            middle_s = seconds(0, 0, members, context + members * middle)
            if abs(middle_s - (step_s + middle * growth_s)) <= 1e-10 * last_s:
                return steps, growth_s
            steps = middle + 1
        return 1, 0.0

    def _launch(self, batch: Batch, now_s: float) -> None:
        batch.start_s = now_s
        step_s = batch.loaded_tokens * self._load_s + self._seconds(*load_of(batch.entries))
        batch.turn = turn = self._loop.take_turn()
        self._vain = False
        if self._stagger:
            # its requests' last tokens are those of the batch a cycle before, which the first stage waits for
            place = turn % self._stagger
            batch.done_s = self._through_stages(step_s, max(now_s, self._sampled_s[place]))
            samples = any(entry.samples for entry in batch.entries.values())
            self._sampled_s[place] = batch.done_s if samples else -math.inf
        else:
            batch.done_s = self._through_stages(step_s, now_s)
        self._steps += 1
        self._in_flight.append(batch)
        if self.on_scheduled is not None:
            self.on_scheduled()

    def _through_stages(self, step_s: float, now_s: float) -> float:
        """Send a step through the pipeline: every stage takes it in turn, as soon as both are free."""
        stage_s = step_s / self._stages
        free_s = self._stage_free_s
        leaves_s = now_s
        for stage, factor in enumerate(self._stage_factors):
            leaves_s = free_s[stage] = max(leaves_s, free_s[stage]) + stage_s * factor
        self._busy_s += stage_s
        return leaves_s

    def _repeat(self, lane: Lane, at_s: float) -> bool:
        """End a step of decoding alone and begin the same again, where that is all there is to do: what
        :meth:`_end_lane_step` and :meth:`_schedule` would come to, without asking. Elsewhere False, and nothing is
        done."""
        stretch, scheduler = lane.stretch, self._scheduler
        if (
            stretch is None
            or self._late
            or stretch.steps > 1
            or not lane.members
            or self._tell_tokens
            or scheduler.prefilling
            or (scheduler.waiting and not scheduler.seats_taken)
            or lane.next_end() <= lane.steps + 1
            or self._cycle
            or (not self._one_place and self._loop.free_places(lane.turn))
        ):
            return False
        pool, members = scheduler.pool, len(lane.members)
        needs = lane.needs_next()
        spare = pool.free_blocks - needs
        if pool.slack_blocks:
            slide = lane.next_slide()
            if slide is not None and slide <= lane.steps + 1:
                return False
            spare -= len(scheduler.running) * (len(pool.growing) + pool.slack_reserve)
        if spare < 0:
            return False
        known = members
        for flight in self._in_flight:
            if not isinstance(flight, Lane):
                return False
            known += len(flight.members) + len(flight.entries)
        if known != len(scheduler.running):
            return False
        self._count_decoded(lane, stretch.start_s, at_s, 1)
        lane.end()
        if len(lane.history.stretches) >= LONG_HISTORY:
            lane.renew_history()
        scheduler.begin_step()
        lane.begin_next(needs)
        self._launch_lane(lane, members, at_s, 0.0)
        return True

    # -- ending steps ----------------------------------------------------------------------------------------------

    def _count_decoded(self, lane: Lane, start_s: float, end_s: float, steps: int) -> None:
        tokens = steps * len(lane.members)
        if tokens:
            self._generation_tokens += tokens
            self.gaps.add((end_s - start_s) / steps, tokens)

    def _end_lane_step(self, lane: Lane, at_s: float, outputs: list[Output]) -> None:
        stretch = lane.stretch
        assert stretch is not None
        if lane.members:
            _, steps, start_s, _, _ = stretch
            tokens = steps * len(lane.members)
            self._generation_tokens += tokens
            self.gaps.add((at_s - start_s) / steps, tokens)
        lane.end()
        if self._tell_tokens:
            ending = self._ended(lane, at_s)
            outputs.extend([Output(seq.request.id, at_s, ending.get(seq)) for seq in (*ending, *lane.members)])
        elif lane.ends and lane.ends[0][0] <= lane.steps:
            while (seq := lane.pop_ended()) is not None:
                lane.leave(seq)
                outputs.append(new_output((seq.request.id, at_s, self._finish(seq, at_s))))
        if lane.entries:
            entries, lane.entries = lane.entries, {}
            self._settle_entries(entries, at_s, outputs, lane)
        if len(lane.history.stretches) >= LONG_HISTORY:
            lane.renew_history()

    def _ended(self, lane: Lane, at_s: float) -> dict[Sequence, Finished]:
        ended: dict[Sequence, Finished] = {}
        while (seq := lane.pop_ended()) is not None:
            lane.leave(seq)
            ended[seq] = self._finish(seq, at_s)
        return ended

    def _end_batch(self, batch: Batch, at_s: float, outputs: list[Output]) -> None:
        self._settle_entries(batch.entries, at_s, outputs, None)

    def _settle_entries(
        self, entries: dict[Sequence, Entry], at_s: float, outputs: list[Output], lane: Lane | None
    ) -> None:
        """Account for a step that ended: who has a token, who is done, and who decodes in ``lane`` from now on."""
        scheduler = self._scheduler
        slack = scheduler.pool.slack_blocks
        ends_only = not self._keep_times and not self._tell_tokens
        for seq, entry in entries.items():
            if lane is not None and not seq.stale and not entry.drafts:  # all there is to a plain prompt
                seq.in_flight -= entry.tokens
                if entry.samples:
                    if seq.generated or not ends_only:
                        self._tokens(seq, 1, at_s)
                    else:  # the same of a first token that need not be noted
                        self._generation_tokens += 1
                        self._prompt_tokens += seq.prompt_tokens
                        seq.first_token_s = seq.last_s = at_s
                        seq.generated = 1
                    if seq.generated == seq.limit:
                        outputs.append(new_output((seq.request.id, at_s, self._finish(seq, at_s))))
                        continue
                    if self._tell_tokens:
                        outputs.append(Output(seq.request.id, at_s, None))
                    if not slack or scheduler.pool.free_blocks >= slack:
                        lane.join(seq)
                continue
            stale = seq.stale > 0
            tokens = scheduler.settle(seq, entry, self._accepted(seq, entry) if entry.drafts else 0)
            if not tokens:
                continue
            tokens = min(tokens, seq.limit - seq.generated)
            self._tokens(seq, tokens, at_s)
            scheduler.put_out(seq, tokens, stale=stale)
            if seq.generated == seq.limit:
                outputs.append(new_output((seq.request.id, at_s, self._finish(seq, at_s))))
                continue
            if self._tell_tokens:
                outputs.extend([Output(seq.request.id, at_s, None)] * tokens)
            if lane is not None and seq.running and scheduler.pool.free_blocks >= slack:
                lane.join(seq)

    def _tokens(self, seq: Sequence, tokens: int, at_s: float) -> None:
        self._generation_tokens += tokens
        if not seq.generated:
            seq.first_token_s = at_s
            self._prompt_tokens += seq.prompt_tokens
        else:
            self.gaps.add(at_s - seq.last_s, 1)
        if tokens > 1:
            self.gaps.add(0.0, tokens - 1)
        seq.last_s = at_s
        seq.generated += tokens
        if self._keep_times:
            seq.times.extend([at_s] * tokens)

    def _accepted(self, seq: Sequence, entry: Entry) -> int:
        ratio = self.config.draft_acceptance_ratio
        return accepted_drafts(ratio, seq.request.id, seq.generated, entry.drafts)

    def _finish(self, seq: Sequence, at_s: float) -> Finished:
        reason: FinishReason = seq.request.ends_with if seq.limit == seq.request.output_tokens else "length"
        self._scheduler.drop(seq)
        del self._sequences[seq.request.id]
        self._finished[reason] += 1
        return seq.finished(reason, at_s, TokenTimes(tuple(seq.times)) if self._keep_times else NO_TIMES)
