"""YAML with a reason beside each setting, from plain data. PyYAML drops comments, so this writes its own text.

Only block style, double quotes and literal blocks are used; a string is left plain only where every YAML 1.1 and 1.2
reader takes it for the same string. Nothing in a value or a comment can end its line, so no value becomes syntax.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from roadworthy.render.values import Emitted, SettingKind
from roadworthy.spec.values import Scalar

LINE_MAX = 120
PLAIN = re.compile(r"(?:--)?[A-Za-z/][A-Za-z0-9_./-]*")
PLAIN_KEY = re.compile(r"[A-Za-z/][A-Za-z0-9_./@-]*")
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
NOT_A_STRING = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
"""Words that some YAML reader resolves to something else; all numbers are out by their first character."""
ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
UNSAFE = re.compile(r"[^ !#-\[\]-~]")
"""What double quotes cannot hold as it is: all but printable ASCII, the quote and the backslash."""

Node = Union[Scalar, "Said", "Text", Mapping[str, "Node"], Sequence["Node"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Many lines kept as they are: a literal block where YAML can hold them unchanged, else one quoted string."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A value with the reason for it, which covers what is inside the value too.

    Args:
        name: what the setting is called where its place does not say it: a flag in a list of arguments, a variable.
        shown: its value for ``render --explain`` where it is not this node: of a flag, the word that follows.
        source: id of a row of the truth table, or a short citation.
    """

    value: Node
    why: str
    source: str = ""
    name: str = ""
    shown: Scalar = None


def said(value: Node, why: str, *, source: str = "", name: str = "", shown: Scalar = None) -> Said:
    """``value`` with its reason; short because every manifest is full of them."""
    return Said(value=value, why=why, source=source, name=name, shown=shown)


def yaml_text(*documents: Node, header: str = "") -> str:
    """The documents as one file, with ``header`` (many lines allowed) as a comment on top."""
    parts = ["".join(f"{line}\n" for line in _block(document, indent=0)) for document in documents]
    return comment_lines(header) + "---\n".join(parts)


def comment_lines(text: str) -> str:
    """``text`` as full-line comments; empty for empty text."""
    return "".join(f"# {_one_line(line)}".rstrip() + "\n" for line in text.splitlines())


def plain(node: Node) -> object:
    """The data without reasons: what a YAML reader gets back from ``yaml_text``."""
    if isinstance(node, Said):
        return plain(node.value)
    if isinstance(node, Text):
        return node.text
    if isinstance(node, Mapping):
        return {key: plain(value) for key, value in node.items()}
    if isinstance(node, Sequence) and not isinstance(node, str):
        return [plain(item) for item in node]
    return node


def settings_of(node: Node, *, prefix: str = "") -> tuple[Emitted, ...]:
    """Every setting that carries a reason, named by its path (``spec.template.spec.hostNetwork``)."""
    return tuple(_settings(node, prefix))


def _settings(node: Node, path: str) -> Iterator[Emitted]:
    if isinstance(node, Said):
        name = node.name or path
        yield Emitted(
            kind=_kind(name),
            name=name,
            value=node.shown if node.shown is not None or name.startswith("--") else _shown(node.value),
            why=node.why,
            source=node.source,
        )
        yield from _settings(node.value, path)
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from _settings(value, f"{path}.{key}" if path else key)
    elif isinstance(node, Sequence) and not isinstance(node, str):
        for index, item in enumerate(node):
            yield from _settings(item, f"{path}[{_item_name(item, index)}]")


def _kind(name: str) -> SettingKind:
    if name.startswith("--"):
        return "flag"
    return "variable" if VARIABLE.fullmatch(name) else "field"


def _item_name(item: Node, index: int) -> str:
    """Lists of named things are addressed by name: ``containers[vllm]``."""
    found = plain(item)
    name = found.get("name") if isinstance(found, dict) else None
    return name if isinstance(name, str) else str(index)


def _shown(node: Node) -> Scalar:
    found = plain(node)
    if isinstance(found, list):
        return " ".join(str(item) for item in found if not isinstance(item, (list, dict))) or None
    return found if isinstance(found, (str, int, float, bool)) else None


def _block(node: Node, *, indent: int) -> Iterator[str]:
    """Lines of a node that starts on a line of its own."""
    pad = " " * indent
    if isinstance(node, Said):
        yield from _above(node, pad)
        yield from _block(node.value, indent=indent)
    elif isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from _entry(f"{pad}{_key(key)}:", value, indent=indent)
    elif isinstance(node, Sequence) and not isinstance(node, str) and node:
        for item in node:
            yield from _item(item, indent=indent)
    else:
        yield from _scalar_lines(pad, node, indent=indent, why="")


def _entry(start: str, node: Node, *, indent: int) -> Iterator[str]:
    """Lines of ``key:`` and its value; ``start`` is all that stands before the value."""
    why = ""
    while isinstance(node, Said):
        why = f"{why}; {node.why}" if why else node.why
        node = node.value
    if isinstance(node, (Mapping, Sequence)) and not isinstance(node, str) and node:
        yield from _with_comment(start, why, indent=indent)
        # a list of a key keeps the key's own indent plus two, so that comments line up
        yield from _block(node, indent=indent + 2)
    else:
        yield from _scalar_lines(f"{start} ", node, indent=indent, why=why)


def _item(node: Node, *, indent: int) -> Iterator[str]:
    pad = " " * indent
    if isinstance(node, Said) and _is_collection(node.value):
        yield from _above(node, pad)
        yield from _item(node.value, indent=indent)
        return
    why = ""
    while isinstance(node, Said):
        why, node = (f"{why}; {node.why}" if why else node.why), node.value
    if _is_collection(node):
        lines = _block(node, indent=indent + 2)
        leading: list[str] = []
        for line in lines:
            if line.lstrip().startswith("#"):
                leading.append(line)  # a comment above the first key goes above the dash
                continue
            yield from (pad + comment.lstrip() for comment in leading)
            yield f"{pad}- {line[indent + 2 :]}"
            break
        yield from lines
    else:
        yield from _scalar_lines(f"{pad}- ", node, indent=indent, why=why)


def _is_collection(node: Node) -> bool:
    while isinstance(node, Said):
        node = node.value
    return isinstance(node, (Mapping, Sequence)) and not isinstance(node, str) and bool(node)


def _scalar_lines(start: str, node: Node, *, indent: int, why: str) -> Iterator[str]:
    if isinstance(node, Text):
        if _fits_a_literal_block(node.text):
            yield from _with_comment(f"{start}|", why, indent=indent)
            for line in node.text.splitlines():
                yield f"{' ' * (indent + 2)}{line}" if line else ""
            return
        node = node.text
    yield from _with_comment(f"{start}{_scalar(node)}", why, indent=indent)


def _with_comment(line: str, why: str, *, indent: int) -> Iterator[str]:
    """The comment behind the line, or above it where it would be too long."""
    if not why:
        yield line
        return
    behind = f"{line}  # {_one_line(why)}"
    if len(behind) <= LINE_MAX:
        yield behind
    else:
        yield from _wrapped(why, " " * indent)
        yield line


def _above(node: Said, pad: str) -> Iterator[str]:
    yield from _wrapped(node.why, pad)


def _wrapped(why: str, pad: str) -> Iterator[str]:
    words, line = _one_line(why).split(" "), f"{pad}#"
    for word in words:
        if len(line) + 1 + len(word) > LINE_MAX and line != f"{pad}#":
            yield line
            line = f"{pad}#"
        line += f" {word}"
    yield line


def _one_line(text: str) -> str:
    """Comments hold what was printable, on one line."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(text.split())


def _key(key: str) -> str:
    return key if PLAIN_KEY.fullmatch(key) and key.lower() not in NOT_A_STRING else quoted(key)


def _scalar(node: Node) -> str:
    if node is None:
        return "null"
    if isinstance(node, bool):
        return "true" if node else "false"
    if isinstance(node, int):
        return str(node)
    if isinstance(node, float):
        return _number(node)
    if isinstance(node, str):
        return node if PLAIN.fullmatch(node) and node.lower() not in NOT_A_STRING else quoted(node)
    return "{}" if isinstance(node, Mapping) else "[]"


def _number(value: float) -> str:
    """A float that YAML 1.1 reads as a number: it wants a point in the mantissa and a sign in the exponent."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is no number for a configuration file")
    text = repr(value)
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent if exponent[0] in '+-' else '+' + exponent}"


def quoted(text: str) -> str:
    """``text`` in double quotes, pure ASCII, on one line."""
    return '"' + UNSAFE.sub(lambda found: _escaped(found.group()), text) + '"'


def _escaped(char: str) -> str:
    if char in ESCAPES:
        return ESCAPES[char]
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def _fits_a_literal_block(text: str) -> bool:
    lines = text.split("\n")
    return (
        text.endswith("\n")
        and not text.endswith("\n\n")
        and bool(lines[0].strip())
        and not lines[0].startswith(" ")
        and all(not line or (line.isprintable() and line.isascii() and line.strip()) for line in lines)
    )
