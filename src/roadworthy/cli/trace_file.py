"""A trace that `bench` sends and `simulate` plays: read with the pace that the options give it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from roadworthy.core.errors import SpecError

if TYPE_CHECKING:
    from roadworthy.advise.traces import Replay

    Kind = TypeVar("Kind", bound=Replay)

MAX_TRACE_BYTES = 2**30


def read_replay(
    kind: type[Kind], trace: Path | None, *, speed: float, max_gap_s: float | None, instead: str
) -> Kind | None:
    """The trace in the file, None where none is asked for.

    Args:
        instead: what sets the pace of a synthetic load.

    Raises:
        SpecError: it is not a trace (each wrong line is named), or its pace is given without it.
        ProbeError: it cannot be read.
    """
    if trace is None:
        if max_gap_s is not None or speed != 1:
            raise SpecError("--speed and --max-gap need --trace", hint=f"{instead} sets the pace of a synthetic load")
        return None
    from roadworthy.adapters.files import read_text
    from roadworthy.advise.trace_reader import read_trace

    text = read_text(trace, what="a trace of requests", limit_bytes=MAX_TRACE_BYTES)
    return kind(trace=read_trace(text, source=str(trace)), name=trace.name, speed=speed, max_gap_s=max_gap_s)
