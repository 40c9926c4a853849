"""Requests that decode in step, counted together.

A decoding request gains one token a step, so what it will hold and when it ends is known when it joins. A lane keeps
the sums that a step needs (how many, their contexts, how many need a block at which step, who ends first) and looks
at single requests only when they join or leave: a step costs the same for 1 and for 500 of them, and many steps cost
the same as one.

Full-context blocks are exact at every step. Of a window or a recurrent state a member keeps the most that it may need
(one block more than vLLM at times), which is given back when it leaves or when the pool is short.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from roadworthy.twin.batch import Batch, Entry
from roadworthy.twin.times import History, Span, Stretch, new_stretch

if TYPE_CHECKING:
    from roadworthy.twin.blocks import BlockPool
    from roadworthy.twin.requests import Sequence

LONG_HISTORY: Final = 4096
"""Stretches after which a lane begins a new history, so that old ones can be freed."""


class Growth:
    """How many members need a block when a step begins, for full-context groups of one block size.

    A member needs one every ``block_tokens`` steps; ``at[n]`` counts those that need it when the number of the step
    is n modulo the block size.
    """

    __slots__ = ("at", "block_tokens", "groups", "members")

    def __init__(self, block_tokens: int, groups: int) -> None:
        self.block_tokens = block_tokens
        self.groups = groups
        self.members = 0
        self.at = [0] * block_tokens

    def between(self, after: int, to: int) -> int:
        """Blocks needed when steps ``after`` to ``to - 1`` (counted from 0) begin."""
        size = self.block_tokens
        if to - after == 1:
            return self.at[after % size] * self.groups
        rounds, rest = divmod(to - after, size)
        start = after % size
        end = start + rest
        blocks = rounds * self.members + sum(self.at[start:end])
        if end > size:
            blocks += sum(self.at[: end - size])
        return blocks * self.groups


class Lane:
    """Members decode in step; ``steps`` have ended since the lane began, and blocks are taken for ``started``.

    ``context`` is the sum of the members' computed tokens after ``steps``. ``ends`` holds the step with which each one
    ends, soonest first, and left-overs of those that have gone. ``stretch`` are the steps under way, and
    ``entries`` the prompts that the first of them computes.
    """

    __slots__ = (
        "_growth",
        "_pool",
        "_slack",
        "_slides",
        "context",
        "done_s",
        "ends",
        "entries",
        "history",
        "members",
        "started",
        "steps",
        "stretch",
        "turn",
    )

    def __init__(self, pool: BlockPool, *, keep_times: bool = True) -> None:
        self._pool: Final = pool
        self._growth: Final = [Growth(size, groups) for size, groups in pool.growing]
        self._slack: Final = pool.slack_blocks
        self.ends: list[tuple[int, int, Sequence]] = []
        self._slides: list[tuple[int, int, Sequence]] = []
        self.members: dict[Sequence, None] = {}
        self.entries: dict[Sequence, Entry] = {}
        self.context = self.steps = self.started = 0
        self.history = History(keep=keep_times)
        self.stretch: Stretch | None = None
        self.done_s = 0.0
        self.turn = 0

    # -- members ---------------------------------------------------------------------------------------------------

    def join(self, seq: Sequence) -> None:
        """Take in a request that has just put out a token; no step is under way."""
        steps = self.steps
        seq.lane = self
        seq.joined = seq.since = steps
        self.members[seq] = None
        self.context += seq.computed
        heappush(self.ends, (steps + seq.limit - seq.generated, seq.order, seq))
        for growth in self._growth:
            growth.at[(steps - seq.computed) % growth.block_tokens] += 1
            growth.members += 1
        if self._slack:
            self._pool.loosen(seq.holding, seq.computed)
            self._watch(seq, self.steps)
        path = seq.holding.path
        if path is not None:
            cached = seq.computed - seq.computed % self._pool.unit_tokens
            for text, end in zip(reversed(path.texts), reversed(path.ends), strict=True):
                if end <= cached:
                    break
                if text.writers is None:
                    text.writers = [seq]
                else:
                    text.writers.append(seq)

    def leave(self, seq: Sequence) -> None:
        """Let a member go, with its counters and blocks as they are now."""
        self.catch_up(seq, stays=False)
        del self.members[seq]
        seq.lane = None
        if self.steps > seq.since:
            history = self.history
            seq.last_s = history.last_s
            if history.keep:
                seq.times.append(Span(history, seq.since, self.steps))
        self.context -= seq.computed
        for growth in self._growth:
            growth.at[(self.steps - seq.computed) % growth.block_tokens] -= 1
            growth.members -= 1
        path = seq.holding.path
        if path is not None:
            for text in reversed(path.texts):
                writers = text.writers
                if writers is None or seq not in writers:
                    break
                if len(writers) == 1:
                    text.writers = None
                else:
                    writers.remove(seq)

    def catch_up(self, seq: Sequence, *, stays: bool = True) -> None:
        """Credit ended steps to a member, and make what it has filled findable."""
        passed = self.steps - seq.joined
        seq.computed += passed
        seq.generated += passed
        seq.joined = self.steps
        # the step under way has its blocks, and fills them as far as others can tell
        self._pool.catch_up(seq.holding, seq.computed + self.started - self.steps)
        if stays and self._slack:
            self._pool.loosen(seq.holding, seq.computed)

    def _watch(self, seq: Sequence, soonest: int) -> None:
        """Remember when cached blocks leave a member's window, for from then on they age, and when it needs a state
        more; not before ``soonest`` steps."""
        at = self._pool.lets_go_at(seq.holding)
        if at:
            heappush(self._slides, (max(soonest, seq.joined + at - seq.computed), seq.order, seq))

    def next_slide(self) -> int | None:
        """The number of steps after which a member lets cached blocks go."""
        return self._slides[0][0] if self._slides else None

    def slide(self) -> None:
        """Let go what the next step to begin does not look at any more, and take what it needs of states."""
        slides = self._slides
        while slides and slides[0][0] <= self.steps:
            _, _, seq = heappop(slides)
            if seq.lane is self:
                self.started += 1  # as of the step about to begin
                self.catch_up(seq)
                self.started -= 1
                self._watch(seq, self.steps + 1)

    def next_end(self) -> int:
        """The step (counted from 1) with which the first member ends."""
        ends = self.ends
        while ends:
            step, _, seq = ends[0]
            if seq.lane is self and seq.joined + seq.limit - seq.generated == step:
                return step
            heappop(ends)
        raise AssertionError("a lane without members has no end")

    def pop_ended(self) -> Sequence | None:
        """A member whose last token came with the step that ended last, None when there is no more."""
        ends = self.ends
        if not ends or ends[0][0] > self.steps or not self.members or self.next_end() > self.steps:
            return None
        return heappop(ends)[2]

    # -- steps -----------------------------------------------------------------------------------------------------

    def needs(self, steps: int = 1) -> int:
        """Blocks that the next ``steps`` to begin need."""
        started, blocks = self.started, 0
        for growth in self._growth:
            blocks += growth.between(started, started + steps)
        return blocks

    def needs_next(self) -> int:
        """Blocks that the next step to begin needs."""
        started, blocks = self.started, 0
        for growth in self._growth:
            blocks += growth.at[started % growth.block_tokens] * growth.groups
        return blocks

    def needs_at_most(self, steps: int) -> int:
        """No fewer than :meth:`needs`, at once."""
        blocks = 0
        for growth in self._growth:
            blocks += (steps // growth.block_tokens + 1) * growth.members * growth.groups
        return blocks

    def begin(self, steps: int) -> None:
        """Take the blocks of the next ``steps``."""
        blocks = self.needs(steps)
        if blocks:
            self._pool.take(blocks)
        self.started += steps

    def begin_next(self, blocks: int) -> None:
        """Take the ``blocks`` that the next step needs."""
        if blocks:
            self._pool.take(blocks)
        self.started += 1

    def end(self) -> None:
        """Note that the steps of the stretch have ended."""
        stretch = self.stretch
        assert stretch is not None
        steps = stretch[1]
        missing = self.steps + steps - self.started
        if missing > 0:
            self.begin(missing)
        self.steps += steps
        self.context += steps * len(self.members)
        history = self.history
        history.last_s = self.done_s
        if history.keep:
            history.stretches.append(stretch)
        self.stretch = None

    def end_some(self, steps: int) -> float:
        """Note that the first ``steps`` of the stretch have ended, which ends with the one after them; returns when
        they did. Its end as a whole is the caller's."""
        stretch = self.stretch
        assert stretch is not None
        missing = self.steps + steps - self.started
        if missing > 0:
            self.begin(missing)
        self.steps += steps
        self.context += steps * len(self.members)
        first, _, start_s, step_s, growth_s = stretch
        end_s = stretch.end_s(steps)
        self.history.add(new_stretch((first, steps, start_s, step_s, growth_s)), end_s)
        self.stretch = new_stretch((first + steps, 1, end_s, step_s + steps * growth_s, growth_s))
        return end_s

    def renew_history(self) -> None:
        """Begin a new history; members' tokens so far stay in the old one."""
        old, self.history = self.history, History(keep=self.history.keep)
        self.history.last_s = old.last_s
        for seq in self.members:
            if self.steps > seq.since:
                seq.last_s = old.last_s
                seq.times.append(Span(old, seq.since, self.steps))
                seq.since = self.steps

    def dissolve(self) -> Batch:
        """The step under way with every member looked at one by one."""
        batch = Batch()
        under_way = self.stretch is not None
        for seq in tuple(self.members):
            self.leave(seq)
            if under_way:
                entry = batch.entries[seq] = Entry(1)
                entry.samples = True
                seq.computed += 1
                seq.in_flight += 1
        batch.entries.update(self.entries)
        if self.stretch is not None:
            batch.start_s, batch.done_s = self.stretch.start_s, self.done_s
        return batch
