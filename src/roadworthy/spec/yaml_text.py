"""YAML text as a small tree that remembers what was written: the text of each scalar, and its line.

Built from the parser's events rather than through a constructor, for four reasons: a key written twice is an error
with both lines, and PyYAML keeps the last silently; `on`, `1:30` and `012` are named as the YAML 1.1 readings they
are, and never turned into true, 90 and 10; ``version: 0.30`` keeps its zero; and no tag, anchor or nesting in the text
can run code or take memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from roadworthy.core.errors import Problem

MAX_TEXT_BYTES = 4 * 2**20
MAX_NODES = 300_000
MAX_DEPTH = 24
"""Room for ten thousand tenants with every key; the schema is five deep. Below what would tax the reader."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarNode:
    """A scalar. ``value`` follows YAML 1.2's core schema: null, true or false, integer, float, else the text.

    ``trap`` is set when YAML 1.1 tools read the same characters as something else; it says how to write it instead.
    """

    text: str
    value: str | int | float | bool | None
    line: int
    trap: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListNode:
    items: tuple[Node, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapNode:
    """Keys in the order written. ``lines`` gives the line of each key."""

    entries: dict[str, Node]
    lines: dict[str, int]
    line: int


Node = ScalarNode | ListNode | MapNode

_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_TRUE_FALSE = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_TRAPS = (
    (
        re.compile(r"(?:y|yes|on|n|no|off)\Z", re.IGNORECASE),
        'YAML 1.1 reads {text} as true or false: write true or false, or quote it as "{text}"',
    ),
    (
        re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?\Z"),
        'YAML 1.1 reads {text} as a number in base 60: write a duration such as 90s, or quote it as "{text}"',
    ),
    (
        re.compile(r"[-+]?0[0-9_]+\Z"),
        'YAML 1.1 reads {text} as octal: leave the zero in front out, or quote it as "{text}"',
    ),
    (re.compile(r"[-+]?[1-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?\Z"), "write the digits without underscores"),
    (re.compile(r"[-+]?0[xob][0-9a-fA-F_]+\Z"), 'write it in decimal, or quote it as "{text}"'),
)


class _StopError(Exception):
    """Reading stops here; what was read so far is no document."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(slots=True)
class _Open:
    """A collection being read. For a mapping, ``key`` is the key whose value comes next."""

    mapping: bool
    line: int
    anchor: str | None
    items: list[Node]
    entries: dict[str, Node]
    lines: dict[str, int]
    path: str
    merged: list[MapNode]
    key: str | None = None
    doubled: bool = False
    size: int = 1


def read_yaml(text: str, *, source: str) -> tuple[Node | None, tuple[Problem, ...]]:
    """The tree of ``text``, and every duplicate key, alias and tag that was refused.

    The tree is None when the text is not one YAML document; the problem then gives line and column.
    """
    if len(text) > MAX_TEXT_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES:
        problem = Problem(
            path=source, seen=f"{len(text):,} characters", wanted=f"a document of at most {MAX_TEXT_BYTES >> 20} MiB"
        )
        return None, (problem,)
    reader = _Reader(source)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.take(event)
    except _StopError as refused:
        return None, (*reader.problems, refused.problem)
    except yaml.MarkedYAMLError as error:
        return None, (*reader.problems, _syntax_problem(error, text, source))
    except (yaml.YAMLError, UnicodeError) as error:
        reason = getattr(error, "reason", None) or "it cannot be read as YAML"
        position = getattr(error, "position", 0)
        place = text.count("\n", 0, position) + 1 if isinstance(position, int) else 1
        return None, (Problem(path=f"{source}:{place}", seen=str(reason), wanted="printable UTF-8 text"),)
    return reader.root, tuple(reader.problems)


class _Reader:
    """Builds the tree event by event, on a stack of its own, so that depth costs no recursion."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._nodes = 0
        self._documents = 0

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _StopError(
                    Problem(
                        path=f"{self.source}:{line}",
                        seen="a second document",
                        wanted="one document a file",
                        hint="a line of --- starts another document: split the file",
                    )
                )
        elif isinstance(event, yaml.ScalarEvent):
            self._count(1, line)
            self._tag(event, line)
            self._place(_scalar(event, line), event.anchor, size=1)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._count(1, line)
            self._tag(event, line)
            self._open(event, line)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            known = self._anchors.get(event.anchor or "")
            if known is None:
                raise _StopError(
                    Problem(
                        path=f"{self.source}:{line}",
                        seen=f"*{event.anchor}",
                        wanted="an alias of an anchor written before it",
                    )
                )
            node, size = known
            self._count(size, line)
            self._place(node, None, size=size)

    def _count(self, nodes: int, line: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise _StopError(
                Problem(
                    path=f"{self.source}:{line}",
                    seen=f"more than {MAX_NODES:,} values, aliases counted in full",
                    wanted="a deployment document",
                    hint="write the values out instead of nesting aliases",
                )
            )

    def _tag(self, event: Any, line: int) -> None:
        tag = event.tag
        if tag is None or tag in {"!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}:
            return
        self.problems.append(
            Problem(
                path=self._child_path() or f"{self.source}:{line}",
                seen=f"the tag {tag.replace('tag:yaml.org,2002:', '!!')} on line {line}",
                wanted="a plain value",
                hint="leave the tag out",
            )
        )

    def _open(self, event: Any, line: int) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise _StopError(
                Problem(
                    path=f"{self.source}:{line}",
                    seen=f"more than {MAX_DEPTH} levels of nesting",
                    wanted="a deployment document",
                )
            )
        self._stack.append(
            _Open(
                mapping=isinstance(event, yaml.MappingStartEvent),
                line=line,
                anchor=event.anchor,
                items=[],
                entries={},
                lines={},
                path=self._child_path(),
                merged=[],
            )
        )

    def _close(self) -> None:
        done = self._stack.pop()
        node: Node
        if done.mapping:
            entries, lines = dict(done.entries), dict(done.lines)
            for source in done.merged:  # what is written here goes before what is merged in
                for key, value in source.entries.items():
                    if key not in entries:
                        entries[key], lines[key] = value, source.lines[key]
            node = MapNode(entries=entries, lines=lines, line=done.line)
        else:
            node = ListNode(items=tuple(done.items), line=done.line)
        self._place(node, done.anchor, size=done.size)

    def _place(self, node: Node, anchor: str | None, *, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (node, size)
        if not self._stack:
            self.root = node
            return
        parent = self._stack[-1]
        parent.size += size
        if not parent.mapping:
            parent.items.append(node)
        elif parent.key is None:
            self._take_key(parent, node)
        else:
            key, parent.key = parent.key, None
            if key == "<<":
                self._merge(parent, node)
            elif not parent.doubled:
                parent.entries[key] = node
            parent.doubled = False

    def _take_key(self, parent: _Open, node: Node) -> None:
        if not isinstance(node, ScalarNode):
            raise _StopError(
                Problem(
                    path=parent.path or self.source,
                    seen=f"a list or mapping as a key, line {node.line}",
                    wanted="text as a key",
                    hint="quote a value that begins with [ or {",
                )
            )
        parent.key = node.text
        parent.doubled = node.text in parent.lines and node.text != "<<"
        if parent.doubled:
            self.problems.append(
                Problem(
                    path=join(parent.path, node.text),
                    seen=f"written twice, on lines {parent.lines[node.text]} and {node.line}",
                    wanted="each key once",
                    hint="keep one of the two",
                )
            )
        else:
            parent.lines[node.text] = node.line

    def _merge(self, parent: _Open, node: Node) -> None:
        sources = node.items if isinstance(node, ListNode) else (node,)
        for source in sources:
            if not isinstance(source, MapNode):
                self.problems.append(
                    Problem(
                        path=join(parent.path, "<<"),
                        seen=describe(source),
                        wanted="an alias of a mapping",
                        hint="such as <<: *defaults",
                    )
                )
                continue
            parent.merged.append(source)

    def _child_path(self) -> str:
        if not self._stack:
            return ""
        parent = self._stack[-1]
        if parent.mapping:
            return join(parent.path, parent.key or "")
        return f"{parent.path}[{len(parent.items)}]"


def _scalar(event: Any, line: int) -> ScalarNode:
    text: str = event.value
    plain = event.style is None or event.style == ""
    if not plain or event.tag is not None:
        return ScalarNode(text=text, value=text, line=line)
    if _NULL.match(text):
        return ScalarNode(text=text, value=None, line=line)
    if _TRUE_FALSE.match(text):
        return ScalarNode(text=text, value=text.lower() == "true", line=line)
    if _INTEGER.match(text) and len(text) <= 40:
        return ScalarNode(text=text, value=int(text), line=line)
    if _FLOAT.match(text):
        return ScalarNode(text=text, value=float(text), line=line)
    if _NOT_FINITE.match(text):
        return ScalarNode(text=text, value=float(text.lower().replace(".", "", 1)), line=line)
    trap = next((hint.format(text=text) for pattern, hint in _TRAPS if pattern.match(text)), "")
    return ScalarNode(text=text, value=text, line=line, trap=trap)


def join(path: str, key: str) -> str:
    """The dotted path of ``key`` below ``path``; what is not fit for a line of text is escaped."""
    shown = shorten(key) or '""'
    return f"{path}.{shown}" if path else shown


def describe(node: Node) -> str:
    """What was written, short enough for one line of a message."""
    if isinstance(node, MapNode):
        keys = ", ".join(list(node.entries)[:3])
        return f"a mapping of {keys}{', …' if len(node.entries) > 3 else ''}" if keys else "an empty mapping"
    if isinstance(node, ListNode):
        return f"a list of {len(node.items)}" if node.items else "an empty list"
    if node.value is None:
        return "nothing" if node.text == "" else node.text
    return shorten(node.text) if node.text else "empty text"


def shorten(text: str, limit: int = 60) -> str:
    """``text`` on one line, cut when long, control characters escaped."""
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, source: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    written = text.splitlines()[line - 1] if line <= len(text.splitlines()) else ""
    hint = ""
    if written.lstrip(" ").startswith("\t") or "\t" in written[:column]:
        hint = "YAML allows no tabs at the start of a line: indent with spaces"
    elif re.search(r":\s+\S.*:\s", written) and "{" not in written:
        hint = "quote a value that contains a colon and a space"
    seen = shorten(written.strip()) or "the end of the text"
    if re.search(r"\b(?:key|\w+_url)\b", written):
        seen = "a line that may hold a secret, not shown"
    reason = " ".join(part for part in (error.context, error.problem) if part)
    return Problem(
        path=f"{source}:{line}:{column}", seen=seen, wanted=f"YAML ({reason})" if reason else "YAML", hint=hint
    )
