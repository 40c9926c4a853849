"""Signals in logs: literals find the few lines that matter, patterns read them. Constant memory, any size of log.

A signal names literals, one of which any line that carries it must contain. A log repeats itself: with digits and
hexadecimal letters taken out, a million lines are a few hundred shapes. Each shape is looked at once; what it can mean
is remembered, and lines of a shape that means nothing are never decoded. Taking the same characters out of the literals
keeps the test necessary: a literal that is in a line is, so reduced, in the reduced line.

Where every line is of a shape of its own, as when prompts are logged, new shapes are searched together for all
literals in one pass (``literals``). Without what that takes, their words still repeat: the longest word of a literal
must be part of a word of the line, so a line is searched for those literals alone that one of its words calls for;
which those are is remembered for each word.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from roadworthy.diagnose.anatomy import writer_of
from roadworthy.diagnose.literals import finder_of
from roadworthy.diagnose.values import Clue, Line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from roadworthy.diagnose.literals import Finder

Meaning = TypeVar("Meaning")

KEEP_FIRST = 100
KEEP_LAST = 100
"""Clues kept of one signal in one file, from its start and from its end; the rest is counted. The first can be causes,
the last say how it stands."""

REMEMBERED_BYTES = 16 * 2**20
ENTRY_BYTES = 120
"""Of shapes, and of words, kept before the memory of them starts anew; each costs so much besides its own bytes."""

VARIABLE = b"0123456789abcdefABCDEF"
"""What differs between lines of one shape: numbers, identifiers, addresses."""

DUMP = re.compile(
    r"non-default args|Initializing an? (?:V\d )?(?:LLM )?engine|\bNamespace\(|server_args=|ServerArgs\(|EngineArgs\("
)
"""Lines in which an engine or a client prints all its settings: they hold the words of every failure and none of it."""

DUMP_LEAST_CHARS = 300
SETTINGS = ("args.", "env.", "flags.")
"""Signals that are about settings."""

QUOTES = re.compile(
    rb"(Received request \S+ prompt: |Request \S+ details: prompt: |Request \S+ JSON body: |"
    rb"Generated response \S+(?: \([^)\n]*\))?: output: |obj=\w+ReqInput\()[^\n]*"
)
QUOTE_MARKS = (b"Received request ", b" details: prompt: ", b" JSON body: ", b"Generated response ", b"ReqInput(")
"""Where request loggers of vLLM and SGLang begin to print what a client wrote or a model answered."""

SHORT = 3
"""A literal that keeps fewer characters than this is searched for as it is."""

LINE_LIMIT_BYTES = 4096
"""A longer line is cut: some loggers print a whole prompt."""

SHAPE_LIMIT_BYTES = 4 * LINE_LIMIT_BYTES
"""As much of a shape is searched for literals; the rest of a line may be megabytes."""

TOGETHER = 256
"""New shapes in one chunk from which on they are searched in one pass: below it that would not pay for its start."""

FOLLOWING_LINES = 8
"""Lines after the hit that a ``multiline`` signal reads too."""


@dataclass(frozen=True, eq=False)
class Signal:
    """One message that means something.

    Args:
        name: of the clue it gives, ``producer.what-happened``.
        literals: any of these must be in the line, letter for letter.
        pattern: searched in the line, and in the lines after it when ``multiline``; named groups become values. Empty:
            the literal is enough.
        unless: text that takes the meaning away.
    """

    name: str
    literals: tuple[str, ...]
    pattern: str = ""
    unless: str = ""
    multiline: bool = False

    @cached_property
    def encoded(self) -> tuple[bytes, ...]:
        return tuple(literal.encode() for literal in self.literals)

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.DOTALL if self.multiline else 0)

    @cached_property
    def excluded(self) -> re.Pattern[str]:
        return re.compile(self.unless)

    def read(self, text: str) -> Mapping[str, str] | None:
        """Values of a line that carries the signal, None when it does not."""
        if self.unless and self.excluded.search(text):
            return None
        if len(text) > DUMP_LEAST_CHARS and not self.name.startswith(SETTINGS) and DUMP.search(text[:DUMP_LEAST_CHARS]):
            return None
        if not self.pattern:
            return {}
        found = self.compiled.search(text)
        return None if found is None else {key: value for key, value in found.groupdict().items() if value is not None}


def signal(name: str, literals: str, pattern: str = "", *, unless: str = "", multiline: bool = False) -> Signal:
    """A signal; ``literals`` are parted by `` | ``."""
    return Signal(name=name, literals=tuple(literals.split(" | ")), pattern=pattern, unless=unless, multiline=multiline)


Called = tuple[tuple[bytes, Signal], ...]
"""Reduced literals, each with its signal."""


class SignalIndex:
    """Signals by literal, so that a line is read by those alone that could mean it."""

    def __init__(self, signals: Iterable[Signal]) -> None:
        signals = tuple(signals)
        self._rank = {one: at for at, one in enumerate(signals)}
        self._by_literal: dict[bytes, list[Signal]] = defaultdict(list)
        by_word: dict[bytes, list[tuple[bytes, Signal]]] = defaultdict(list)
        self._short: list[tuple[bytes, Signal]] = []
        for one in signals:
            for literal in one.literals:
                reduced = literal.encode().translate(None, VARIABLE)
                if len(reduced) >= SHORT and (words := reduced.split()):
                    by_word[max(words, key=len)].append((reduced, one))
                    self._by_literal[reduced].append(one)
                else:
                    self._short.append((literal.encode(), one))
        roots = beginnings(by_word)
        self._by_root: dict[bytes, list[tuple[bytes, Called]]] = defaultdict(list)
        for word, called in by_word.items():
            self._by_root[next(root for root in roots if word.startswith(root))].append((word, tuple(called)))
        any_root = alternation(roots)
        self._any_root, self._roots = re.compile(any_root), re.compile(b"(?=(" + any_root + b"))")
        self._shapes = _Memory[tuple[Signal, ...]]()
        self._words = _Memory[Called]()

    @cached_property
    def _finder(self) -> Finder | None:
        """Made once it pays: most logs never need it."""
        return finder_of(tuple(self._by_literal))

    def candidates(self, chunk: bytes) -> Iterator[tuple[int, tuple[Signal, ...]]]:
        """(index of the line, signals that it may carry) for the lines of ``chunk`` that may carry any."""
        shapes = chunk.translate(None, VARIABLE).split(b"\n")
        meanings = list(map(self._shapes.known.get, shapes))
        if None in meanings:
            fresh: dict[bytes, tuple[Signal, ...]] = dict.fromkeys(
                compress(shapes, [known is None for known in meanings]), ()
            )
            self._learn(fresh)
            meanings = [fresh[shape] if known is None else known for shape, known in zip(shapes, meanings, strict=True)]
        for index, found in enumerate(meanings):
            if found:
                yield index, found
        for literal, one in self._short:
            at, index, counted_to = chunk.find(literal), 0, 0
            while at >= 0:
                index += chunk.count(b"\n", counted_to, at)
                counted_to = at
                yield index, (one,)
                end = chunk.find(b"\n", at)
                at = chunk.find(literal, end) if end >= 0 else -1

    def _learn(self, fresh: dict[bytes, tuple[Signal, ...]]) -> None:
        """Fill in what each of ``fresh`` means; until then it is nothing."""
        if len(fresh) >= TOGETHER and self._finder is not None:
            self._learn_together(fresh, self._finder)
            return
        for shape in fresh:
            fresh[shape] = self._meaning(shape)

    def _learn_together(self, fresh: dict[bytes, tuple[Signal, ...]], find: Finder) -> None:
        shapes = list(fresh)
        searched = [shape[:SHAPE_LIMIT_BYTES] for shape in shapes]
        of_literal = tuple(self._by_literal.values())
        found: dict[int, list[Signal]] = defaultdict(list)
        at, end = 0, len(searched[0])
        for literal, hit in find(b"\n".join(searched)):
            while hit > end:
                at += 1
                end += 1 + len(searched[at])
            found[at].extend(of_literal[literal])
        for at, signals in found.items():
            fresh[shapes[at]] = self._ordered(signals)
        self._shapes.keep_all(searched, fresh.values())

    def _ordered(self, signals: list[Signal]) -> tuple[Signal, ...]:
        return tuple(sorted(set(signals), key=self._rank.__getitem__))

    def _meaning(self, shape: bytes) -> tuple[Signal, ...]:
        if len(shape) > SHAPE_LIMIT_BYTES:
            shape = shape[:SHAPE_LIMIT_BYTES]
            if (known := self._shapes.known.get(shape)) is not None:
                return known
        calls = self._words.known
        found: list[Signal] = []
        for word in shape.split():
            called = calls.get(word)
            if called is None:
                called = self._words.keep(word, self._called_by(word))
            for literal, one in called:
                if literal in shape and one not in found:
                    found.append(one)
        return self._shapes.keep(shape, self._ordered(found) if len(found) > 1 else tuple(found))

    def _called_by(self, word: bytes) -> Called:
        """Literals whose longest word is part of ``word``."""
        if self._any_root.search(word) is None:  # five times as fast as finding all of them, overlapping ones too
            return ()
        roots = set(self._roots.findall(word))
        return tuple(pair for root in roots for part, called in self._by_root[root] if part in word for pair in called)


class _Memory(Generic[Meaning]):
    """What bytes mean, within bounds."""

    def __init__(self) -> None:
        self.known: dict[bytes, Meaning] = {}
        self._held_bytes = 0

    def keep(self, key: bytes, meaning: Meaning) -> Meaning:
        self._held_bytes += len(key) + ENTRY_BYTES
        if self._held_bytes > REMEMBERED_BYTES:
            self.known.clear()
            self._held_bytes = 0
        self.known[key] = meaning
        return meaning

    def keep_all(self, keys: Collection[bytes], meanings: Iterable[Meaning]) -> None:
        """:meth:`keep` of many at once; of more than there is room for, none."""
        size_bytes = sum(map(len, keys)) + ENTRY_BYTES * len(keys)
        if size_bytes > REMEMBERED_BYTES:
            return
        self._held_bytes += size_bytes
        if self._held_bytes > REMEMBERED_BYTES:
            self.known.clear()
            self._held_bytes = size_bytes
        self.known.update(zip(keys, meanings, strict=True))


def beginnings(words: Iterable[bytes]) -> frozenset[bytes]:
    """Those of ``words`` that no other of them is a beginning of."""
    kept: list[bytes] = []
    for word in sorted(words):
        if not kept or not word.startswith(kept[-1]):
            kept.append(word)
    return frozenset(kept)


def alternation(words: Iterable[bytes]) -> bytes:
    """A pattern of ``words``, none of which is a beginning of another, with what their beginnings have in common
    written once: tried letter by letter, not word by word."""
    tree: dict[int, Any] = {}
    for word in words:
        at = tree
        for letter in word:
            at = at.setdefault(letter, {})
    return _branches(tree)


def _branches(tree: Mapping[int, Any]) -> bytes:
    if not tree:
        return b""
    parts = [re.escape(bytes((letter,))) + _branches(rest) for letter, rest in sorted(tree.items())]
    return parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")"


@dataclass(slots=True)
class _Kept:
    """The clues of one signal in one file: the first as they came, the last still as bytes."""

    signal: Signal
    count: int = 0
    first: list[Clue] = field(default_factory=list)
    last: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=KEEP_LAST))


def said_itself(chunk: bytes) -> bytes:
    """Lines without what they quote of a request or an answer: whoever asks about a fault does not report one."""
    return QUOTES.sub(rb"\1", chunk) if any(mark in chunk for mark in QUOTE_MARKS) else chunk


@dataclass(slots=True)
class FileScan:
    """The scan of one file, fed with chunks that end at a line's end.

    Args:
        host: that the file's name tells; a line's own word comes before it.
    """

    index: SignalIndex
    file: str
    host: str | None = None
    lines_read: int = 0
    _kept: dict[str, _Kept] = field(default_factory=dict)

    def feed(self, chunk: bytes) -> None:
        chunk = said_itself(chunk)
        lines: list[bytes] = []
        for index, signals in self.index.candidates(chunk):
            lines = lines or chunk.split(b"\n")
            line = lines[index]
            for one in signals:
                for literal in one.encoded:
                    if literal in line:
                        self._take(one, lines, index)
                        break
        self.lines_read += chunk.count(b"\n")

    def _take(self, one: Signal, lines: list[bytes], index: int) -> None:
        kept = self._kept.get(one.name)
        if kept is None:
            kept = self._kept[one.name] = _Kept(signal=one)
        number = self.lines_read + index + 1
        raw = b"\n".join(lines[index : index + FOLLOWING_LINES]) if one.multiline else lines[index]
        if len(kept.first) < KEEP_FIRST:
            clue = self._read(one, number, raw)
            if clue is not None:
                kept.count += 1
                kept.first.append(clue)
        else:
            kept.count += 1
            kept.last.append((number, raw[:LINE_LIMIT_BYTES]))

    def _read(self, one: Signal, number: int, raw: bytes) -> Clue | None:
        whole = raw[:LINE_LIMIT_BYTES].decode("utf-8", "replace").rstrip("\r\n")
        values = one.read(whole)
        if values is None:
            return None
        text = whole.partition("\n")[0].rstrip("\r")
        writer = writer_of(text)
        return Clue(
            name=one.name, lines=(Line(file=self.file, number=number, text=text),), values=values,
            host=writer.host or self.host, rank=writer.rank, time_s=writer.time_s,
        )  # fmt: skip

    def clues(self) -> tuple[Clue, ...]:
        """What was found, in the order of the file; the first clue of a signal carries the count of all."""
        found: list[Clue] = []
        for kept in self._kept.values():
            clues = kept.first + [
                clue for number, raw in kept.last if (clue := self._read(kept.signal, number, raw)) is not None
            ]
            if clues:
                found += [replace(clues[0], count=kept.count), *clues[1:]]
        return tuple(found)


def thinned(clues: Iterable[Clue], most: int) -> list[Clue]:
    """The first and last ``most`` clues of each name; the first carries the count of all."""
    by_name: dict[str, list[Clue]] = defaultdict(list)
    for clue in clues:
        by_name[clue.name].append(clue)
    found: list[Clue] = []
    for some in by_name.values():
        if len(some) > 2 * most:
            some = [replace(some[0], count=max(some[0].count, len(some))), *some[1:most], *some[-most:]]
        found += some
    return found


def joined(parts: Iterable[tuple[tuple[Clue, ...], int]]) -> tuple[Clue, ...]:
    """The clues of a file that was scanned in pieces.

    Args:
        parts: clues and number of lines of each piece, in the order of the file.
    """
    by_name: dict[str, list[Clue]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    before = 0
    for clues, lines in parts:
        seen: set[str] = set()
        for clue in clues:
            if clue.name not in seen:
                seen.add(clue.name)
                counts[clue.name] += clue.count
            moved = tuple(replace(line, number=line.number + before) for line in clue.lines)
            by_name[clue.name].append(replace(clue, lines=moved, count=1))
        before += lines
    found: list[Clue] = []
    for name, clues_of in by_name.items():
        kept = clues_of if len(clues_of) <= KEEP_FIRST + KEEP_LAST else clues_of[:KEEP_FIRST] + clues_of[-KEEP_LAST:]
        found += [replace(kept[0], count=counts[name]), *kept[1:]]
    return tuple(found)
