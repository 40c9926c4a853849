"""The room of all healthy engines together: KV blocks and slots, with a reserve that borrowed work never touches."""

from __future__ import annotations

import math


class Pool:
    """What is in use, and what may be.

    None stands for no bound. A request that alone needs more blocks than there are may run when nothing else does: the
    prediction may be wrong, and to wait for ever would be worse.
    """

    __slots__ = (
        "_borrow_blocks", "_borrow_slots", "_reserve_ratio", "_sizes", "blocks", "most_blocks", "most_slots",
        "shared_blocks", "slots",
    )  # fmt: skip

    def __init__(self, reserve_ratio: float) -> None:
        self._reserve_ratio = reserve_ratio
        self._sizes: tuple[int | None, int | None] = (None, None)
        self.shared_blocks = 0
        self.blocks = self.slots = 0
        self.most_blocks = self.most_slots = self._borrow_blocks = self._borrow_slots = math.inf

    def resize(self, blocks: int | None, slots: int | None) -> None:
        """So much there is from now on. What runs beyond it goes on; nothing new starts until it fits."""
        self._sizes = (blocks, slots)
        self.most_blocks, self._borrow_blocks = self._bounds(blocks)
        self.most_slots, self._borrow_slots = self._bounds(slots)
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
        most_blocks, most_slots = (
            (self._borrow_blocks, self._borrow_slots) if borrowed else (self.most_blocks, self.most_slots)
        )
        return self.slots < most_slots and (self.blocks + blocks <= most_blocks or not self.blocks)

    def slot_free(self) -> bool:
        """Whether any request at all could start."""
        return self.slots < self.most_slots

    def _bounds(self, size: int | None) -> tuple[float, float]:
        """The whole and what may be borrowed of it; of a pool that is not empty, at least one unit."""
        if size is None:
            return math.inf, math.inf
        most = max(0, size)
        return most, max(min(most, 1), most - math.ceil(most * self._reserve_ratio - 1e-9))
