"""Changes to a file that keep its lines, remarks and form: take words out, give a value another text, rename.

Every function answers with edits in file offsets; :mod:`roadworthy.lint.fix` applies them together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from roadworthy.lint.values import Edit, EnvVar, Flag, Word

_PLAIN_VALUE = re.compile(r"[\w.,:=/+@%^-]*$")
_BLANK_BACK = re.compile(r"(?:[ \t]|\\\r?\n)*$")
_OPENS = re.compile(r"(?:\b(?:then|do|else)|[{(]|\))\s*$")
_NEAR = 4000
"""How far around a statement its neighbours are looked for, in characters."""
_CLOSES = re.compile(r"\s*(?:fi|done|else|elif|esac|;;|[})])")


def _line(text: str, offset: int) -> tuple[int, int, int]:
    """Start of the line, its end, and the end with the line break."""
    start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
    match = re.compile(r"[^\r\n]*").match(text, offset)
    end = match.end() if match else offset
    after = end + (2 if text.startswith("\r\n", end) else 1 if end < len(text) else 0)
    return start, end, after


def _without_lines(text: str, begin: int, after: int) -> Edit:
    """Take whole lines out; a remark at the end of one stays, on a line of its own."""
    kept: list[str] = []
    for line in text[begin:after].splitlines(keepends=True):
        remark = re.search(r"(?:(?<=\s)|^)#.*", line.rstrip("\r\n"))
        before = line[: remark.start()] if remark else ""
        if remark and before.count("'") % 2 == 0 and before.count('"') % 2 == 0:
            indent = before[: len(before) - len(before.lstrip())]
            kept.append(indent + line[remark.start() :])
    return Edit(start=begin, end=after, text="".join(kept))


def remove_words(text: str, words: Sequence[Word]) -> tuple[Edit, ...]:
    """Take ``words`` (one setting: a flag and its values) out of the file."""
    if not words:
        return ()
    if words[0].layout == "yaml-block" and any(word.layout == "yaml-block" for word in words):
        return _remove_lines(text, words)
    start, end = min(word.start for word in words), max(word.end for word in words)
    if words[0].layout == "yaml-flow":
        return (_remove_from_flow(text, start, end),)
    return (_remove_span(text, start, end),)


def _remove_lines(text: str, words: Sequence[Word]) -> tuple[Edit, ...]:
    edits: list[Edit] = []
    spans: list[tuple[int, int]] = []
    for word in words:
        if spans and _line(text, spans[-1][0])[0] == _line(text, word.start)[0]:
            spans[-1] = (spans[-1][0], max(word.end, spans[-1][1]))
        else:
            spans.append((word.start, word.end))
    for start, end in spans:
        begin, stop, after = _line(text, start)
        lead, trail = text[begin:start].strip(" \t\"'"), text[end:stop].strip(" \t\"'")
        whole = lead in ("-", "") and (not trail or trail.startswith("#"))
        edits.append(_without_lines(text, begin, after) if whole else _remove_span(text, start, end))
    return tuple(edits)


def _remove_from_flow(text: str, start: int, end: int) -> Edit:
    if (comma := re.compile(r"\s*,[ \t]*").match(text, end)) is not None:
        return Edit(start=start, end=comma.end(), text="")
    base = max(start - _NEAR, 0)
    lead = re.search(r"\s*,\s*$", text[base:start])
    return Edit(start=base + lead.start() if lead else start, end=end, text="")


def _remove_span(text: str, start: int, end: int) -> Edit:
    """A stretch of words of a command, with the blanks or the joined line end that led to it."""
    begin, stop, after = _line(text, start)
    if end > stop:
        _, stop, after = _line(text, end)
    trail = text[end:stop].strip()
    if not text[begin:start].strip() and (trail in ("", "\\") or trail.startswith("#")):
        before = text[max(begin - _NEAR, 0) : begin].rstrip("\r\n")
        if trail == "" and before.endswith("\\"):
            back = _BLANK_BACK.search(text, 0, start)
            return Edit(start=_back(text, start) if back else start, end=end, text="")
        return _without_lines(text, begin, after)
    if not text[begin:start].strip() or text[start - 1 : start] in ('"', "'", "(", "["):
        follow = re.compile(r"[ \t]*").match(text, end)
        return Edit(start=start, end=follow.end() if follow else end, text="")
    lead = start
    while lead > begin and text[lead - 1] in " \t":
        lead -= 1
    return Edit(start=lead, end=end, text="")


def _back(text: str, start: int) -> int:
    """Before the blanks and joined line ends that precede ``start``."""
    while start > 0:
        if text[start - 1] in " \t":
            start -= 1
        elif text.endswith("\\\n", 0, start):
            start -= 2
        elif text.endswith("\\\r\n", 0, start):
            start -= 3
        else:
            break
    return start


def remove_flag(text: str, flag: Flag) -> tuple[Edit, ...]:
    """Take a flag and its values out."""
    if flag.word.layout == "fixed":
        return ()
    if is_key(text, flag):
        end = max([word.end for word in flag.values], default=flag.word.end)
        if not flag.values:  # a switch of a mapping: its value stands behind the colon
            end = _line(text, flag.word.end)[1]
        return _remove_block(text, flag.word.start, end) if flag.word.layout == "yaml-block" else ()
    return remove_words(text, (flag.word, *flag.values))


def replace_value(word: Word | None, new: str) -> tuple[Edit, ...]:
    """Give ``word`` another value, inside its quotes; nothing when that takes more than plain characters."""
    if word is None or not _PLAIN_VALUE.match(new):
        return ()
    low, high = word.piece.at(0), word.piece.at(len(word.value))
    if high - low != len(word.value):
        return ()
    if not word.value:
        low = high = word.start
    return (Edit(start=low, end=high, text=new),)


def replace_part(word: Word, start: int, end: int, new: str) -> tuple[Edit, ...]:
    """Other characters from ``start`` up to ``end`` of the word's value."""
    low, high = word.piece.at(start), word.piece.at(end - 1) + 1
    return (Edit(start=low, end=high, text=new),) if high - low == end - start else ()


def is_key(text: str, flag: Flag) -> bool:
    """Whether the flag stands as the key of a mapping rather than as a word."""
    return bool(re.compile(r"[ \t]*:(?=[ \t\r\n]|$)").match(text, flag.word.end))


def rename_flag(text: str, flag: Flag, name: str) -> tuple[Edit, ...]:
    """Another name for the flag, its values kept."""
    if flag.word.layout == "fixed":
        return ()
    if is_key(text, flag):
        key = name.removeprefix("--")
        name = key.replace("-", "_") if "_" in flag.word.value or "-" not in flag.word.value else key
    length = len(flag.word.value.partition("=")[0])
    return replace_part(flag.word, 0, length, name)


def remove_variable(text: str, variable: EnvVar) -> tuple[Edit, ...]:
    """Take the setting of a variable out, statement, line or list item."""
    if variable.removable is None or variable.place == "python":
        return ()
    start, end = variable.removable
    layout = variable.word.layout if variable.word is not None else "shell"
    if layout == "yaml-flow":
        return _remove_flow_entry(text, start, end)
    if layout == "yaml-block":
        return _remove_block(text, start, end)
    begin, _, _ = _line(text, start)
    _, stop, after = _line(text, end)
    trail = text[end:stop].strip()
    if not text[begin:start].strip() and (not trail or trail.startswith("#") or trail == ";"):
        if _sole_statement(text, begin, after):
            return (Edit(start=start, end=end, text=":"),)
        if text[max(begin - _NEAR, 0) : begin].rstrip("\r\n").endswith("\\"):
            return (_remove_span(text, start, end),)
        return (_without_lines(text, begin, after),)
    if trail.startswith((";", "&&", "||", "|", ")", "`")) or re.search(
        r"(?:;|&&|\|\||\bthen|\bdo|\{)\s*$", text[begin:start]
    ):
        whole = (
            variable.start != start or variable.end != end or not re.search(r"\bexport\b[^;&|]*$", text[begin:start])
        )
        if whole:
            return (Edit(start=start, end=end, text=":"),)
    if not re.search(r"[\w\"'})\]]\s*$", text[begin:start]) or re.search(r"[;&|({]\s*$", text[begin:start]):
        return (_remove_span(text, start, end),) if trail == "\\" else (_leading(text, start, end),)
    return (_remove_span(text, start, end),)


def _leading(text: str, start: int, end: int) -> Edit:
    follow = re.compile(r"[ \t]*").match(text, end)
    return Edit(start=start, end=follow.end() if follow else end, text="")


def _sole_statement(text: str, begin: int, after: int) -> bool:
    before = _next_said(reversed(text[max(begin - _NEAR, 0) : begin].splitlines()))
    return bool(_OPENS.search(before)) and bool(
        _CLOSES.match(_next_said(iter(text[after : after + _NEAR].splitlines())))
    )


def _next_said(lines: Iterator[str]) -> str:
    return next((line for line in lines if line.strip() and not line.strip().startswith("#")), "")


def _remove_block(text: str, start: int, end: int) -> tuple[Edit, ...]:
    begin, _, _ = _line(text, start)
    _, stop, after = _line(text, max(end - 1, start))
    if text[begin:start].strip() not in ("", "-"):
        return ()
    trail = text[end:stop].strip(" \t\"'")
    if trail and not trail.startswith("#"):
        return ()
    base = max(begin - _NEAR, 0)
    key = re.search(r"(?:^|\n)([ \t]*)[\w.\"'-]+:[ \t]*(?:#[^\n]*)?\r?\n$", text[base:begin])
    indent = len(text[begin:start]) - len(text[begin:start].lstrip(" "))
    if key is not None:
        following = _next_said(iter(text[after : after + _NEAR].splitlines()))
        lead = len(following) - len(following.lstrip(" "))
        alone = lead < indent or (
            lead == indent and text[begin:start].strip() == "-" and not following.lstrip().startswith("-")
        )
        if alone or not following:
            begin = base + key.start() + (1 if text[base + key.start()] == "\n" else 0)
    return (_without_lines(text, begin, after),)


def _remove_flow_entry(text: str, start: int, end: int) -> tuple[Edit, ...]:
    """An entry of a flow collection, or a flow mapping that is one item of a block list."""
    begin, stop, _ = _line(text, start)
    if text[begin:start].strip() == "-" and re.match(r"\s*(?:#|$)", text[end:stop]):
        return _remove_block(text, start, end)
    if "\n" in text[start:end]:
        return ()
    return (_remove_from_flow(text, start, end),)


def rename_variable(variable: EnvVar, name: str, value: str | None = None) -> tuple[Edit, ...]:
    """Another name, and another value if one is given."""
    if variable.place == "python" or variable.name_piece is None:
        return ()
    piece = variable.name_piece
    low, high = piece.at(0), piece.at(len(piece.text))
    if high - low != len(piece.text):
        return ()
    edits = (Edit(start=low, end=high, text=name),)
    if value is None:
        return edits
    other = replace_value(variable.word, value)
    return (*edits, *other) if other else ()
