"""Time as something that is handed in: a real clock in the shell, a virtual one in simulation and tests."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Seconds that only ever rise; the origin is arbitrary."""

    def now_s(self) -> float: ...
