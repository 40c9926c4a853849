"""The IO wall: what reading delivers, beside what the engine could take in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class Meter:
    """Counts of one ingest. ``now_s`` gives seconds of a clock that never goes back."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._began_s = now_s()
        self.files = self.done = self.failed = 0
        self.pages = self.ocr_pages = self.tokens = self.units = 0
        self.current: tuple[str, int, int] = ("", 0, 0)
        self._read_s = 0.0

    def read(self, *, pages: int, ocr_pages: int, tokens: int) -> None:
        """A file was read."""
        self.pages += pages
        self.ocr_pages += ocr_pages
        self.tokens += tokens
        self._read_s = self.elapsed_s

    def embedded(self, units: int) -> None:
        self.units += units

    def page(self, name: str, done: int, of: int) -> None:
        """Where OCR is in a file; an empty name for nowhere."""
        self.current = (name, done, of)

    @property
    def elapsed_s(self) -> float:
        return self._now_s() - self._began_s

    @property
    def read_s(self) -> float:
        """Seconds until the last file was read; what came after it was embedding."""
        return self._read_s

    def per_s(self, what: int) -> float:
        """Of the whole time."""
        elapsed_s = self.elapsed_s
        return what / elapsed_s if elapsed_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wall:
    """Reading against the engine, in tokens a second.

    Args:
        read_per_s: what parsing, OCR and embedding delivered.
        engine_per_s: what the engine could prefill.
    """

    read_per_s: float
    engine_per_s: float

    @property
    def bottleneck(self) -> str:
        """``reading`` or ``engine``: the slower of the two."""
        return "reading" if self.read_per_s < self.engine_per_s else "engine"

    @property
    def ratio(self) -> float:
        """How many times the faster one is as fast as the slower one."""
        low, high = sorted((self.read_per_s, self.engine_per_s))
        return high / low if low > 0 else float("inf")

    def said(self) -> str:
        """One line for an operator."""
        sides = f"reading delivers {self.read_per_s:,.0f} tokens/s, the engine could prefill {self.engine_per_s:,.0f}"
        if self.bottleneck == "engine":
            return f"{sides}: the engine is the bottleneck, reading keeps it fed"
        times = f"{self.ratio:,.1f} times" if self.ratio != float("inf") else "any number of times"
        return f"{sides}: reading is the bottleneck, the engine could take {times} as much"
