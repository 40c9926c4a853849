"""A named fault with what was seen of it; the shape that `check`, `diagnose` and `watch` share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "information"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was seen: ``text`` quotes it, ``line`` counts from 1."""

    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One root cause. ``code`` is its taxonomy id, ``confidence`` runs 0 to 1."""

    code: str
    severity: Severity
    confidence: float
    subject: str
    evidence: tuple[Evidence, ...]
    diagnosis: str
    remedy: str

    def __post_init__(self) -> None:
        if not 0 <= self.confidence <= 1:
            raise ValueError(f"finding {self.code}: confidence {self.confidence} is outside 0 to 1")
