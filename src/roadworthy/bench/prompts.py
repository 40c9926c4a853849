"""Conversations of about the planned length, made of plain words and the same for the same plan.

Which text a segment is follows from its name and the run's salt alone, so prompts that share a segment share its text
to the letter, and an engine's prefix cache sees what the plan meant. Another salt is another text of the same length:
a run that is repeated must not meet what the first one left in the cache. Lengths are planned in tokens and sent in
words: two probes of known length tell how many tokens this server makes of a word and of a message's frame.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.advise.arrivals import SHARED_SEGMENT, PlannedRequest
from roadworthy.bench.client import GenerateRequest, Message

if TYPE_CHECKING:
    from roadworthy.twin.prompt import Segment

_TEXT = """
the of and to in is that for it was on are as with they at be this from have or by one had not but what all were
when we there can an your which their said if do will each about how up out them then she many some so these
would other into has more her two like him see time could no make than first been its who now people my made
over did down only way find use may water long little very after words called just where most know get through
back much before go good new write our used me man too any day same right look think also around another came
"""
_WORDS = tuple(_TEXT.split())

PROBE_WORDS = (40, 240)
"""Lengths of the two calibration probes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How this server counts: tokens of one word, and tokens of a message beyond its words (template, roles)."""

    tokens_per_word: float = 1.3
    tokens_per_message: float = 0.0

    @classmethod
    def of_probes(cls, counts: tuple[int, int]) -> Calibration:
        """From the prompt tokens that the server counted for the probes of ``PROBE_WORDS``.

        Two points make a line; a server that counts no more for the longer probe keeps the default.
        """
        (short, long), (few, many) = PROBE_WORDS, counts
        if many <= few:
            return cls()
        slope = (many - few) / (long - short)
        return cls(tokens_per_word=slope, tokens_per_message=max(0.0, few - slope * short))

    def words(self, tokens: int) -> int:
        """Words of a message of ``tokens`` tokens, at least one."""
        return max(1, round((tokens - self.tokens_per_message) / self.tokens_per_word))


def probe(which: int) -> GenerateRequest:
    """The calibration probe of ``PROBE_WORDS[which]`` words; it asks for one token."""
    text = " ".join(_stream("probe", PROBE_WORDS[which]))
    return GenerateRequest(messages=(Message("user", text),), output_tokens=1)


def segment_text(name: str, words: int, salt: str = "") -> str:
    """The first ``words`` words of the text called ``name``; a shorter cut is a prefix of a longer one."""
    return " ".join(_stream(f"{salt}:{name}", words))


def conversation(
    request: PlannedRequest, answers: Mapping[str, str], calibration: Calibration, salt: str = ""
) -> tuple[Message, ...]:
    """The messages of ``request``: the shared system prompt, then what was said, by turns.

    Args:
        answers: what the engine answered so far in this session, by answer id; a turn it does not hold is filler.
    """
    return tuple(_message(segment, answers, calibration, salt) for segment in request.segments)


def _message(segment: Segment, answers: Mapping[str, str], calibration: Calibration, salt: str) -> Message:
    if segment.id in answers:
        return Message("assistant", answers[segment.id])
    text = segment_text(segment.id, calibration.words(segment.tokens), salt)
    if segment.id == SHARED_SEGMENT:
        return Message("system", text)
    return Message("assistant" if segment.id.endswith("a") else "user", text)


def _stream(name: str, words: int) -> Iterator[str]:
    rng = random.Random(name)
    return iter(rng.choices(_WORDS, k=words))
