"""Asks every question, a few at a time, and scores what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from roadworthy.bench.client import EngineClient, GenerateRequest, Message
from roadworthy.bench.probes.cases import ProbeCase, ProbeKind, build_case
from roadworthy.bench.probes.score import ProbeAnswer, score_of

ANSWER_TOKENS = 64
"""Enough for a few numbers with words around them; a model that reasons first needs ``answer_tokens`` raised."""

_INSTRUCTION = "Read the text below. A question about it follows. Answer from the text alone.\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """Which questions to ask.

    Args:
        lengths_tokens, depths: every kind is asked at every pair of them, but ``many``, which has no depth, once a
            length.
        repeats: other texts and numbers at each place.
        answer_tokens: how long an answer may be.
    """

    kinds: tuple[ProbeKind, ...]
    lengths_tokens: tuple[int, ...]
    depths: tuple[float, ...]
    repeats: int = 3
    seed: int = 0
    answer_tokens: int = ANSWER_TOKENS

    def places(self) -> Iterator[tuple[ProbeKind, int, float, int]]:
        """(kind, length, depth, repeat) of every question, short texts first."""
        for length in sorted(self.lengths_tokens):
            for kind in self.kinds:
                for depth in (0.5,) if kind == "many" else self.depths:
                    for repeat in range(self.repeats):
                        yield kind, length, depth, repeat

    @property
    def count(self) -> int:
        return sum(1 for _ in self.places())


async def ask_all(
    plan: ProbePlan,
    client: EngineClient,
    *,
    tokens_of: Callable[[str], float],
    now_s: Callable[[], float],
    key: str | None = None,
    at_once: int = 4,
    stop: asyncio.Event | None = None,
    told: Callable[[ProbeAnswer], None] = lambda _: None,
) -> tuple[ProbeAnswer, ...]:
    """Every answer, in the order of the plan.

    Args:
        at_once: questions under way at any time.
        stop: set it to ask no more; questions under way are abandoned.
        told: hears of each answer as it comes.
    """
    places = iter(enumerate(plan.places()))
    answers: dict[int, ProbeAnswer] = {}

    async def worker() -> None:
        for index, (kind, length, depth, repeat) in places:
            case = build_case(
                kind, length_tokens=length, depth_ratio=depth, repeat=repeat, seed=plan.seed, tokens_of=tokens_of
            )
            answers[index] = await ask_one(case, client, now_s=now_s, key=key, answer_tokens=plan.answer_tokens)
            told(answers[index])

    async def all_workers() -> None:
        async with asyncio.TaskGroup() as workers:
            for _ in range(max(1, at_once)):
                workers.create_task(worker())

    asking = asyncio.create_task(all_workers())
    stopping = asyncio.create_task(_until(stop or asyncio.Event()))
    try:
        await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            asking.result()
    finally:
        asking.cancel()
        stopping.cancel()
        await asyncio.gather(asking, stopping, return_exceptions=True)
    return tuple(answers[index] for index in sorted(answers))


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def ask_one(
    case: ProbeCase, client: EngineClient, *, now_s: Callable[[], float], key: str | None, answer_tokens: int
) -> ProbeAnswer:
    """Ask ``case`` and score the reply."""
    sent_s = now_s()
    outcome = await client.generate(
        GenerateRequest(
            messages=(Message("user", prompt_of(case)),), output_tokens=answer_tokens, key=key, to_its_end=False
        )
    )
    return ProbeAnswer(
        case=case,
        reply=outcome.text,
        score=None if outcome.error else score_of(case, outcome.text),
        prompt_tokens=outcome.n_in,
        ttft_s=outcome.token_times_s[0] - sent_s if outcome.token_times_s else None,
        error=outcome.error,
    )


def prompt_of(case: ProbeCase) -> str:
    """What is sent: the instruction, the text, the question last."""
    return f"{_INSTRUCTION}{case.text}\n\n{case.question}"


def about(answers: Sequence[ProbeAnswer]) -> str:
    """How far a probe has come, in words."""
    failed = sum(bool(one.error) for one in answers)
    right = sum(one.score == 1.0 for one in answers)
    return f"{len(answers):,} answered, {right:,} right" + (f", {failed:,} failed" if failed else "")
