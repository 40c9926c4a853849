"""Long-context questions put to a real endpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.adapters.event_loop import loop_factory
from roadworthy.adapters.load_client import LoadClient
from roadworthy.adapters.load_meter import stop_on_signals
from roadworthy.adapters.load_run import ask_target
from roadworthy.bench.probes.ask import ask_all
from roadworthy.core.errors import SpecError

if TYPE_CHECKING:
    from roadworthy.adapters.load_request import BenchRequest
    from roadworthy.bench.probes.ask import ProbePlan
    from roadworthy.bench.probes.score import ProbeAnswer
    from roadworthy.bench.prompts import SizedBy

ROOM_RATIO = 0.97
"""Of the context that question and answer may fill: lengths are planned and come out a little off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRun:
    """What was asked and answered. ``too_long`` are lengths of the plan beyond the model's context."""

    target: str
    model: str
    simulated: bool
    sized_by: SizedBy
    plan: ProbePlan
    answers: tuple[ProbeAnswer, ...]
    too_long: tuple[int, ...]
    partial: bool


def run_probes(
    request: BenchRequest, plan: ProbePlan, *, at_once: int, told: Callable[[ProbeAnswer], None]
) -> ProbeRun:
    """Ask the questions of ``plan``; Ctrl-C ends it early and keeps what was answered.

    Raises:
        ProbeError: the target cannot be reached, turns us away, or does not complete one token.
        SpecError: every length is beyond the model's context.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_run(request, plan, at_once, told))


async def _run(request: BenchRequest, plan: ProbePlan, at_once: int, told: Callable[[ProbeAnswer], None]) -> ProbeRun:
    target = await ask_target(request)
    most = target.model.max_model_len_tokens
    room = plan.lengths_tokens if most is None else tuple(
        length for length in plan.lengths_tokens if length + plan.answer_tokens <= most * ROOM_RATIO
    )  # fmt: skip
    if not room:
        raise SpecError(
            f"{target.model.id} has a context of {most:,} tokens, too short for any of the lengths asked for",
            hint=f"add --lengths with something below {int((most or 0) * ROOM_RATIO) - plan.answer_tokens:,}",
        )
    fitting = replace(plan, lengths_tokens=room)
    stop = asyncio.Event()
    async with LoadClient(target.origin, model=target.model.id, timeout_s=request.timeout_s) as client:
        with stop_on_signals(stop):
            answers = await ask_all(
                fitting,
                client,
                tokens_of=target.tokens_of or target.calibration.tokens_of,
                now_s=time.monotonic,
                key=request.first_key,
                at_once=at_once,
                stop=stop,
                told=told,
            )
    return ProbeRun(
        target=str(target.origin),
        model=target.model.id,
        simulated=target.model.simulated,
        sized_by=target.calibration.sized_by,
        plan=fitting,
        answers=answers,
        too_long=tuple(length for length in plan.lengths_tokens if length not in room),
        partial=stop.is_set(),
    )
