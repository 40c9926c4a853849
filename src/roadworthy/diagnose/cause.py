"""A root cause as data: what speaks for it, what against, what it explains, how to confirm and mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "information"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One clue that bears on a cause.

    Args:
        clue: name of the clue.
        weight: 0 to 1; how far this alone carries. 0.9 is the message that only this cause prints, 0.5 fits this and
            a few others, 0.2 fits much.
        says: sentence for the diagnosis, with the clue's values in braces.
    """

    clue: str
    weight: float
    says: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One root cause.

    Args:
        code: its taxonomy id.
        title: what it is, in a few words.
        tells: what happens and why, for the diagnosis.
        needs: without one of these clues the cause is a note at best, whatever the rest adds up to.
        explains: clues that are consequences: they count little for other causes once this one stands.
        beats: causes that are consequences or weaker readings of the same evidence.
        confirm: how to be sure.
        remedy: what to do, with commands.
        risk: what the remedy may break.
        capture: commands that bring the missing evidence.
        benign: a line that looks like this and is none.
    """

    code: str
    group: str
    title: str
    tells: str
    signs: tuple[Sign, ...]
    confirm: str
    remedy: str
    benign: str
    against: tuple[Sign, ...] = ()
    needs: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    beats: tuple[str, ...] = ()
    risk: str = ""
    capture: tuple[str, ...] = ()
    severity: Severity = "critical"


def sign(clue: str, weight: float, says: str = "") -> Sign:
    """Shorthand for the tables of causes."""
    return Sign(clue=clue, weight=weight, says=says)
