"""What must hold between the keys of routing and the rest of the document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roadworthy.spec.routing_values import LongLane

_LONG = "gateway.lanes.long"


def routing_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of the lane of long prompts."""
    lane: LongLane | None = values.get(_LONG)  # None too where one of its keys has a problem of its own
    if lane is None:
        return
    if bool(lane.engines) == (lane.slots is not None):
        yield Problem(
            path=_LONG,
            seen="both engines and slots" if lane.engines else "neither engines nor slots",
            wanted="one of the two",
            hint="engines: [URL] keeps engines for long prompts, slots: 2 bounds them on every engine",
        )
    longest = values.get("model.max_model_len")
    if longest is not None and lane.above_tokens >= longest:
        yield Problem(
            path=f"{_LONG}.above_tokens",
            seen=f"{lane.above_tokens:,}",
            wanted=f"less than model.max_model_len, {longest:,}",
            hint="no prompt is longer than that, so the lane would stay empty",
        )
    if lane.engines:
        yield from _engines(lane.engines, [one.url for one in values.get("engine.endpoints", ())])


def _engines(engines: tuple[str, ...], known: list[str]) -> Iterator[Problem]:
    path = f"{_LONG}.engines"
    strangers = [url for url in engines if url not in known]
    if not known:
        yield Problem(
            path=path, seen=engines[0], wanted="slots, as engine.endpoints names no engine",
            hint="engines that `up` starts have no fixed address: use slots",
        )  # fmt: skip
    elif strangers:
        yield Problem(
            path=path, seen=strangers[0], wanted=f"one of engine.endpoints: {', '.join(known[:4])}",
            hint="write it as engine.endpoints does",
        )  # fmt: skip
    elif set(known) <= set(engines):
        yield Problem(
            path=path, seen="every engine", wanted="fewer than engine.endpoints has",
            hint="other prompts need an engine too",
        )  # fmt: skip
