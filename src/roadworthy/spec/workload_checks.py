"""What must hold between the keys of the workload and the rest of the document."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import Problem
from roadworthy.spec.workload_schema import ARRIVALS
from roadworthy.spec.workload_values import ArrivalPattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roadworthy.spec.workload_values import MixPart


def workload_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of arrivals, and of who sends which part of a mix."""
    pattern = values.get("workload.arrivals.pattern", "poisson")
    asked = {key: values.get(f"workload.arrivals.{key}") for key in ("to", "users", "period", "peak", "burstiness")}
    if pattern == "ramp" and asked["to"] is None:
        yield Problem(
            path="workload.arrivals", seen="a ramp without an end", wanted="to: the rate at the end",
            hint="to: 16/s, for example",
        )  # fmt: skip
    for key, patterns in _OF_PATTERN.items():
        if asked[key] not in (None, getattr(_DEFAULTS, _ATTRIBUTES[key])) and pattern not in patterns:
            yield Problem(
                path=f"workload.arrivals.{key}", seen=f"with pattern {pattern}",
                wanted=f"pattern {' or '.join(patterns)}", hint=f"leave {key} out, or change the pattern",
            )  # fmt: skip
    known = {tenant.id for tenant in values.get("tenants", ())}
    mix: tuple[MixPart, ...] = values.get("workload.mix", ())
    for index, part in enumerate(mix):
        for stranger in (name for name in part.tenants if name not in known):
            close = get_close_matches(stranger, known, n=1)
            yield Problem(
                path=f"workload.mix[{index}].tenants", seen=stranger, wanted="the id of one of tenants",
                hint=f"did you mean {close[0]}?" if close else f"tenants has: {', '.join(sorted(known)) or 'none'}",
            )  # fmt: skip


_OF_PATTERN = {
    "to": ("ramp",),
    "users": ("closed",),
    "period": ("diurnal",),
    "peak": ("diurnal",),
    "burstiness": ("gamma", "diurnal", "ramp"),
}
"""Patterns that read each key; with another it would do nothing, and whoever wrote it meant something. A default that
is written out is let be."""
_ATTRIBUTES = {field.key: field.attribute or "" for field in ARRIVALS.fields}
_DEFAULTS = ArrivalPattern()
