"""What a probe asks: a text with facts in it at known depths, a question, and the answers that count as right.

Four kinds, each with one way in which long contexts fail:

========== ========================================================== ==============================================
kind       the text holds                                             fails when
========== ========================================================== ==============================================
needle     one fact at one depth                                      a position of the context is not read
many       several facts, spread; all are asked for                   attention is diluted by what else was found
overwrite  the same fact twice, the later one counts                  the first, or the one that stands out, wins
alias      a fact about a name, and another place that says who the   two places are not put together; words of the
           name is; the question uses the other name                  question match nothing near the answer
========== ========================================================== ==============================================

Facts are numbers of four digits that belong to made-up places, so nothing can be known or guessed (one in 9,000). The
filler is made of complete sentences that hold no number, drawn anew for every case: a repeated haystack would be
answered from the prefix cache, and one that is known by heart would measure training.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

ProbeKind = Literal["needle", "many", "overwrite", "alias"]

KINDS: tuple[ProbeKind, ...] = ("needle", "many", "overwrite", "alias")
MANY = 4
"""Facts of a case of the kind ``many``."""

_PLACES = (
    "the harbour office", "the north mill", "the old granary", "the glass house", "the river station", "the upper farm",
    "the stone bridge", "the small archive", "the west gate", "the salt store", "the clock tower", "the green chapel",
    "the fish market", "the long barn", "the print shop", "the weather hut", "the brick kiln", "the toll house",
)  # fmt: skip
_OTHER_NAMES = (
    "Maple", "Juniper", "Falcon", "Copper", "Lantern", "Meadow", "Orchard", "Pebble", "Raven", "Saffron", "Thistle",
    "Walnut", "Amber", "Basil", "Cedar", "Dahlia",
)  # fmt: skip
_SUBJECTS = (
    "The committee", "A visitor", "The gardener", "Her neighbour", "The younger clerk", "A travelling merchant",
    "The baker", "Their guide", "The retired teacher", "An apprentice", "The boatman", "The choir",
)  # fmt: skip
_VERBS = (
    "spoke about", "remembered", "wrote a letter about", "complained of", "was pleased with", "asked after",
    "argued over", "dreamed of", "walked past", "sketched", "waited for", "laughed about",
)  # fmt: skip
_OBJECTS = (
    "the first snow of the season", "a parcel that never came", "the sound of the evening bells", "bread and cold milk",
    "the road along the shore", "a quarrel between cousins", "the price of good rope", "an unfinished wall",
    "the smell of wet leaves", "a song nobody knew the end of", "the wind from the hills", "two lame horses",
)  # fmt: skip
_ENDINGS = (
    "before the lamps were lit", "while the rain kept on", "and nobody answered", "as people do in autumn",
    "without being asked", "until the room grew quiet", "on the way home", "and then changed the subject",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeCase:
    """One question on one text.

    Args:
        length_tokens: the prompt's length as planned.
        depth_ratio: where the fact stands, 0 at the beginning; of ``overwrite`` the later of the two, of ``alias`` the
            fact itself; ``many`` is spread over the whole text and has the depth of its middle.
        text, question: the prompt.
        right: every answer that has to be in the reply; ``wrong`` must not be, unless what is right comes last.
    """

    kind: ProbeKind
    length_tokens: int
    depth_ratio: float
    repeat: int
    text: str
    question: str
    right: tuple[str, ...]
    wrong: tuple[str, ...] = ()


def build_case(
    kind: ProbeKind,
    *,
    length_tokens: int,
    depth_ratio: float,
    repeat: int,
    seed: int,
    tokens_of: Callable[[str], float],
) -> ProbeCase:
    """The case of this kind, length and depth; the same arguments give the same case.

    Args:
        length_tokens: of text and question together.
        tokens_of: about how many tokens a text has.
    """
    rng = random.Random(f"{seed}:{kind}:{length_tokens}:{depth_ratio:.4f}:{repeat}")
    facts, question, right, wrong = _MAKERS[kind](rng, depth_ratio)
    used = tokens_of(question) + sum(tokens_of(sentence) for _, sentence in facts)
    filler = _filler(rng, max(0.0, length_tokens - used), tokens_of)
    return ProbeCase(
        kind=kind,
        length_tokens=length_tokens,
        depth_ratio=depth_ratio,
        repeat=repeat,
        text=_placed(filler, facts),
        question=question,
        right=right,
        wrong=wrong,
    )


_Made = tuple[list[tuple[float, str]], str, tuple[str, ...], tuple[str, ...]]


def _needle(rng: random.Random, depth_ratio: float) -> _Made:
    place, number = rng.choice(_PLACES), _number(rng)
    question = f"What is the number of {place}? Answer with the number alone."
    return [(depth_ratio, _fact(place, number))], question, (number,), ()


def _many(rng: random.Random, _: float) -> _Made:
    places = rng.sample(_PLACES, MANY)
    numbers = _numbers(rng, MANY)
    facts = [
        ((at + 0.5) / MANY, _fact(place, number))
        for at, (place, number) in enumerate(zip(places, numbers, strict=True))
    ]
    asked = ", ".join(places[:-1]) + f" and {places[-1]}"
    question = f"What are the numbers of {asked}? Answer with the numbers alone, in this order."
    return facts, question, tuple(numbers), ()


def _overwrite(rng: random.Random, depth_ratio: float) -> _Made:
    """The first statement stands in the middle of what lies before the second."""
    place, (old, new) = rng.choice(_PLACES), _numbers(rng, 2)
    facts = [
        (depth_ratio / 2, _fact(place, old)),
        (depth_ratio, f"The number of {place} was changed; it is now {new}."),
    ]
    question = f"What is the number of {place} now? Answer with the number alone."
    return facts, question, (new,), (old,)


def _alias(rng: random.Random, depth_ratio: float) -> _Made:
    """The alias stands on the other side of the text from the fact; another place has an alias and a number too."""
    place, decoy = rng.sample(_PLACES, 2)
    name, other = rng.sample(_OTHER_NAMES, 2)
    number, false = _numbers(rng, 2)
    away = (depth_ratio + 0.5) % 1.0
    facts = [
        (depth_ratio, _fact(place, number)),
        (away, f"People in the valley call {place} by another name, {name}."),
        ((depth_ratio + 0.25) % 1.0, _fact(decoy, false)),
        ((away + 0.25) % 1.0, f"People in the valley call {decoy} by another name, {other}."),
    ]
    question = f"What is the number of the place that is called {name}? Answer with the number alone."
    return facts, question, (number,), (false,)


_MAKERS: dict[ProbeKind, Callable[[random.Random, float], _Made]] = {
    "needle": _needle,
    "many": _many,
    "overwrite": _overwrite,
    "alias": _alias,
}


def _fact(place: str, number: str) -> str:
    return f"The number of {place} is {number}."


def _number(rng: random.Random) -> str:
    return str(rng.randrange(1000, 10_000))


def _numbers(rng: random.Random, count: int) -> list[str]:
    return [str(number) for number in rng.sample(range(1000, 10_000), count)]


def _filler(rng: random.Random, tokens: float, tokens_of: Callable[[str], float]) -> list[str]:
    sentences, total = [], 0.0
    while total < tokens:
        sentence = f"{rng.choice(_SUBJECTS)} {rng.choice(_VERBS)} {rng.choice(_OBJECTS)} {rng.choice(_ENDINGS)}."
        total += tokens_of(sentence)
        sentences.append(sentence)
    return sentences[:-1] if sentences and total > tokens else sentences


def _placed(filler: Sequence[str], facts: Sequence[tuple[float, str]]) -> str:
    """``filler`` with each fact between the sentences at its depth; at 0 before all, at 1 behind all."""
    pieces: list[str] = list(filler)
    for depth_ratio, sentence in sorted(facts, reverse=True):
        pieces.insert(round(depth_ratio * len(filler)), sentence)
    return " ".join(pieces)


def grid(depths: int) -> tuple[float, ...]:
    """That many depths from the beginning to the end, evenly; one is the middle."""
    if depths == 1:
        return (0.5,)
    return tuple(at / (depths - 1) for at in range(depths))
