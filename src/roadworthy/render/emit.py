"""Short ways to write down a setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.values import Emitted

if TYPE_CHECKING:
    from roadworthy.spec.values import Scalar


def flag(name: str, value: Scalar, why: str, source: str = "") -> Emitted:
    """A flag of the engine; value None for a switch."""
    return Emitted(kind="flag", name=name, value=value, why=why, source=source)


def variable(name: str, value: Scalar, why: str, source: str = "") -> Emitted:
    """An environment variable."""
    return Emitted(kind="variable", name=name, value=value, why=why, source=source)


def field(name: str, value: Scalar, why: str, source: str = "") -> Emitted:
    """A key of a structured file: a unit, a manifest."""
    return Emitted(kind="field", name=name, value=value, why=why, source=source)
