"""Text for bash that nothing in a document can break out of: words, comments, and values filled in at start."""

from __future__ import annotations

import re
import textwrap
from functools import lru_cache
from typing import TYPE_CHECKING

from roadworthy.render.at_start import AtStart

if TYPE_CHECKING:
    from roadworthy.spec.values import Scalar

VARIABLES = {
    AtStart.MASTER_ADDRESS: '"$ROADWORTHY_MASTER_ADDR"',
    AtStart.OWN_ADDRESS: '"$ROADWORTHY_NODE_ADDR"',
    AtStart.INTERFACE: '"$ROADWORTHY_INTERFACE"',
    AtStart.EXACT_INTERFACE: '"=$ROADWORTHY_INTERFACE"',
    AtStart.RAY_ADDRESS: '"$ROADWORTHY_MASTER_ADDR:6379"',
    AtStart.MODEL: '"$ROADWORTHY_MODEL"',
}
"""How our own scripts spell what is filled in at start."""


_BARE = re.compile(r"[A-Za-z0-9_@%+:./-]+")
_ASCII = re.compile(r"[ -~]*")


def word(value: Scalar) -> str:
    """One word of a bash command, read back as exactly ``value`` in every locale.

    Plain words stay bare, other ASCII goes into double quotes, the rest into ``$'…'`` byte by byte; shellcheck takes
    each for what it is. Raises ValueError for a NUL, which no argument can hold.
    """
    if isinstance(value, AtStart):
        return VARIABLES[value]
    text = "" if value is None else str(value)
    if "\0" in text:
        raise ValueError("a NUL character cannot be part of a command")
    if _BARE.fullmatch(text):
        return text
    if _ASCII.fullmatch(text) and not text.startswith("~"):
        return '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"'
    return "$'" + "".join(_escaped(byte) for byte in text.encode("utf-8", "surrogateescape")) + "'"


def _escaped(byte: int) -> str:
    """One byte within ``$'…'``: three octal digits for what is not plain, so that no digit after it is taken along."""
    char = chr(byte)
    return char if 32 <= byte < 127 and char not in "\\'" else f"\\{byte:03o}"


def plain_line(text: str) -> str:
    """``text`` on one line, control characters as escapes, so that a comment ends where its line ends."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


@lru_cache(maxsize=512)  # most reasons stand in the file of every host
def comment(text: str, *, indent: str = "", width: int = 110) -> str:
    """``text`` as comment lines; whatever it holds, no line of it is code."""
    lines = textwrap.wrap(plain_line(text), width - len(indent), break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"{indent}# {line}" for line in lines or [""])
