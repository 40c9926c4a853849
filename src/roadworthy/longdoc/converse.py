"""A question in rounds: locate, extract, answer, verify. The model proposes, the stored text decides.

What the model writes is never trusted: an answer without citations, with quotations that do not stand there, with
numbers of other sections, in prose, or cut in the middle is an answer whose claims are unverified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from roadworthy.core.errors import RoadworthyError, SpecError
from roadworthy.longdoc import prompt
from roadworthy.longdoc.cite import Citation, cite, stands, wrongly_named
from roadworthy.longdoc.replies import Objects, WithoutThoughts, objects, texts

if TYPE_CHECKING:
    from roadworthy.longdoc.prompt import Budget, CountTokens, Passage, Stage
    from roadworthy.longdoc.search import Hit, StoredUnit
    from roadworthy.longdoc.values import Unit

Outcome = Literal["answered", "not_in_document", "unverified"]
RoundName = Literal["locate", "extract", "answer", "verify"]

CANDIDATES = 24
"""Units that the first round looks at."""

PASSAGES = 20
"""Units at most that are read in full, before the budget."""

MOST_CLAIMS = 40
MOST_CITATIONS = 8
LONGEST_CLAIM = 2000
"""Characters; a model that repeats itself is cut off here."""

LEAST_WINDOW = 600
"""Tokens; below it nothing is gained by asking with less."""

_RANK_CONSTANT = 10
"""Of reciprocal rank fusion; small, so that what stands first in the user's own words stays near the front."""


class TooLong(RoadworthyError):
    """The engine counted more tokens than it takes in one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """What a model said.

    Args:
        cut: whether it ended before the model was done.
        prompt_tokens: as the engine counted them; None where it does not say.
        cached_tokens: of the prompt that came out of the prefix cache.
    """

    text: str
    cut: bool = False
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class Model(Protocol):
    """A chat model."""

    def chat(
        self, messages: Sequence[Message], *, max_tokens: int, io_wait_s: float, heard: Callable[[str], None]
    ) -> Spoken:
        """Speak; ``heard`` gets every piece as it comes. Raises TooLong, and ProbeError or Temporary without answer."""
        ...


class Library(Protocol):
    """The documents of whoever asks, and nobody else's."""

    def search(self, question: str, *, limit: int) -> Sequence[Hit]: ...

    def by_ids(self, ids: Sequence[int]) -> Sequence[StoredUnit]: ...

    def of_document(self, name: str) -> Sequence[StoredUnit]:
        """All its units, in the order of the text."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One sentence of the answer.

    Args:
        citations: that stand in the stored text; what has none is not verified.
        supported: what the model said when it was asked again; None where it did not say.
        problems: why it is not verified.
    """

    text: str
    citations: tuple[Citation, ...] = ()
    supported: bool | None = None
    problems: tuple[str, ...] = ()

    @property
    def verified(self) -> bool:
        return bool(self.citations) and not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One request to the model, or the search before it."""

    name: RoundName
    took_s: float
    io_wait_s: float
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came out.

    Args:
        claims: verified ones.
        unverified: the others, each with its problems.
    """

    question: str
    outcome: Outcome
    claims: tuple[Claim, ...]
    unverified: tuple[Claim, ...]
    passages: tuple[Passage, ...]
    rounds: tuple[Round, ...]
    notes: tuple[str, ...] = ()


class Listener(Protocol):
    """Hears of progress; everything may be ignored."""

    def round(self, name: RoundName) -> None: ...

    def claim(self, claim: Claim) -> None:
        """A claim as it is completed, its citations checked; the last round may still withdraw it."""
        ...


class Silent:
    """Hears nothing."""

    def round(self, name: RoundName) -> None: ...

    def claim(self, claim: Claim) -> None: ...


@dataclass(slots=True, kw_only=True)
class Conversation:
    """One question to one model about one library.

    Args:
        now_s: a clock that only goes forward.
        quick: leaves out the rounds before and after the answer.
    """

    library: Library
    model: Model
    budget: Budget
    count: CountTokens
    now_s: Callable[[], float]
    listener: Listener = field(default_factory=Silent)
    quick: bool = False
    _rounds: list[Round] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)
    _io_wait_s: float = 0.0
    _documents: dict[str, tuple[Unit, ...]] = field(default_factory=dict)

    def ask(self, question: str) -> Answer:
        """Raises SpecError for an empty question or too small a budget, and whatever keeps the model from speaking."""
        question = question.strip()
        if not question:
            raise SpecError("an empty question has no answer")
        while True:
            try:
                return self._ask(question)
            except TooLong:
                if self.budget.window_tokens < LEAST_WINDOW:
                    raise
                self.budget = self.budget.smaller()
                self._notes.append(f"the engine counts more tokens: asked again with {self.budget.window_tokens:,}")

    def _ask(self, question: str) -> Answer:
        ranked = [hit.stored for hit in self._search(question, CANDIDATES)]
        if not ranked:
            return self._answer(question, (), {}, said_no=True)
        if not self.quick:
            ranked = self._locate(question, ranked)
        stage = self._stage(question, self._widened(ranked))
        quotes: tuple[Citation, ...] = ()
        if not self.quick:
            quotes, nothing = self._extract(question, stage)
            if nothing and not quotes:
                return self._answer(question, (), stage.passages, said_no=True)
        claims, said_no = self._claims(question, stage, quotes)
        if claims and not self.quick:
            claims = self._verify(question, stage, claims)
        return self._answer(question, claims, stage.passages, said_no=said_no)

    # looking

    def _search(self, question: str, limit: int) -> Sequence[Hit]:
        since_s = self.now_s()
        hits = self.library.search(question, limit=limit)
        for name in dict.fromkeys(hit.stored.document for hit in hits):
            if name not in self._documents:
                self._documents[name] = tuple(one.unit for one in self.library.of_document(name))
        self._io_wait_s += self.now_s() - since_s
        return hits

    def _locate(self, question: str, ranked: Sequence[StoredUnit]) -> list[StoredUnit]:
        """Candidates in a better order, with what the model's own wordings find."""
        stage = self._stage(question, ranked, characters=prompt.CANDIDATE_CHARACTERS)
        found = objects(self._speak("locate", stage.message(question, prompt.LOCATE)).text)
        ids = [one for reply in found for one in texts(reply.get("ids"), most=CANDIDATES, longest=8)]
        searches = [one for reply in found for one in texts(reply.get("searches"), most=3, longest=300)][:3]
        lists = [(1.0, ranked), (0.7, [stage.passages[one].stored for one in ids if one in stage.passages])]
        lists += [(0.4, [hit.stored for hit in self._search(one, CANDIDATES // 2)]) for one in dict.fromkeys(searches)]
        return _merged(lists)

    def _widened(self, ranked: Sequence[StoredUnit]) -> list[StoredUnit]:
        """The neighbours under the same heading of what ranks first, behind everything else."""
        kept = list(ranked[:PASSAGES])
        since_s = self.now_s()
        for one in kept[:3]:
            for near in self.library.by_ids([one.id - 1, one.id + 1]):
                same = near.document == one.document and near.unit.path == one.unit.path
                if same and all(near.id != other.id for other in kept):
                    kept.append(near)
        self._io_wait_s += self.now_s() - since_s
        return kept

    def _stage(self, question: str, ranked: Sequence[StoredUnit], *, characters: int | None = None) -> Stage:
        names = sorted({one.document for one in ranked})
        return prompt.stage(
            ranked, {name: self._documents.get(name, ()) for name in names}, question, self.budget, self.count,
            # later rounds repeat claims and quotes; glimpses are not followed by any
            spare_tokens=0 if characters is not None or self.quick else self.budget.answer_tokens,
            characters=characters,
        )  # fmt: skip

    # asking

    def _speak(self, name: RoundName, content: str, heard: Callable[[str], None] = lambda _: None) -> Spoken:
        self.listener.round(name)
        since_s, waited_s = self.now_s(), self._io_wait_s
        self._io_wait_s = 0.0
        messages = (Message(role="system", content=prompt.RULES), Message(role="user", content=content))
        spoken = self.model.chat(messages, max_tokens=self.budget.answer_tokens, io_wait_s=waited_s, heard=heard)
        self._rounds.append(
            Round(
                name=name, took_s=self.now_s() - since_s, io_wait_s=waited_s, prompt_tokens=spoken.prompt_tokens,
                completion_tokens=spoken.completion_tokens, cached_tokens=spoken.cached_tokens, cut=spoken.cut,
            )
        )  # fmt: skip
        if spoken.cut:
            self._notes.append(f"the model's reply was cut in round {name}; more may fit with --answer-tokens")
        return spoken

    def _extract(self, question: str, stage: Stage) -> tuple[tuple[Citation, ...], bool]:
        """Quotations that stand there, and whether the model says that there is nothing."""
        found = objects(self._speak("extract", stage.message(question, prompt.EXTRACT)).text)
        quotes = [one for reply in _flat(found, "quotes") for one in _cited(reply, stage.passages)[0]]
        return tuple(dict.fromkeys(quotes)), any(reply.get("not_in_document") is True for reply in found)

    def _claims(self, question: str, stage: Stage, quotes: Sequence[Citation]) -> tuple[tuple[Claim, ...], bool]:
        """Claims as the model makes them, each checked as soon as it is complete."""
        ids = {passage.stored.id: passage.id for passage in stage.passages.values()}
        known = "\n".join(f'{ids[one.unit]}: "{one.quote}"' for one in quotes[:MOST_CITATIONS])
        task = f"Quotes found so far, all of them right:\n{known}\n\n{prompt.ANSWER}" if known else prompt.ANSWER
        claims: list[Claim] = []
        said_no = False
        reader, thoughts, prose = Objects(), WithoutThoughts(), []

        def take(piece: str) -> None:
            nonlocal said_no
            said = thoughts.feed(piece)
            prose.append(said)
            for reply in _flat(reader.feed(said), "claims"):
                said_no |= reply.get("not_in_document") is True
                claim = _claim(reply, stage.passages)
                if claim is not None and len(claims) < MOST_CLAIMS:
                    claims.append(claim)
                    self.listener.claim(claim)

        self._speak("answer", stage.message(question, task), take)
        said = ("".join(prose) + thoughts.end()).strip()
        if said and not claims and not said_no:
            claims = [Claim(text=said[:LONGEST_CLAIM], problems=("no citation: the model did not answer in the form",))]
            self.listener.claim(claims[0])
        return tuple(claims), said_no

    def _verify(self, question: str, stage: Stage, claims: Sequence[Claim]) -> tuple[Claim, ...]:
        """Every claim once more: does it follow from its quotes, and where it has none, is there one?"""
        lines = [_numbered(number, claim) for number, claim in enumerate(claims, 1)]
        task = f"Claims:\n{_fitting(lines, self.count, self.budget.answer_tokens)}\n\n{prompt.VERIFY}"
        judged = list(claims)
        for reply in _flat(objects(self._speak("verify", stage.message(question, task)).text), "claims"):
            number, supported = reply.get("n"), reply.get("supported")
            if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= len(judged):
                continue
            claim = judged[number - 1]
            if not claim.verified and supported is not False:
                better = _claim({"claim": claim.text, "cite": reply.get("cite")}, stage.passages)
                claim = better if better is not None and better.verified else claim
            if isinstance(supported, bool):
                claim = replace(claim, supported=supported)
            if supported is False:
                claim = replace(
                    claim, problems=(*claim.problems, "the model, asked again, does not find it in its quotes")
                )
            judged[number - 1] = claim
        return tuple(judged)

    def _answer(
        self, question: str, claims: Sequence[Claim], passages: Mapping[str, Passage], *, said_no: bool
    ) -> Answer:
        judged = [self._still_there(claim) for claim in _once(claims)]
        verified = tuple(one for one in judged if one.verified)
        unverified = tuple(one for one in judged if not one.verified)
        outcome: Outcome = "answered" if verified else "not_in_document" if said_no else "unverified"
        return Answer(
            question=question, outcome=outcome, claims=verified, unverified=unverified,
            passages=tuple(passages.values()), rounds=tuple(self._rounds), notes=tuple(dict.fromkeys(self._notes)),
        )  # fmt: skip

    def _still_there(self, claim: Claim) -> Claim:
        """The claim with its citations held against the store as it is now, where a document may have been replaced."""
        stored = {one.id: one for one in self.library.by_ids([one.unit for one in claim.citations])}
        if all(one.unit in stored and stands(one, stored[one.unit]) for one in claim.citations):
            return claim
        return replace(claim, citations=(), problems=(*claim.problems, "the document changed meanwhile"))


def _merged(lists: Iterable[tuple[float, Sequence[StoredUnit]]]) -> list[StoredUnit]:
    """Reciprocal rank fusion of several rankings with their weights."""
    scores: dict[int, float] = {}
    units: dict[int, StoredUnit] = {}
    for weight, ranking in lists:
        for place, one in enumerate(ranking):
            units.setdefault(one.id, one)
            scores[one.id] = scores.get(one.id, 0.0) + weight / (_RANK_CONSTANT + place)
    return [units[one] for one in sorted(scores, key=lambda one: -scores[one])]


def _flat(replies: Iterable[dict[str, Any]], name: str) -> Iterable[dict[str, Any]]:
    """Replies one by one, also where the model wrapped them in one object."""
    for reply in replies:
        inner = reply.get(name)
        if isinstance(inner, list):
            yield from (one for one in inner if isinstance(one, dict))
        yield reply


def _cited(reply: Mapping[str, Any], passages: Mapping[str, Passage]) -> tuple[tuple[Citation, ...], str]:
    """Citations of one ``{id, quote}``; without any, the reason."""
    quote, name = reply.get("quote"), reply.get("id")
    if not isinstance(quote, str) or not quote.strip():
        return (), "no quote"
    named = passages.get(name.strip(" []").upper()) if isinstance(name, str) else None
    found = cite(quote, named.stored if named else None, [one.stored for one in passages.values()])
    short = " ".join(quote.split())[:80]
    return found, "" if found else f"“{short}” does not stand in the passages, or is too short to prove anything"


def _claim(reply: Mapping[str, Any], passages: Mapping[str, Passage]) -> Claim | None:
    text = reply.get("claim")
    if not isinstance(text, str) or not text.strip():
        return None
    asked = reply.get("cite")
    asked = asked if isinstance(asked, list) else [asked] if isinstance(asked, dict) else []
    citations: list[Citation] = []
    reasons: list[str] = []
    for one in asked[:MOST_CITATIONS]:
        found, reason = _cited(one, passages) if isinstance(one, dict) else ((), "no quote")
        citations += [each for each in found if each not in citations]
        reasons += [reason] if reason else []
    problems = () if citations else tuple(reasons) or ("no citation",)
    if citations:
        units = {one.stored.id: one.stored for one in passages.values()}
        strange = wrongly_named(text, [units[one.unit] for one in citations])
        if strange:
            cited = ", ".join(dict.fromkeys(one.section for one in citations))
            problems = (f"names {', '.join(strange)}, but its quotes stand in {cited}",)
    return Claim(text=text.strip()[:LONGEST_CLAIM], citations=tuple(citations), problems=problems)


def _numbered(number: int, claim: Claim) -> str:
    quotes = "; ".join(f"“{one.quote}”" for one in claim.citations) or "no valid quote"
    return f"{number}. {claim.text}\n   Quotes: {quotes}"


def _fitting(lines: Sequence[str], count: CountTokens, most_tokens: int) -> str:
    """As many lines from the front as fit."""
    kept: list[str] = []
    for line in lines:
        if count("\n".join((*kept, line))) > most_tokens:
            break
        kept.append(line)
    return "\n".join(kept)


def _once(claims: Iterable[Claim]) -> list[Claim]:
    """A model that repeats itself says it once."""
    return list({" ".join(claim.text.split()).lower(): claim for claim in claims}.values())
