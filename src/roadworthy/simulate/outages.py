"""Engines that die, or only get worse, in the middle of a run."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import cast, get_args

from roadworthy.core.errors import SpecError
from roadworthy.core.units import parse_duration
from roadworthy.twin.faults import Fault, FaultKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One engine is gone from ``at_s`` for ``lasts_s``: its process dies, and the next one starts empty.

    Args:
        engine: its place among the engines, from 0.
        lasts_s: until the next process takes requests; infinity for never.
    """

    engine: int
    at_s: float
    lasts_s: float = math.inf

    def __post_init__(self) -> None:
        if self.engine < 0 or not self.at_s >= 0 or not self.lasts_s > 0:
            raise ValueError(f"an outage of engine {self.engine} at {self.at_s} s for {self.lasts_s} s cannot be")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFault:
    """A fault (``twin.faults``) of the engine at place ``engine``. A crash is an :class:`Outage` here: the gateway has
    a part in it."""

    engine: int
    fault: Fault


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
        lasts_s = math.inf if match["lasts"] is None else parse_duration(match["lasts"])
        return Outage(engine=int(match["engine"]), at_s=at_s, lasts_s=lasts_s)
    except ValueError as error:
        raise SpecError(f"outage {text!r}: {error}", hint="times are such as 90s, 10min or 1h") from error


_FAULTS = tuple(kind for kind in get_args(FaultKind) if kind != "crash")
_FAULT = re.compile(
    r"(?P<kind>[a-z-]+):(?P<engine>\d+)(?:\.(?P<stage>\d+))?@(?P<at>[^+*]+)(?:\+(?P<lasts>[^*]+))?"
    r"(?:\*(?P<size>\d+(?:\.\d+)?))?"
)
_SIZES = {
    "slow": "how many times as long steps take, such as *1.5",
    "link": "how many times slower the link is, such as *3",
    "hot-experts": "how many times the mean load the fullest rank has beyond its share, such as *2",
    "leak": "KV blocks lost a second, such as *50",
    "refuse": "the share of requests that is refused, such as *0.2",
    "forget": "forget has no size",
}


def parse_fault(text: str) -> EngineFault:
    """``KIND:ENGINE[.STAGE]@WHEN[+LENGTH][*SIZE]`` such as ``slow:2@10min+5min*1.5``: for five minutes the steps of
    engine 2 take half as long again; ``slow:2.1@…`` is its second pipeline stage alone.

    Raises:
        SpecError: it is not of that form, or the kind is not known.
    """
    match = _FAULT.fullmatch(text.strip())
    if match is None or match["kind"] not in _FAULTS:
        raise SpecError(
            f"fault {text!r} is not KIND:ENGINE@WHEN[+LENGTH][*SIZE]",
            hint=f"such as slow:2@10min+5min*1.5; kinds: {', '.join(_FAULTS)}; for a crash say outage=2@10min+5min",
        )
    kind = cast("FaultKind", match["kind"])
    try:
        from_s = parse_duration(match["at"])
        until_s = math.inf if match["lasts"] is None else from_s + parse_duration(match["lasts"])
    except ValueError as error:
        raise SpecError(f"fault {text!r}: {error}", hint="times are such as 90s, 10min or 1h") from error
    try:
        fault = Fault(
            kind=kind,
            from_s=from_s,
            until_s=until_s,
            size=1.0 if match["size"] is None else float(match["size"]),
            stage=None if match["stage"] is None else int(match["stage"]),
        )
    except ValueError as error:
        raise SpecError(f"fault {text!r}: {error}", hint=f"the size is {_SIZES[kind]}") from error
    return EngineFault(engine=int(match["engine"]), fault=fault)
