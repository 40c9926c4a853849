"""What an alert is: an expression, what to do, and the series that make it fire and that keep it quiet, from which the
rendered promtool tests are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ENGINES_JOB, GATEWAYS_JOB = "roadworthy-engines", "roadworthy-gateways"

Severity = Literal["critical", "warning", "info"]
Series = tuple[str, str]
"""A series and its values in promtool's notation, one value a minute."""

ENGINE = 'instance="e0:8000",engine="0",model_name="m"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert.

    Args:
        for_: how long the expression must hold.
        severity: ``critical`` wakes someone, ``warning`` is for the day, ``info`` for the board.
        runbook: what to look at and what to do, in order.
        fires: series after which it fires at minute ``at_minute``.
        quiet: series near the threshold with which it does not.
    """

    name: str
    expr: str
    for_: str
    severity: Severity
    why: str
    summary: str
    runbook: str
    fires: tuple[Series, ...]
    quiet: tuple[Series, ...]
    at_minute: int = 12


def engine_series(name: str, values: str) -> Series:
    """One of the engine's metrics, of rank 0 of one engine."""
    return f"vllm:{name}{{{ENGINE}}}", values


def histogram_series(
    name: str, labels: str, *, below: tuple[str, ...], at_most: str, at_minute: int = 30
) -> tuple[Series, ...]:
    """Requests of which every one is above ``below`` and at most ``at_most`` seconds: 60 a minute."""
    rising, still = f"0+60x{at_minute}", f"0x{at_minute}"
    return (
        *((f'{name}_bucket{{{labels},le="{bound}"}}', still) for bound in below),
        (f'{name}_bucket{{{labels},le="{at_most}"}}', rising),
        (f'{name}_bucket{{{labels},le="+Inf"}}', rising),
    )


def number_text(value: float) -> str:
    """A number as PromQL and as a bucket's ``le`` has it: whole ones with a point, no rounding noise."""
    return repr(float(f"{value:.9g}"))
