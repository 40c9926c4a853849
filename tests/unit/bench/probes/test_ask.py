"""Asking: every question once, a few at a time, and an early end keeps what was answered."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from roadworthy.bench.client import GenerateRequest, Outcome
from roadworthy.bench.probes.ask import ProbePlan, ask_all
from roadworthy.bench.probes.cases import KINDS, grid
from roadworthy.bench.probes.score import ProbeAnswer, report_of
from support.virtual_time import run_virtual

PLAN = ProbePlan(kinds=KINDS, lengths_tokens=(400, 900), depths=grid(3), repeats=2)


class Reader:
    """A model that reads: it follows names, takes the latest number, and forgets the middle of what is too long."""

    def __init__(self, now_s: Callable[[], float], *, remembers_words: int = 10_000) -> None:
        self._now_s = now_s
        self._remembers_words = remembers_words
        self.in_flight = self.most_in_flight = 0
        self.asked: list[GenerateRequest] = []

    async def generate(self, request: GenerateRequest) -> Outcome:
        self.asked.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(1)
        self.in_flight -= 1
        return Outcome(
            token_times_s=(self._now_s(),), t_end_s=self._now_s(), text=self._answer(request), n_in=1, n_out=1
        )

    def _answer(self, request: GenerateRequest) -> str:
        text, _, question = request.messages[0].text.rpartition("\n\n")
        words = text.split()
        if len(words) > self._remembers_words:
            half = self._remembers_words // 2
            text = " ".join([*words[:half], *words[-half:]])
        called = re.search(r"called (\w+)\?", question)
        if called:
            known = re.search(rf"call (the [\w ]+?) by another name, {called[1]}\.", text)
            question = known[1] if known else ""
        found = []
        for place in re.findall(r"the (?!numbers? |order|place)\w+ \w+", question):
            numbers = re.findall(rf"(?i)number of {place} (?:is|was changed; it is now) (\d+)", text)
            found += numbers[-1:]
        return ", ".join(found) or "I cannot tell."


def asked(
    reader: Callable[[Callable[[], float]], Reader], *, at_once: int = 4, stop_after_s: float | None = None
) -> tuple[tuple[ProbeAnswer, ...], Reader]:
    async def main(now_s: Callable[[], float]) -> tuple[tuple[ProbeAnswer, ...], Reader]:
        client, stop = reader(now_s), asyncio.Event()
        if stop_after_s is not None:
            asyncio.get_running_loop().call_later(stop_after_s, stop.set)
        answers = await ask_all(
            PLAN, client, tokens_of=lambda text: len(text.split()), now_s=now_s, at_once=at_once, stop=stop
        )
        return answers, client

    return run_virtual(main)


def test_a_model_that_reads_everything_scores_everything() -> None:
    answers, client = asked(Reader)
    assert len(answers) == PLAN.count == 2 * (3 * 3 * 2 + 2)
    assert {report.kind: report.score for report in report_of(answers)} == dict.fromkeys(KINDS, 1.0)
    assert client.most_in_flight == 4


def test_a_model_that_loses_the_middle_shows_a_hole_at_the_longer_length() -> None:
    answers, _ = asked(lambda now_s: Reader(now_s, remembers_words=500))
    needle = next(report for report in report_of(answers) if report.kind == "needle")
    scores = {(cell.length_tokens, cell.depth_ratio): cell.score for cell in needle.cells}
    assert scores[400, 0.5] == 1.0
    assert scores[900, 0.5] == 0.0
    assert scores[900, 0.0] == scores[900, 1.0] == 1.0


def test_a_question_lets_the_model_stop_by_itself_and_stands_last() -> None:
    _, client = asked(Reader)
    for request in client.asked:
        assert not request.to_its_end
        assert request.messages[0].text.endswith("alone.") or request.messages[0].text.endswith("in this order.")


def test_an_early_end_keeps_what_was_answered() -> None:
    answers, client = asked(Reader, at_once=2, stop_after_s=4.5)
    assert len(answers) == 8
    assert all(answer.score == 1.0 for answer in answers)
    assert len(client.asked) == 10


def test_a_failed_question_has_no_score() -> None:
    class Down(Reader):
        async def generate(self, request: GenerateRequest) -> Outcome:
            return Outcome(token_times_s=(), t_end_s=0.0, error="HTTP 500")

    answers, _ = asked(Down)
    assert {answer.score for answer in answers} == {None}
    assert {answer.error for answer in answers} == {"HTTP 500"}
