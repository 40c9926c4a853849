"""A trace for `roadworthy simulate`: checked against what is asked of it, and what a reader must know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.core.errors import SpecError

if TYPE_CHECKING:
    from roadworthy.simulate.recording import Recording
    from roadworthy.simulate.what_if import Variant


def require_effect(variant: Variant, recording: Recording) -> None:
    """Raise SpecError where ``variant`` changes a part of the workload that the trace decides."""
    for key, _ in variant.changes:
        first, _, rest = key.partition(".")
        part = rest.partition(".")[0]
        decided = part != "sessions" and (recording.trace.timed or part not in ("rate", "arrivals"))
        if first == "workload" and decided:
            raise SpecError(
                f"what if {key}: the trace decides, not the document",
                hint="traffic=x2 sends each request of the trace twice; --speed 2 replays it twice as fast",
            )


def trace_json(recording: Recording, *, too_long: int) -> dict[str, object]:
    """What is replayed, for the JSON document."""
    trace = recording.trace
    return {
        "file": recording.name,
        "format": trace.format,
        "requests": recording.requests,
        "length_s": trace.length_s,
        "speed": recording.speed,
        "max_gap_s": recording.max_gap_s,
        "left_out": trace.left_out,
        "too_long": too_long,
        "reordered": trace.reordered,
        "longest_gap_s": trace.longest_gap_s,
    }


def trace_fact(recording: Recording) -> str:
    """The trace in a few words."""
    pace = "" if recording.speed == 1 else f", {recording.speed:g} times as fast"
    times = "" if recording.trace.timed else ", paced by the workload"
    return f"trace {recording.name} ({recording.trace.format}, {recording.requests:,} requests{pace}{times})"


def trace_notes(recording: Recording, *, too_long: int) -> tuple[str, ...]:
    """What a reader of numbers from this trace must know."""
    notes = recording.trace.notes()
    if recording.max_gap_s is not None:
        notes = tuple(note for note in notes if "--max-gap" not in note)
    if too_long:
        notes += (f"{too_long:,} requests of the trace exceed the context of an engine, and are left out.",)
    return notes
