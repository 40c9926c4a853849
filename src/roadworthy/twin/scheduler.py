"""What runs in the next step: vLLM v1's scheduler, without its tensors.

The order is that of `vllm/v1/core/sched/scheduler.py` (0.32): running sequences first, in the order they were
admitted, each as many tokens as it lacks and the budget allows; a running sequence that finds no block preempts the
last admitted one (``priority``: the one of highest value, latest arrival), which loses its blocks and is recomputed;
then, unless something was preempted, waiting ones while budget, ``max_num_seqs`` and blocks last, stopping at the
first that does not fit. A token counts as computed once it is scheduled, so the next chunk of a prompt may follow
while the first is under way.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import TYPE_CHECKING

from roadworthy.twin.batch import Batch, Entry
from roadworthy.twin.blocks import NOTHING, BlockPool

if TYPE_CHECKING:
    from roadworthy.twin.config import TwinConfig
    from roadworthy.twin.requests import Sequence


def _rank(seq: Sequence) -> tuple[int, int]:
    return seq.request.priority, seq.order


class Scheduler:
    """Queues, running sequences and the block pool of one engine."""

    def __init__(self, config: TwinConfig) -> None:
        self.pool = BlockPool(
            config.cache,
            config.kv_blocks,
            enable_prefix_caching=config.enable_prefix_caching,
            in_flight_tokens=config.in_flight_tokens,
            longest=config.max_model_len,
            offload_blocks=config.offload_blocks,
        )
        self.running: dict[Sequence, None] = {}  # in the order of admission
        self.waiting: deque[Sequence] | list[Sequence] = deque() if config.policy == "fcfs" else []
        self.prefilling: dict[Sequence, None] = {}
        """Those of the running ones whose prompt is not scheduled to its end."""
        self.steps = 0
        self.preemptions = self.query_tokens = self.hit_tokens = 0
        self.head_blocked = False
        """The first waiting sequence does not fit, and nothing has changed since that was found out."""
        self._priority = config.policy == "priority"
        self.budget_tokens = config.max_num_batched_tokens
        self._max_num_seqs = config.max_num_seqs
        self._max_model_len = config.max_model_len
        self._long_tokens = config.long_prefill_token_threshold
        self._async = config.async_scheduling
        self._turn, self._stagger = 0, config.turns_between_tokens
        self._draft_tokens = config.draft_tokens
        self._lookahead = config.lookahead_tokens
        self._block_tokens = self.pool.unit_tokens if self.pool.states else 0

    @property
    def may_admit(self) -> bool:
        """Whether scheduling could take a waiting sequence, as far as is known."""
        return bool(self.waiting) and not self.head_blocked

    @property
    def seats_taken(self) -> bool:
        """Whether ``max_num_seqs`` run."""
        return len(self.running) >= self._max_num_seqs

    def enqueue(self, seq: Sequence) -> None:
        if self._priority:
            insort(self.waiting, seq, key=_rank)
            self.head_blocked = False
        else:
            self.waiting.append(seq)

    def drop(self, seq: Sequence) -> None:
        """Forget a sequence, waiting or running, and free its blocks at once."""
        if seq.running:
            del self.running[seq]
            self.prefilling.pop(seq, None)
            seq.running = False
        else:
            self.waiting.remove(seq)
        holding = seq.holding
        self.pool.release(holding)
        if holding.path is not None:
            holding.path.leave()
        self.head_blocked = False

    # -- a step, every sequence looked at --------------------------------------------------------------------------

    def schedule(self, now_s: float, turn: int) -> tuple[Batch | None, bool]:
        """The next batch, None when nothing can run, and whether something was preempted.

        Args:
            turn: of the core's loop, see :mod:`twin.core_loop`.
        """
        self._turn = turn
        self.begin_step()
        batch = Batch()
        before = self.preemptions
        budget = self._schedule_running(batch)
        preempted = self.preemptions > before
        if not preempted:
            self.admit_waiting(now_s, budget, batch)
        self.count_computed(batch)
        return (batch if batch.entries else None), preempted

    def begin_step(self) -> None:
        """Say that another step is being scheduled."""
        self.steps += 1
        if self.pool.states:
            self.pool.new_step(self.steps)

    def _schedule_running(self, batch: Batch) -> int:
        """Put running sequences into ``batch``; returns the tokens left of the budget."""
        budget, index, running = self.budget_tokens, 0, list(self.running)
        long_tokens = self.long_tokens()
        while budget > 0 and index < len(running):
            seq = running[index]
            index += 1
            if not seq.running or (self._stagger and seq.next_turn > self._turn):
                continue
            tokens = self.tokens_of(seq, budget, long_tokens)
            if tokens <= 0:
                continue
            while not self.grow(seq, tokens):
                victim = max(self.running, key=_rank) if self._priority else next(reversed(self.running))
                budget += batch.take_out(victim)
                self.preempt(victim)
                if victim is seq:
                    return budget
            self.put(batch, seq, tokens)
            budget -= tokens
        return budget

    def put(self, batch: Batch, seq: Sequence, tokens: int) -> None:
        """Schedule ``tokens`` of a running sequence; what goes beyond the known ones are drafts."""
        batch.has_prefill |= seq.unfinished_prefill
        batch.entries[seq] = Entry(tokens, max(0, seq.computed + tokens - seq.known - seq.placeholders))
        seq.drafts = 0

    def _room(self, seq: Sequence) -> int:
        """Tokens that ``seq`` may still compute: none when the steps under way bring its last one for sure."""
        if seq.placeholders and seq.computed + 2 - seq.placeholders >= seq.prompt_tokens + seq.request.output_tokens:
            return 0
        return self._max_model_len - seq.computed - 1

    def tokens_of(self, seq: Sequence, budget: int, long_tokens: int) -> int:
        """What a running sequence may compute of a step."""
        tokens = seq.known + seq.drafts + seq.placeholders - seq.computed
        if 0 < long_tokens < tokens:
            tokens = long_tokens
        tokens = min(tokens, budget, self._room(seq))
        if self._block_tokens and tokens > 0:
            tokens = self._to_a_boundary(seq, seq.computed, tokens)
        return tokens

    def grow(self, seq: Sequence, tokens: int) -> bool:
        """Give a running sequence the blocks for ``tokens`` more, False when the pool lacks them."""
        return self.pool.grow(
            seq.holding,
            computed=seq.computed,
            new_tokens=tokens,
            settled=seq.computed - seq.in_flight,
            known=seq.known,
            lookahead=self._lookahead_of(seq.computed + tokens),
        )

    def lacks(self, seq: Sequence, tokens: int) -> int:
        """Blocks that :meth:`grow` would take, at most."""
        return self.pool.lacks(seq.holding, seq.computed + tokens + self._lookahead_of(seq.computed + tokens))

    def all_fit(self, free_blocks: int) -> bool:
        """Whether all waiting requests that the next step could take fit into ``free_blocks``, whatever they hit."""
        budget, seats = self.budget_tokens, self._max_num_seqs - len(self.running)
        for seq in self.waiting:
            if budget <= 0 or seats <= 0:
                break
            free_blocks -= self.pool.most_blocks(seq.known)
            budget -= seq.known
            seats -= 1
            if free_blocks < 0:
                return False
        return True

    def head_may_hit_more(self) -> bool:
        """Whether a running request is filling blocks of the first waiting one's prompt."""
        path = self.waiting[0].holding.path
        return path is not None and any(text.writers for text in path.texts)

    def long_tokens(self) -> int:
        """The most that one prompt gets of a step; 0 when it need not share."""
        return self._long_tokens if len(self.running) + len(self.waiting) > 1 else 0

    def _lookahead_of(self, tokens: int) -> int:
        return min(self._lookahead, self._max_model_len - tokens) if self._lookahead else 0

    def _to_a_boundary(self, seq: Sequence, start: int, tokens: int) -> int:
        """Cut a chunk so that it ends where recurrent state can be cached (``_mamba_block_aligned_split``)."""
        prefill_end = max(seq.prompt_tokens, seq.known - 1)
        if start >= prefill_end:
            return tokens
        size, end = self._block_tokens, start + tokens
        if end < prefill_end:
            most = min(self.budget_tokens, self._long_tokens or self.budget_tokens)
            aligned = end // size * size
            if aligned > start or size <= most:
                end = aligned
        stops = [(seq.known - 1) // size * size]
        if start % size:
            stops.append((start // size + 1) * size)
        if start < seq.junction < end:
            stops.append(start + (seq.junction - start) // size * size)
        return max(min([stop for stop in stops if start < stop < end], default=end) - start, 0)

    def preempt(self, seq: Sequence) -> None:
        """Take a running sequence's blocks; tokens of it that are under way still come."""
        del self.running[seq]
        self.prefilling.pop(seq, None)
        seq.running = False
        self.pool.release(seq.holding)
        seq.computed = seq.drafts = seq.placeholders = 0
        seq.stale = seq.in_flight
        seq.preemptions += 1
        self.preemptions += 1
        self.head_blocked = False
        if isinstance(self.waiting, deque):
            self.waiting.appendleft(seq)
        else:
            insort(self.waiting, seq, key=_rank)

    def admit_waiting(self, now_s: float, budget: int, batch: Batch) -> None:
        """Put waiting sequences into ``batch`` while they fit."""
        pool, waiting = self.pool, self.waiting
        self.head_blocked = False
        long_tokens = self.long_tokens()
        passed = 0  # those that wait for their own tokens under way let others pass
        while len(waiting) > passed and budget > 0:
            if len(self.running) >= self._max_num_seqs:
                self.head_blocked = True
                return
            seq = waiting[passed]
            if seq.stale:
                passed += 1
                continue
            known = seq.prompt_tokens + seq.generated
            hit = pool.find(seq.holding, known) if pool.caching else NOTHING
            seq.junction = hit.junction
            computed = hit.tokens + hit.loaded
            tokens = known - computed
            drafts = self._padding(tokens, computed, batch) if self._draft_tokens else 0
            if drafts:
                if tokens + drafts > budget:
                    return
                tokens += drafts
            if 0 < long_tokens < tokens:
                tokens = long_tokens
            if tokens > budget:
                tokens = budget
            if self._block_tokens:
                tokens = self._to_a_boundary(seq, computed, tokens)
                if not tokens:
                    return
            if not pool.admit(
                seq.holding,
                hit,
                new_tokens=hit.loaded + tokens,
                tokens=known,
                lookahead=self._lookahead_of(computed + tokens) if self._lookahead else 0,
            ):
                self.head_blocked = not pool.states  # a state that is being written can be read in the next step
                return
            del waiting[passed]
            self.running[seq] = None
            seq.running = True
            seq.computed = computed
            batch.loaded_tokens += hit.loaded
            if seq.scheduled_s < 0:
                self._count_admission(seq, computed, now_s)
            batch.entries[seq] = Entry(tokens, drafts)
            budget -= tokens

    def _padding(self, tokens: int, hit_tokens: int, batch: Batch) -> int:
        """Drafts that stand for nothing, with which a request that lacks one token joins a step of verifications."""
        if tokens != 1 or batch.has_prefill or not (batch.entries or hit_tokens):
            return 0
        return self._draft_tokens if hit_tokens + self._draft_tokens + 2 <= self._max_model_len else 0

    def _count_admission(self, seq: Sequence, hit_tokens: int, now_s: float) -> None:
        """Statistics of a first admission; a look-up after a preemption counts nowhere, as in vLLM."""
        seq.scheduled_s = now_s
        seq.cached_tokens = hit_tokens
        if self.pool.caching:
            self.query_tokens += seq.prompt_tokens
            self.hit_tokens += hit_tokens

    def count_computed(self, batch: Batch) -> None:
        """Count the batch's tokens as computed, and say who will put out a token."""
        for seq, entry in batch.entries.items():
            seq.computed += entry.tokens
            seq.in_flight += entry.tokens
            if seq.computed < seq.known + seq.placeholders:
                seq.unfinished_prefill = True
                self.prefilling[seq] = None
                continue
            if seq.unfinished_prefill:
                seq.unfinished_prefill = False
                self.prefilling.pop(seq, None)
            entry.samples = True
            if self._async:
                seq.placeholders += 1 + entry.drafts
                seq.drafts = self._draft_tokens
                seq.next_turn = self._turn + self._stagger

    # -- what a step brought ---------------------------------------------------------------------------------------

    def settle(self, seq: Sequence, entry: Entry, accepted: int) -> int:
        """Account for a sequence's part in a step that ended; returns the tokens it put out, the drafts that were
        ``accepted`` among them, before any limit."""
        stale = seq.stale > 0
        seq.in_flight -= entry.tokens
        if stale:
            seq.stale -= entry.tokens
        if not entry.samples:
            return 0
        rejected = entry.drafts - accepted
        if rejected and not stale:
            seq.computed -= rejected
            if seq.placeholders:
                seq.placeholders -= rejected
        return 1 + accepted

    def put_out(self, seq: Sequence, tokens: int, *, stale: bool) -> None:
        """Note that ``tokens`` came and the sequence goes on: what they fill is findable, and drafts follow."""
        if self._async:
            if not stale:
                seq.placeholders -= tokens
            if seq.running:
                self.pool.cache(seq.holding, seq.computed - seq.placeholders)
        elif self._draft_tokens:
            seq.drafts = self._draft_tokens
