"""What one file yields, gathered by the readers and looked at by the rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from roadworthy.lint.values import EnvVar, Invocation, KeyValue, Place, Unread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.lint.argv import Arity
    from roadworthy.lint.shell_lexer import ShellCommand
    from roadworthy.lint.text import LineTable, Piece
    from roadworthy.lint.yaml_source import Item

MAX_NESTING = 8


@dataclass(slots=True)
class Reading:
    """Everything found in a file, and in the scripts, units and documents that it holds.

    Args:
        text: the file; offsets everywhere count its characters.
        comments: spans (offsets) of what is remark, not setting.
        documents: YAML documents as trees, for rules about structure.
        commands: shell commands in order, for rules about pipelines and loops.
        variables: names a script sets, with the text given.
    """

    file: str
    text: str
    lines: LineTable
    arity: Arity
    kind: str = "text"
    invocations: list[Invocation] = field(default_factory=list)
    env: list[EnvVar] = field(default_factory=list)
    keys: list[KeyValue] = field(default_factory=list)
    comments: list[tuple[int, int]] = field(default_factory=list)
    documents: list[Item] = field(default_factory=list)
    commands: list[ShellCommand] = field(default_factory=list)
    images: list[KeyValue] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    depth: int = 0

    def not_read(self, offset: int, what: str) -> None:
        """Note that what stands at ``offset`` could not be read."""
        entry = Unread(file=self.file, line=self.lines.line(offset), what=what)
        if entry not in self.unread:
            self.unread.append(entry)

    def servers(self) -> Iterator[Invocation]:
        """Whole `vllm serve` commands, however they are spelled."""
        return (one for one in self.invocations if one.program == "vllm serve" and not one.fragment)

    def code(self) -> str:
        """The text with every comment blanked, offsets kept."""
        parts, last = [], 0
        for start, end in sorted(self.comments):
            if start >= last:
                parts += [self.text[last:start], " " * (end - start)]
                last = end
        parts.append(self.text[last:])
        return "".join(parts)


def nested(reading: Reading, piece: Piece, *, place: Place, owner: object = None) -> None:
    """Read a file held inside this one (a here-document, a ConfigMap key, a string of shell)."""
    from roadworthy.lint.sniff import read_piece

    if reading.depth >= MAX_NESTING or not piece.text.strip():
        return
    reading.depth += 1
    try:
        read_piece(reading, piece, place=place, owner=owner)
    finally:
        reading.depth -= 1
