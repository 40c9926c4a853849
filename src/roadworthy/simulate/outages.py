"""Engines that die and come back in the middle of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from roadworthy.core.errors import SpecError
from roadworthy.core.units import parse_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One engine is gone from ``at_s`` for ``lasts_s``: its process dies, and the next one starts empty.

    Args:
        engine: its place among the engines, from 0.
        lasts_s: until the next process takes requests; infinity for never.
    """

    engine: int
    at_s: float
    lasts_s: float = float("inf")

    def __post_init__(self) -> None:
        if self.engine < 0 or not self.at_s >= 0 or not self.lasts_s > 0:
            raise ValueError(f"an outage of engine {self.engine} at {self.at_s} s for {self.lasts_s} s cannot be")


_TEXT = re.compile(r"(?P<engine>\d+)@(?P<at>[^+]+)(?:\+(?P<lasts>.+))?")


def parse_outage(text: str) -> Outage:
    """``ENGINE@WHEN[+LENGTH]`` such as ``2@10min+5min``: engine 2 dies after ten minutes and is back five later.

    Raises:
        SpecError: it is not of that form.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise SpecError(
            f"outage {text!r} is not ENGINE@WHEN[+LENGTH]", hint="2@10min+5min: engine 2 is gone from 10 min to 15 min"
        )
    try:
        at_s = parse_duration(match["at"])
        lasts_s = float("inf") if match["lasts"] is None else parse_duration(match["lasts"])
        return Outage(engine=int(match["engine"]), at_s=at_s, lasts_s=lasts_s)
    except ValueError as error:
        raise SpecError(f"outage {text!r}: {error}", hint="times are such as 90s, 10min or 1h") from error
