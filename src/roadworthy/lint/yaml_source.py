"""YAML text to trees whose every scalar knows its places, with templates masked and broken ends left for later.

Helm and Jinja expressions are replaced by as many private-use characters (a whole line of them by blanks), so that the
rest keeps its offsets; a value that holds such a character is one that this file does not give.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from roadworthy.lint.text import Piece, PieceBuilder
from roadworthy.lint.values import Layout, Word

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
HOLE = "\ue000"
_TEMPLATE = re.compile(
    r"\{\{(?!\s*(?:\$(?:labels|value|externalLabels|external)|humanize|query|printf)\b).*?\}\}|\{%.*?%\}|\{#.*?#\}",
    re.DOTALL,
)
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "0": "\0",
    "e": "\x1b",
    " ": " ",
    '"': '"',
    "/": "/",
    "\\": "\\",
    "a": "\a",
}
_ESCAPES |= {"b": "\b", "f": "\f", "v": "\v", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}

_PROPERTIES = re.compile(r"(?:[!&]\S*\s+)+")
"""A tag or an anchor in front of a scalar."""

Kind = Literal["map", "list", "text"]


@dataclass(slots=True, eq=False)
class Item:
    """A node. ``value`` is a scalar's text, unquoted; ``tag`` what YAML takes it for (str, int, bool, null, float)."""

    kind: Kind
    start: int
    end: int
    value: str = ""
    piece: Piece = field(default_factory=lambda: Piece(""))
    tag: str = "str"
    style: str = ""
    flow: bool = False
    entries: list[tuple[Item, Item]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    parent: Item | None = None
    key: Item | None = None

    def get(self, *path: str) -> Item | None:
        """The value below these keys, or None."""
        here: Item | None = self
        for name in path:
            if here is None or here.kind != "map":
                return None
            here = next((value for key, value in here.entries if key.value == name), None)
        return here

    def text(self, *path: str) -> str:
        """The scalar below these keys, empty where there is none."""
        found = self.get(*path)
        return found.value if found is not None and found.kind == "text" else ""

    def key_of(self, name: str) -> Item | None:
        return next((key for key, _ in self.entries if key.value == name), None)

    def walk(self) -> Iterator[Item]:
        """This node and all below it."""
        stack = [self]
        while stack:
            item = stack.pop()
            yield item
            stack.extend(reversed(item.items))
            stack.extend(value for _, value in reversed(item.entries))

    @property
    def path(self) -> tuple[str, ...]:
        """Keys from the root down to this node; items of a list add nothing."""
        names: list[str] = []
        here: Item | None = self
        while here is not None:
            if here.key is not None:
                names.append(here.key.value)
            here = here.parent
        return tuple(reversed(names))

    def word(self) -> Word:
        """The scalar as a word of a command."""
        layout: Layout = "yaml-flow" if self.parent is not None and self.parent.flow else "yaml-block"
        return Word(self.piece, self.start, self.end, layout, HOLE in self.value)


@dataclass(slots=True)
class YamlText:
    """``broken_at`` is where reading stopped (offset in the piece), None where all of it was read."""

    documents: list[Item] = field(default_factory=list)
    templates: list[int] = field(default_factory=list)
    broken_at: int | None = None
    error: str = ""


def read_yaml(piece: Piece) -> YamlText:
    """Trees of every document that can be read."""
    masked, templates = mask_templates(piece.text)
    result = YamlText(templates=templates)
    broken = _documents(masked, piece, result, 0)
    if broken is not None:
        # The document that broke may read well up to the line of the fault.
        start = _document_start(masked, broken)
        cut = masked.rfind("\n", 0, broken) + 1
        for _ in range(3):
            if cut <= start:
                break
            attempt = YamlText()
            if _documents(masked[:cut], piece, attempt, start) is None:
                result.documents.extend(attempt.documents)
                break
            cut = masked.rfind("\n", 0, cut - 1) + 1
        else:
            cut = start
        result.broken_at = min(cut, broken) if cut > start else start
    return result


def mask_templates(text: str) -> tuple[str, list[int]]:
    """``text`` with template expressions masked (same length), and where they stand."""
    if "{{" not in text and "{%" not in text:
        return text, []
    places: list[int] = []

    def mask(match: re.Match[str]) -> str:
        places.append(match.start())
        line_start = text.rfind("\n", 0, match.start()) + 1
        line_end = text.find("\n", match.end())
        line_end = len(text) if line_end < 0 else line_end
        around = text[line_start : match.start()] + text[match.end() : line_end]
        alone = not _TEMPLATE.sub("", around).strip() or match.group().startswith(("{%", "{#"))
        filler = (
            " " if alone or re.match(r"\{\{-?\s*(?:(?:if|else|end|range|with|define)\b|/\*)", match.group()) else HOLE
        )
        return re.sub(r"[^\r\n]", filler, match.group())

    return _TEMPLATE.sub(mask, text), places


def _document_start(text: str, offset: int) -> int:
    starts = [match.end() for match in re.finditer(r"^---[^\n]*\n", text[:offset], re.MULTILINE)]
    return starts[-1] if starts else 0


def _documents(text: str, piece: Piece, result: YamlText, skip: int) -> int | None:
    """Read the documents that begin at ``skip`` or later; the offset of the fault, or None."""
    shown = re.sub(r"[^\r\n]", " ", text[:skip]) + text[skip:] if skip else text
    read = 0
    try:
        for node in yaml.compose_all(shown, Loader=_LOADER):
            if node is not None:
                item = _Builder(shown, piece).item(node)
                if item is not None:
                    result.documents.append(item)
                read = node.end_mark.index
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        result.error = str(error.problem or error.context or "not YAML")
        return min(mark.index, len(text)) if mark is not None else read
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        result.error = str(error).splitlines()[0] if str(error) else "not YAML"
        return read
    return None


def _joint(line: str, after: str) -> str:
    """What a line end of a folded block stands for: a blank, nothing before empty lines, itself by indented ones."""
    if not line.strip() or line.startswith((" ", "\t")) or after.startswith((" ", "\t")):
        return "\n"
    return " " if after.strip() else ""


class _Builder:
    def __init__(self, text: str, piece: Piece) -> None:
        self.text, self.piece = text, piece
        self.seen: set[int] = set()

    def item(self, node: Any, depth: int = 0) -> Item | None:
        if id(node) in self.seen or depth > 200:
            return None  # an alias: its anchor was read already
        self.seen.add(id(node))
        low, high = node.start_mark.index, node.end_mark.index
        if isinstance(node, yaml.ScalarNode) and (lead := _PROPERTIES.match(self.text, low, high)):
            low = lead.end()
        start, end = self.piece.at(low), self.piece.at(max(high - 1, low)) + (1 if high > low else 0)
        if isinstance(node, yaml.ScalarNode):
            piece = self._scalar(node, low, high)
            last = piece.at(len(piece.text)) if node.style in ("|", ">") else end
            tag = str(node.tag).rpartition(":")[2]
            return Item("text", start, last, piece.text, piece, tag, node.style or "")
        item = Item("list" if isinstance(node, yaml.SequenceNode) else "map", start, end, flow=bool(node.flow_style))
        if isinstance(node, yaml.SequenceNode):
            for child in node.value:
                made = self.item(child, depth + 1)
                if made is not None:
                    made.parent = item
                    item.items.append(made)
        else:
            for key_node, value_node in node.value:
                key, value = self.item(key_node, depth + 1), self.item(value_node, depth + 1)
                if key is not None and value is not None:
                    key.parent = value.parent = item
                    value.key = key
                    item.entries.append((key, value))
        if not item.flow and (children := item.items or [value for _, value in item.entries]):
            item.end = children[-1].end
        return item

    def _scalar(self, node: Any, low: int, high: int) -> Piece:
        raw = self.text[low:high]
        if node.style in ("|", ">"):
            return self._indented(node, low, high)
        if node.style == "'":
            return self._quoted(low + 1, high - 1, double=False)
        if node.style == '"':
            return self._quoted(low + 1, high - 1, double=True)
        if raw == node.value:
            builder = PieceBuilder()
            builder.add_from(self.piece, low, high)
            text = builder.build(self.piece.at(low))
            return Piece(raw, text.segments)
        if "\n" in raw:
            return self._quoted(low, low + len(raw.rstrip()), double=False)
        return Piece(str(node.value), ((0, self.piece.at(low)),))

    def _indented(self, node: Any, low: int, high: int) -> Piece:
        """A block scalar; with an indentation indicator its first line may be deeper than it, so depths are tried."""
        folded = node.style == ">"
        found = self._block(low, high, folded=folded)
        header = re.compile(r"[|>][+-]?\d").match(self.text, low)
        for indent in range(1, 40) if header else ():
            if found.text.strip("\n") == str(node.value).strip("\n"):
                break
            found = self._block(low, high, folded=folded, indent=indent)
        return found

    def _block(self, low: int, high: int, *, folded: bool, indent: int | None = None) -> Piece:
        text = self.text
        line_end = text.find("\n", low)
        if line_end < 0:
            return Piece("", ((0, self.piece.at(low)),))
        rows: list[tuple[int, int]] = []
        at = line_end + 1
        while at < len(text):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            row = text[at:end]
            if row.strip():
                lead = len(row) - len(row.lstrip(" "))
                indent = lead if indent is None else indent
                if lead < indent or at >= high:
                    break
            rows.append((at, end))
            at = end + 1
        while rows and not text[rows[-1][0] : rows[-1][1]].strip():
            rows.pop()
        builder = PieceBuilder()
        for number, (begin, end) in enumerate(rows):
            inner = min(begin + (indent or 0), end)
            stop = end - 1 if text[inner:end].endswith("\r") else end
            self._add(builder, inner, stop)
            joint = "\n"
            if folded and number + 1 < len(rows):
                after = text[rows[number + 1][0] + (indent or 0) : rows[number + 1][1]]
                joint = _joint(text[inner:stop], after)
            if end < len(text):
                builder.add(joint, self.piece.at(end))
        return builder.build(self.piece.at(low))

    def _add(self, builder: PieceBuilder, low: int, high: int) -> None:
        """Masked text with the file's own offsets."""
        if low >= high:
            return
        inner = PieceBuilder()
        inner.add_from(self.piece, low, high)
        masked = Piece(self.text[low:high], inner.build(self.piece.at(low)).segments)
        builder.add_from(masked, 0, high - low)

    def _quoted(self, low: int, high: int, *, double: bool) -> Piece:
        builder, text, at = PieceBuilder(), self.text, low
        single = not double
        while at < high:
            character = text[at]
            if character == "\n" or (character == "\r" and text.startswith("\r\n", at)):
                after = at
                while after < high and text[after] in " \t\r\n":
                    after += 1
                builder.add("\n" * (text.count("\n", at, after) - 1) or " ", self.piece.at(at))
                at = after
            elif single and text.startswith("''", at):
                builder.add("'", self.piece.at(at))
                at += 2
            elif double and character == "\\" and at + 1 < high:
                at = self._escape(builder, at, high)
            else:
                end = at + 1
                stop = "\n\r\\" if double else "\n\r'"
                while end < high and text[end] not in stop:
                    end += 1
                self._add(builder, at, end)
                at = end
        return builder.build(self.piece.at(low))

    def _escape(self, builder: PieceBuilder, at: int, high: int) -> int:
        follower = self.text[at + 1]
        if follower in "\r\n":
            after = at + 1
            while after < high and self.text[after] in " \t\r\n":
                after += 1
            return after
        width = {"x": 2, "u": 4, "U": 8}.get(follower)
        if width is not None:
            digits = self.text[at + 2 : at + 2 + width]
            try:
                builder.add(chr(int(digits, 16)), self.piece.at(at))
            except (ValueError, OverflowError):
                builder.add("?", self.piece.at(at))
            return at + 2 + width
        # A backslash before a character that stands for itself: point at the character, so that edits keep the escape.
        meaning = _ESCAPES.get(follower, follower)
        builder.add(meaning, self.piece.at(at + 1 if meaning == follower else at))
        return at + 2
