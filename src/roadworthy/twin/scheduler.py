"""What runs in the next step: vLLM v1's scheduler, without its tensors.

The order is that of `vllm/v1/core/sched/scheduler.py` (0.32): running sequences first, in the order they were
admitted, each as many tokens as it lacks and the budget allows; a running sequence that finds no block preempts the
last admitted one (``priority``: the one of highest value, latest arrival), which loses its blocks and is recomputed;
then, unless something was preempted, waiting ones while budget, ``max_num_seqs`` and blocks last, stopping at the
first that does not fit. A sequence is in at most one batch in flight; one in another batch cannot be preempted until
that batch is done.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from heapq import heappop, heapreplace
from typing import TYPE_CHECKING

from roadworthy.twin.batch import Batch
from roadworthy.twin.blocks import BlockPool

if TYPE_CHECKING:
    from roadworthy.twin.config import TwinConfig
    from roadworthy.twin.requests import Sequence


def _rank(seq: Sequence) -> tuple[int, int]:
    return seq.request.priority, seq.order


class Scheduler:
    """Queues, running sequences and the block pool of one engine."""

    def __init__(self, config: TwinConfig) -> None:
        self.pool = BlockPool(config.cache, config.kv_blocks, enable_prefix_caching=config.enable_prefix_caching)
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] | list[Sequence] = deque() if config.policy == "fcfs" else []
        self._priority = config.policy == "priority"
        self._budget_tokens = config.max_num_batched_tokens
        self._in_flight_tokens = config.in_flight_tokens
        self._max_num_seqs = config.max_num_seqs
        self.head_blocked = False
        """The first waiting sequence does not fit, and nothing has changed since that was found out."""
        self.preemptions = self.query_tokens = self.hit_tokens = 0

    @property
    def may_admit(self) -> bool:
        """Whether scheduling could take a waiting sequence, as far as is known."""
        return bool(self.waiting) and not self.head_blocked

    def enqueue(self, seq: Sequence) -> None:
        if self._priority:
            insort(self.waiting, seq, key=_rank)
            self.head_blocked = False
        else:
            self.waiting.append(seq)

    def drop(self, seq: Sequence) -> None:
        """Forget a sequence, waiting or running, and free its blocks at once."""
        if seq.running:
            self.running.remove(seq)
            seq.running = False
        else:
            self.waiting.remove(seq)
        self.pool.release(seq.holding, computed_tokens=seq.computed)
        self.head_blocked = False

    def schedule(self, now_s: float) -> tuple[Batch | None, bool]:
        """The next batch, None when nothing can run, and whether something was preempted."""
        decodes: list[Sequence] = []
        prefills: list[tuple[Sequence, int]] = []
        before = self.preemptions
        budget = self._schedule_running(decodes, prefills)
        preempted = self.preemptions > before
        if not preempted:
            self._schedule_waiting(now_s, budget, decodes, prefills)
        if not decodes and not prefills:
            return None, preempted
        batch = Batch(decodes, prefills)
        for seq in decodes:
            seq.batch = batch
        for seq, _ in prefills:
            seq.batch = batch
        return batch, preempted

    def grow_repeated(self, batch: Batch, ended: int) -> bool:
        """Take the blocks that step ``ended + 1`` of a repeating ``batch`` needs, in the order of scheduling.

        False when the pool lacks one; what was taken until then is what scheduling would have taken too.
        """
        growth = batch.growth
        while growth and growth[0][0] <= ended + 1:
            _, order, seq = growth[0]
            if not self._grow(seq, seq.computed + ended, new_tokens=1, decoding=True):
                return False
            next_step = seq.holding.covered_tokens - seq.computed + 1
            if next_step <= batch.steady_until:
                heapreplace(growth, (next_step, order, seq))
            else:
                heappop(growth)
        return True

    def _schedule_running(self, decodes: list[Sequence], prefills: list[tuple[Sequence, int]]) -> int:
        """Put running sequences into the two lists; returns the tokens left of the budget."""
        budget, index, running = self._budget_tokens, 0, self.running
        while budget and index < len(running):
            seq = running[index]
            index += 1
            if seq.batch is not None:
                continue
            lacks = seq.prompt_tokens + seq.generated - seq.computed
            decoding = lacks == 1 and seq.generated > 0
            new_tokens = min(lacks, budget)
            if not decoding or seq.computed >= seq.holding.covered_tokens:
                while not self._grow(seq, seq.computed, new_tokens=new_tokens, decoding=decoding):
                    victim = max(running, key=_rank) if self._priority else running[-1]
                    if victim.batch is not None:
                        return budget  # what is short of blocks holds up those behind it too
                    index -= running.index(victim) < index
                    budget += _take_out(victim, decodes, prefills)
                    self._preempt(victim)
                    if victim is seq:
                        return budget
            if decoding:
                decodes.append(seq)
            else:
                prefills.append((seq, new_tokens))
            budget -= new_tokens
        return budget

    def _grow(self, seq: Sequence, computed: int, *, new_tokens: int, decoding: bool) -> bool:
        return self.pool.grow(seq.holding, computed_tokens=computed, new_tokens=new_tokens, decoding=decoding)

    def _preempt(self, seq: Sequence) -> None:
        self.running.remove(seq)
        seq.running = False
        self.pool.release(seq.holding, computed_tokens=seq.computed)
        seq.computed = 0
        seq.preemptions += 1
        self.preemptions += 1
        self.head_blocked = False
        if isinstance(self.waiting, deque):
            self.waiting.appendleft(seq)
        else:
            insort(self.waiting, seq, key=_rank)

    def _schedule_waiting(
        self, now_s: float, budget: int, decodes: list[Sequence], prefills: list[tuple[Sequence, int]]
    ) -> None:
        pool = self.pool
        self.head_blocked = False
        while self.waiting and budget:
            if len(self.running) >= self._max_num_seqs:
                self.head_blocked = True
                return
            seq = self.waiting[0]
            tokens = seq.prompt_tokens + seq.generated
            units = pool.find(seq.holding, tokens)
            hit_tokens = len(units) * pool.unit_tokens
            new_tokens = min(tokens - hit_tokens, budget)
            if not pool.admit(
                seq.holding, units, new_tokens=new_tokens, tokens=tokens, in_flight_tokens=self._in_flight_tokens
            ):
                self.head_blocked = True
                return
            if isinstance(self.waiting, deque):
                self.waiting.popleft()
            else:
                del self.waiting[0]
            self.running.append(seq)
            seq.running = True
            seq.computed = hit_tokens
            self._count_admission(seq, hit_tokens, now_s)
            if seq.generated and tokens - hit_tokens == 1:
                decodes.append(seq)
            else:
                prefills.append((seq, new_tokens))
            budget -= new_tokens

    def _count_admission(self, seq: Sequence, hit_tokens: int, now_s: float) -> None:
        """Statistics of a first admission; a look-up after a preemption counts nowhere, as in vLLM."""
        if seq.scheduled_s >= 0:
            return
        seq.scheduled_s = now_s
        seq.cached_tokens = hit_tokens
        if self.pool.caching:
            self.query_tokens += seq.prompt_tokens
            self.hit_tokens += hit_tokens


def _take_out(victim: Sequence, decodes: list[Sequence], prefills: list[tuple[Sequence, int]]) -> int:
    """Remove a preempted sequence from the step being built; returns the tokens it had of the budget."""
    if victim in decodes:
        decodes.remove(victim)
        return 1
    for index, (seq, tokens) in enumerate(prefills):
        if seq is victim:
            del prefills[index]
            return tokens
    return 0
