"""One batch on its way through the pipeline, and the plain decode steps it repeats."""

from __future__ import annotations

from heapq import heapify
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.twin.requests import Sequence


class Batch:
    """The sequences of one step.

    A batch of decoding sequences alone repeats itself, one token each a step, until one of them finishes or the
    scheduler has something to admit. It then only notes when each step ended (``ends_s``); sequences catch up when
    the batch changes. That makes a step cost the same for 1 and for 500 sequences and loses nothing: the steps, their
    loads and their times are those of scheduling every one of them anew.

    ``context_tokens`` is the sum of the decoding sequences' contexts in the step under way; ``growth`` the steps at
    which one of them needs a block, as (step, order in the batch, sequence) with steps counted from 1.
    """

    __slots__ = ("context_tokens", "decodes", "done_s", "ends_s", "growth", "prefill_pairs", "prefills", "steady_until")

    def __init__(self, decodes: list[Sequence], prefills: list[tuple[Sequence, int]]) -> None:
        self.decodes = decodes
        self.prefills = prefills
        self.ends_s: list[float] = []
        self.done_s = 0.0
        self.context_tokens = sum([seq.computed for seq in decodes]) + len(decodes)
        self.prefill_pairs = sum([n * seq.computed + n * (n + 1) // 2 for seq, n in prefills])
        self.steady_until = -1
        self.growth: list[tuple[int, int, Sequence]] = []

    def look_ahead(self) -> None:
        """Find the first step that ends a sequence (``steady_until``) and the steps that need blocks."""
        self.steady_until = min([seq.limit - seq.generated for seq in self.decodes]) if not self.prefills else 0
        self.growth = [
            (step, order, seq)
            for order, seq in enumerate(self.decodes)
            if (step := max(2, seq.holding.covered_tokens - seq.computed + 1)) <= self.steady_until
        ]
        heapify(self.growth)
