"""The room of all healthy engines together: KV blocks, slots, and prompts that are sent and not computed yet; with a
reserve that borrowed work never touches."""

from __future__ import annotations

import math


class Pool:
    """What is in use, and what may be.

    None stands for no bound. A request that alone needs more blocks than there are may run when nothing else does: the
    prediction may be wrong, and to wait for ever would be worse.
    """

    __slots__ = (
        "_borrow_blocks", "_borrow_prompts", "_borrow_slots", "_reserve_ratio", "_sizes", "blocks", "most_blocks",
        "most_prompt_tokens", "most_slots", "prompt_tokens", "shared_blocks", "slots",
    )  # fmt: skip

    def __init__(self, reserve_ratio: float) -> None:
        self._reserve_ratio = reserve_ratio
        self._sizes: tuple[int | None, int | None, int | None] = (None, None, None)
        self.shared_blocks = 0
        self.blocks = self.slots = self.prompt_tokens = 0
        self.most_blocks = self.most_slots = self._borrow_blocks = self._borrow_slots = math.inf
        self.most_prompt_tokens = self._borrow_prompts = math.inf

    def resize(self, blocks: int | None, slots: int | None, prompt_tokens: int | None) -> None:
        """So much there is from now on. What runs beyond it goes on; nothing new starts until it fits."""
        self._sizes = (blocks, slots, prompt_tokens)
        self.most_blocks, self._borrow_blocks = self._bounds(blocks)
        self.most_slots, self._borrow_slots = self._bounds(slots)
        self.most_prompt_tokens, self._borrow_prompts = self._bounds(prompt_tokens)
        self.most_blocks += self.shared_blocks
        self._borrow_blocks += self.shared_blocks

    def share(self, blocks: int) -> None:
        """So many blocks that are counted as in use are in use twice: requests with the same beginning hold it once."""
        self.shared_blocks = max(0, min(blocks, self.blocks))
        self.resize(*self._sizes)

    def keep(self, reserve_ratio: float) -> None:
        """Borrowed work leaves this share of the pool alone from now on."""
        self._reserve_ratio = reserve_ratio
        self.resize(*self._sizes)

    def fits(self, blocks: int, *, borrowed: bool) -> bool:
        """Whether a request of so many blocks may start. A prompt may be longer than what is left of the prompts' room:
        what matters is that no more follows it."""
        if borrowed:
            most_blocks, most_slots, most_prompt_tokens = self._borrow_blocks, self._borrow_slots, self._borrow_prompts
        else:
            most_blocks, most_slots, most_prompt_tokens = self.most_blocks, self.most_slots, self.most_prompt_tokens
        return (
            self.slots < most_slots
            and self.prompt_tokens < most_prompt_tokens
            and (self.blocks + blocks <= most_blocks or not self.blocks)
        )

    def any_fits(self) -> bool:
        """Whether any request at all could start."""
        return self.slots < self.most_slots and self.prompt_tokens < self.most_prompt_tokens

    def _bounds(self, size: int | None) -> tuple[float, float]:
        """The whole and what may be borrowed of it; of a pool that is not empty, at least one unit."""
        if size is None:
            return math.inf, math.inf
        most = max(0, size)
        return most, max(min(most, 1), most - math.ceil(most * self._reserve_ratio - 1e-9))
