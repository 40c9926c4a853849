"""What diagnosis passes around: lines, documents, clues, and the book that all clues of one incident are in."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NO_VALUES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line as it was read; ``number`` counts from 1."""

    file: str
    number: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Clue:
    """Something that was seen and that means something.

    Args:
        name: what it is, such as ``nccl.watchdog-timeout``; causes refer to it.
        lines: where it was seen; quoted as evidence.
        values: what the text said, by name; always text, as it stood there.
        host: node, pod or host that said it, None when nothing tells.
        rank: of the process that said it.
        time_s: seconds since the epoch, or since an unknown origin for clocks without a date; None without a clock.
        count: how often it was seen; ``lines`` then holds the first.
    """

    name: str
    lines: tuple[Line, ...]
    values: Mapping[str, str] = field(default_factory=lambda: NO_VALUES)
    host: str | None = None
    rank: int | None = None
    time_s: float | None = None
    count: int = 1

    def value(self, key: str, default: str = "") -> str:
        return self.values.get(key, default)

    def number(self, key: str, default: float = 0.0) -> float:
        """The value as a number; ``default`` where it is missing, empty or, in a damaged text, no number."""
        try:
            return float(self.values.get(key) or default)
        except ValueError:
            return default


def derived(clue: Clue, name: str, /, *others: Clue, **values: object) -> Clue:
    """A clue that rests on ``clue`` and ``others``, with more values."""
    lines = clue.lines + tuple(line for other in others for line in other.lines)
    merged = {**clue.values, **{key: str(value) for key, value in values.items()}}
    return Clue(name=name, lines=lines, values=merged, host=clue.host, rank=clue.rank, time_s=clue.time_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One file that is small enough to be read as a whole. ``host`` comes from its name or folder."""

    file: str
    text: str
    host: str | None = None

    def line(self, number: int) -> Line:
        """Line ``number``, counted from 1."""
        return self.numbered()[number - 1]

    def numbered(self) -> tuple[Line, ...]:
        return _numbered(self.file, self.text)

    def clue(self, name: str, /, *lines: Line, **values: object) -> Clue:
        """A clue of this document, its host included."""
        return Clue(
            name=name, lines=lines, values={key: str(value) for key, value in values.items()}, host=self.host
        )  # fmt: skip


@lru_cache(maxsize=1)
def _numbered(file: str, text: str) -> tuple[Line, ...]:
    """Kept for one document: dozens of probes read the same one before the next is opened."""
    return tuple(Line(file=file, number=number, text=line.rstrip()) for number, line in enumerate(text.splitlines(), 1))


@dataclass(slots=True)
class ClueBook:
    """Every clue of one incident, by name, in the order of reading."""

    documents: tuple[Document, ...] = ()
    _clues: dict[str, list[Clue]] = field(default_factory=lambda: defaultdict(list))

    def add(self, clues: Iterable[Clue]) -> None:
        for clue in clues:
            self._clues[clue.name].append(clue)

    def all(self, *names: str) -> tuple[Clue, ...]:
        """Every clue of these names; ``nccl.*`` takes all that begin so, ``*`` takes all."""
        found: list[Clue] = []
        for name in names:
            if name.endswith("*"):
                prefix = name[:-1]
                found += [one for key, some in self._clues.items() if key.startswith(prefix) for one in some]
            else:
                found += self._clues.get(name, ())
        return tuple(found)

    def first(self, *names: str) -> Clue | None:
        found = self.all(*names)
        return found[0] if found else None

    def has(self, *names: str) -> bool:
        """Whether any of ``names`` was seen."""
        return bool(self.all(*names))

    def names(self) -> frozenset[str]:
        return frozenset(name for name, clues in self._clues.items() if clues)

    def hosts(self) -> frozenset[str]:
        """Every host that a clue or a document names, those without a clue too."""
        named = {clue.host for clue in self.all("*")} | {document.host for document in self.documents}
        return frozenset(host for host in named if host)
