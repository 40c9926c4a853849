"""Conversations of about the planned length, made of plain words and the same for the same plan.

Which text a segment is follows from its name and the run's salt alone, so prompts that share a segment share its text
to the letter, and an engine's prefix cache sees what the plan meant. Another salt is another text of the same length:
a run that is repeated must not meet what the first one left in the cache.

Lengths are planned in tokens and sent in words. A :class:`Calibration` says how many tokens a word is: from the
model's own tokenizer word by word, from what the server counted for two probes of known length, or, where neither is
to be had, from bytes. Reports say which.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from roadworthy.advise.arrivals import SHARED_SEGMENT, PlannedRequest
from roadworthy.bench.client import GenerateRequest, Message, Role

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

BYTES_PER_TOKEN = 4.0
"""Of English text, about, in the tokenizers of today's models."""

_WORD_BYTES = sum(len(word) + 1 for word in _WORDS) / len(_WORDS)

SizedBy = Literal["tokenizer", "server", "bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How prompts are sized: tokens of one word, and tokens of a message beyond its words (template, roles).

    Args:
        sized_by: where the numbers come from.
        word_tokens: tokens of each word by the tokenizer; empty when only the mean is known.
    """

    tokens_per_word: float = _WORD_BYTES / BYTES_PER_TOKEN
    tokens_per_message: float = 0.0
    sized_by: SizedBy = "bytes"
    word_tokens: Mapping[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def of_probes(cls, counts: tuple[int, int]) -> Calibration:
        """From the prompt tokens that the server counted for the probes of ``PROBE_WORDS``.

        Two points make a line; a server that counts no more for the longer probe keeps the default.
        """
        (short, long), (few, many) = PROBE_WORDS, counts
        if many <= few:
            return cls()
        slope = (many - few) / (long - short)
        return cls(tokens_per_word=slope, tokens_per_message=max(0.0, few - slope * short), sized_by="server")

    def by_tokenizer(self, count: Callable[[str], int]) -> Calibration:
        """This calibration with each word counted by ``count``, which gives the tokens of a text.

        A word is counted as it stands inside a sentence, behind a blank: tokenizers split there, so that words add up.
        The tokens of a message's frame stay those that the server showed.
        """
        word_tokens = {word: max(1, count(f"a {word}") - count("a")) for word in _WORDS}
        frame = self.tokens_per_message
        return replace(
            self,
            tokens_per_word=sum(word_tokens.values()) / len(word_tokens),
            tokens_per_message=frame,
            sized_by="tokenizer",
            word_tokens=MappingProxyType(word_tokens),
        )

    def cut(self, name: str, tokens: int, *, salt: str = "", framed: bool = True) -> str:
        """About ``tokens`` tokens of the text called ``name``, at least one word.

        Args:
            framed: the text opens a message, whose frame is part of the length.
        """
        wanted = tokens - (self.tokens_per_message if framed else 0.0)
        if not self.word_tokens:
            return segment_text(name, max(1, round(wanted / self.tokens_per_word)), salt)
        return " ".join(self._exactly(name, wanted, salt))

    def tokens_of(self, text: str) -> float:
        """About how many tokens ``text`` has, by its bytes: a text of other words than ours is sized by length."""
        return len(text.encode()) * self.tokens_per_word / _WORD_BYTES

    def words(self, tokens: int) -> int:
        """Words of a message of ``tokens`` tokens on average, at least one."""
        return max(1, round((tokens - self.tokens_per_message) / self.tokens_per_word))

    def _exactly(self, name: str, wanted: float, salt: str) -> list[str]:
        words = _words_of(f"{salt}:{name}", max(1, round(wanted)))
        total = 0
        for place, word in enumerate(words):
            total += self.word_tokens[word]
            if total >= wanted:
                over = total - wanted > self.word_tokens[word] / 2 and place > 0
                return words[: place if over else place + 1]
        return words


def probe(which: int) -> GenerateRequest:
    """The calibration probe of ``PROBE_WORDS[which]`` words; it asks for one token."""
    text = " ".join(_words_of("probe", PROBE_WORDS[which]))
    return GenerateRequest(messages=(Message("user", text),), output_tokens=1)


def segment_text(name: str, words: int, salt: str = "") -> str:
    """The first ``words`` words of the text called ``name``; a shorter cut is a prefix of a longer one."""
    return " ".join(_words_of(f"{salt}:{name}", words))


def conversation(
    request: PlannedRequest, answers: Mapping[str, str], calibration: Calibration, salt: str = ""
) -> tuple[Message, ...]:
    """The messages of ``request``: the shared system prompt, then what was said, by turns.

    Segments of one role that follow each other are one message, since chat templates want the roles to alternate.

    Args:
        answers: what the engine answered so far in this session, by answer id; a turn it does not hold is filler.
    """
    if request.said:
        return tuple(Message(_role(role), text) for role, text in request.said)
    pieces = ((_role_of(segment.id), segment) for segment in request.segments)
    return tuple(
        Message(role, _joined([segment for _, segment in group], answers, calibration, salt))
        for role, group in groupby(pieces, key=itemgetter(0))
    )


def _joined(segments: Sequence[Segment], answers: Mapping[str, str], calibration: Calibration, salt: str) -> str:
    texts = (
        answers[segment.id]
        if segment.id in answers
        else calibration.cut(segment.id, segment.tokens, salt=salt, framed=place == 0)
        for place, segment in enumerate(segments)
    )
    return " ".join(texts)


def _role_of(segment: str) -> Role:
    if segment.startswith(SHARED_SEGMENT):
        return "system"
    return "assistant" if segment.endswith("a") else "user"


def _role(name: str) -> Role:
    """A role that every engine's template takes; tools and functions speak as the user."""
    return "system" if name == "system" else "assistant" if name == "assistant" else "user"


def _words_of(name: str, count: int) -> list[str]:
    return random.Random(name).choices(_WORDS, k=count)
