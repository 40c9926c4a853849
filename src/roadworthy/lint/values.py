"""What reading a file yields, and what linting it says.

Readers turn every file form into the same few things: words with places, commands made of words, environment variables,
keys with values. Rules see only these, so a setting is judged alike in a script, a pod and a unit file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from roadworthy.lint.text import Piece

Status = Literal["real", "renamed", "removed", "never_existed", "dangerous", "context_dependent"]
Layout = Literal["shell", "array", "folded", "yaml-block", "yaml-flow", "fixed"]
Place = Literal["shell", "docker", "pod", "compose", "env-file", "unit", "dockerfile", "python", "yaml"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Put ``text`` in place of what stands from ``start`` up to ``end`` (offsets in the file)."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LintProblem:
    """One thing wrong in a file.

    Args:
        line: of the setting, 1-based.
        rule: id in the truth table, or one of this package's own (``vllm.unknown-flag``).
        status: a word of the truth table.
        replacement: what to write instead, as text; empty where nothing is needed.
        edits: what ``--fix`` changes; empty where a person must decide.
    """

    file: str
    line: int
    rule: str
    setting: str
    status: Status
    reason: str
    replacement: str
    edits: tuple[Edit, ...] = ()
    offset: int = 0

    @property
    def fixable(self) -> bool:
        return bool(self.edits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Something in a file that could not be read: a template, a broken block, a line too long."""

    file: str
    line: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """All that is said of one file. ``kind`` is the form it was read as."""

    file: str
    kind: str
    problems: tuple[LintProblem, ...]
    unread: tuple[Unread, ...] = ()


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command. ``piece`` is its value unquoted; ``start`` and ``end`` span it as written.

    ``dynamic`` says that the value holds an expansion, so what runs differs from what is written.
    """

    piece: Piece
    start: int
    end: int
    layout: Layout = "shell"
    dynamic: bool = False

    @property
    def value(self) -> str:
        return self.piece.text

    def after(self, cut: int) -> Word:
        """What follows the first ``cut`` characters of the value, as a word at its own place."""
        size = len(self.value)
        start = self.piece.at(cut) if cut < size else self.end
        return Word(self.piece.slice(cut, size), start, self.end, self.layout, self.dynamic)


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag with its values, as one setting. ``name`` is normalised: lower-case dashes, no ``=``."""

    name: str
    word: Word
    values: tuple[Word, ...]
    inline: Word | None = None
    """The value after ``=``, part of ``word``."""

    @property
    def value_words(self) -> tuple[Word, ...]:
        return (self.inline,) if self.inline is not None else self.values

    @property
    def value(self) -> str | None:
        """The values joined by a space, or None for a bare flag."""
        words = self.value_words
        return " ".join(word.value for word in words) if words else None

    @property
    def dynamic(self) -> bool:
        return any(word.dynamic for word in self.value_words)

    @property
    def text(self) -> str:
        """As a person would write it."""
        return self.name if self.value is None else f"{self.name} {self.value}"


@dataclass(slots=True)
class EnvVar:
    """A variable being set. ``value`` is None where the file gives none (a reference, an expansion)."""

    name: str
    value: str | None
    start: int
    end: int
    place: Place
    word: Word | None = None
    """The value, if it stands in the file."""
    removable: tuple[int, int] | None = None
    """Span whose removal unsets the variable, before whitespace is tidied."""
    owner: object = None
    """The command or container that it is given to, None for a whole script."""
    raw: str = ""
    """The value as written, expansions included."""
    dynamic: bool = False
    name_piece: Piece | None = None


@dataclass(slots=True)
class Invocation:
    """A program with its words, out of a script, a container or a unit.

    Args:
        program: base name, such as ``vllm``, ``ray``, ``numactl``; ``?`` where flags stand without a program.
        words: after the program.
        wrappers: what it was started through, outermost first (``docker run``, ``numactl``, ``env``).
        fragment: only some of its flags are known, so that nothing can be said of flags that are absent.
    """

    program: str
    start: int
    end: int
    words: Sequence[Word]
    program_words: Sequence[Word] = ()
    place: Place = "shell"
    env: list[EnvVar] = field(default_factory=list)
    wrappers: tuple[Invocation, ...] = ()
    fragment: bool = False
    owner: object = None
    pipe: int = -1
    module: str = ""
    flags: tuple[Flag, ...] = ()
    positionals: tuple[Word, ...] = ()
    redirects: tuple[tuple[str, str], ...] = ()
    unexpanded: bool = False
    """Some word stands for flags that the file does not show."""

    def flag(self, *names: str) -> Flag | None:
        """The last of the flags called so, which is the one that counts."""
        for flag in reversed(self.flags):
            if flag.name in names:
                return flag
        return None

    def value(self, *names: str) -> str | None:
        found = self.flag(*names)
        return None if found is None or found.dynamic else found.value


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key with a value out of a file made of such: a sysctl, a unit directive, a limit, a CRD field."""

    family: str
    key: str
    value: str
    start: int
    end: int
    word: Word | None = None
    section: str = ""
