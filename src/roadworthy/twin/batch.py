"""The requests of one step, looked at one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.twin.requests import Sequence


class Entry:
    """What a step computes of one sequence: ``tokens``, of which the last ``drafts`` are to be verified. ``samples``
    says that it puts out a token (and what of the drafts is accepted) when the step ends."""

    __slots__ = ("drafts", "samples", "tokens")

    def __init__(self, tokens: int, drafts: int = 0) -> None:
        self.tokens = tokens
        self.drafts = drafts
        self.samples = False


class Batch:
    """One step on its way through the pipeline; ``entries`` are in the order of scheduling. ``has_prefill`` says that
    one of the running requests was still computing its prompt; ``loaded_tokens`` come from the offload tier first;
    ``turn`` is that of the core's loop in which it was formed."""

    __slots__ = ("done_s", "entries", "has_prefill", "loaded_tokens", "start_s", "turn")

    def __init__(self) -> None:
        self.entries: dict[Sequence, Entry] = {}
        self.start_s = self.done_s = 0.0
        self.has_prefill = False
        self.loaded_tokens = 0
        self.turn = 0

    def take_out(self, seq: Sequence) -> int:
        """Leave a sequence out that has been preempted; returns the tokens it had of the budget."""
        entry = self.entries.pop(seq, None)
        return entry.tokens if entry is not None else 0


def load_of(entries: dict[Sequence, Entry]) -> tuple[int, int, int, int]:
    """What scheduled entries compute: prompt tokens, (token, context) pairs of them, decoding sequences and the sum
    of their contexts."""
    prompts = pairs = decodes = context = 0
    for seq, entry in entries.items():
        tokens = entry.tokens
        before = seq.computed - tokens
        if entry.samples and tokens - entry.drafts == 1 and before >= seq.prompt_tokens:
            decodes += 1
            context += before + 1
        else:
            prompts += tokens
            pairs += tokens * before + tokens * (tokens + 1) // 2
    return prompts, pairs, decodes, context
