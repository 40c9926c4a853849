"""A cause as a page of documentation, in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.diagnose.signals import SIGNALS

if TYPE_CHECKING:
    from roadworthy.diagnose.cause import Cause

STRONG, FAIR = 0.6, 0.3


def page_of(cause: Cause) -> str:
    """Title, what happens, evidence by weight, confirmation, remedy and its risk, captures, and what only looks so."""
    lines = [f"# {cause.code}", "", f"**{cause.title}.** {cause.tells}", "", "## What speaks for it", ""]
    strongest_first = sorted(cause.signs, key=lambda sign: -sign.weight)
    lines += [f"- {_strength(one.weight)}: `{one.clue}`{_messages(one.clue)}" for one in strongest_first]
    if cause.against:
        lines += ["", "## What speaks against it", ""] + [
            f"- `{one.clue}`{_messages(one.clue)}" for one in cause.against
        ]
    lines += ["", "## Confirm", "", cause.confirm, "", "## Remedy", "", cause.remedy]
    if cause.risk:
        lines += ["", f"Risk: {cause.risk}"]
    if cause.capture:
        lines += ["", "## Capture", ""] + [f"    {command}" for command in cause.capture]
    lines += ["", "## Looks like it and is not", "", f"    {cause.benign}"]
    return "\n".join(lines) + "\n"


def _strength(weight: float) -> str:
    return "strong" if weight >= STRONG else "fair" if weight >= FAIR else "weak"


def _messages(clue: str) -> str:
    literals = next((one.literals for one in SIGNALS if one.name == clue), ())
    return f": {', '.join(f'`{literal.strip()}`' for literal in literals[:4])}" if literals else ""
