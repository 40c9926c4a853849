"""File forms made of lines: environment files, systemd units, sysctl, limits, crontab, Dockerfile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.lint.argv import started
from roadworthy.lint.shell_reader import flag_variable, read_shell_piece
from roadworthy.lint.text import Piece, PieceBuilder
from roadworthy.lint.values import EnvVar, KeyValue, Place, Word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from roadworthy.lint.reading import Reading

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
ENV_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][\w.]*)\s*=(.*)$")
_UNIT_KEY = re.compile(r"\s*([A-Za-z][\w-]*)\s*=\s*(.*)$", re.DOTALL)
_LIMIT = re.compile(r"\s*(\S+)\s+(soft|hard|-)\s+(\w+)\s+(\S+)")
_SYSCTL = re.compile(r"\s*-?([a-z][\w-]*(?:[./][\w*-]+)+)\s*=\s*(.*?)\s*$")
_CRON = re.compile(
    r"\s*(?:@(?:reboot|yearly|annually|monthly|weekly|daily|hourly|midnight)"
    r"|(?:[\d*][\d*/,\-]*\s+){3}(?:(?:[\d*][\d*/,\-]*|[A-Za-z]{3}(?:[-,][A-Za-z]{3})*)\s+){2})\s*(?=\S)"
)
_ASSIGN_IN_UNIT = re.compile(
    r"([A-Za-z_]\w*)=\"([^\"]*)\"|\"([A-Za-z_]\w*)=((?:[^\"\\]|\\.)*)\""
    r"|'([A-Za-z_]\w*)=([^']*)'|([A-Za-z_]\w*)=(\S*)"
)


def lines_of(piece: Piece) -> Iterator[tuple[int, int]]:
    """Start and end (without its line end) of each line."""
    for match in _LINE.finditer(piece.text):
        if match.start() == len(piece.text) and match.start() > 0:
            return
        yield match.start(), match.start() + len(match.group().rstrip("\r\n"))


def _comment(reading: Reading, piece: Piece, start: int, end: int) -> None:
    reading.comments.append((piece.at(start), piece.at(end)))


def _said(
    reading: Reading, piece: Piece, spans: Iterable[tuple[int, int]], *, marks: tuple[str, ...] = ("#", ";")
) -> Iterator[tuple[int, int, str]]:
    """Start, end and text of each span that says something; whole lines behind a mark are kept as comments."""
    for start, end in spans:
        line = piece.text[start:end]
        if line.lstrip().startswith(marks):
            _comment(reading, piece, start, end)
        elif line.strip():
            yield start, end, line


def read_env_file(reading: Reading, piece: Piece, *, place: Place = "env-file", owner: object = None) -> None:
    """``NAME=value`` a line, the value as it stands, quotes taken off."""
    for start, end, line in _said(reading, piece, lines_of(piece)):
        match = ENV_LINE.match(line)
        if not match:
            continue
        low, high = start + match.start(2), start + match.end(2)
        low, high = _trimmed(piece.text, low, high)
        outer = (low, high)
        if (
            high - low >= 2
            and piece.text[low] in "'\""
            and (close := piece.text.find(piece.text[low], low + 1, high)) > 0
        ):
            tail = piece.text[close + 1 : high]
            if tail.lstrip().startswith("#"):
                _comment(reading, piece, close + 1, high)
            low, high = low + 1, close
        elif remark := re.search(r"\s#.*$", piece.text[low:high]):
            _comment(reading, piece, low + remark.start(), high)
            high = low + remark.start()
        value = piece.slice(low, high)
        dynamic = "$" in value.text
        name = start + match.start(1)
        word = Word(value, piece.at(outer[0]), piece.at(outer[1]), "fixed" if place == "yaml" else "shell", dynamic)
        variable = EnvVar(
            name=match.group(1),
            value=None if dynamic else value.text,
            start=piece.at(name),
            end=piece.at(high),
            place=place,
            word=word,
            removable=(piece.at(start), piece.at(end)),
            owner=owner,
            raw=value.text,
            dynamic=dynamic,
            name_piece=piece.slice(name, name + len(match.group(1))),
        )
        reading.env.append(variable)
        flag_variable(reading, variable)


def _trimmed(text: str, low: int, high: int) -> tuple[int, int]:
    while low < high and text[low] in " \t":
        low += 1
    while high > low and text[high - 1] in " \t":
        high -= 1
    return low, high


def read_unit(reading: Reading, piece: Piece, *, place: Place = "unit", owner: object = None) -> None:
    """A systemd unit: directives with their continuation lines."""
    section = ""
    for start, end, line in _said(reading, piece, _joined_lines(piece)):
        if header := re.match(r"\s*\[([^\]]+)\]", line):
            section = header.group(1)
            continue
        match = _UNIT_KEY.match(line)
        if not match:
            continue
        key, low = match.group(1), start + match.start(2)
        value = piece.slice(low, end)
        word = Word(value, piece.at(low), piece.at(end), "fixed")
        reading.keys.append(
            KeyValue("unit", key, value.text.strip(), piece.at(start + match.start(1)), piece.at(end), word, section)
        )
        if key.startswith("Exec") or key == "command":
            _exec_line(reading, value, place, owner)
        elif key in ("Environment", "environment"):
            _unit_environment(reading, piece, start, low, end, place)


def _joined_lines(piece: Piece) -> Iterator[tuple[int, int]]:
    begin: int | None = None
    for start, end in lines_of(piece):
        begin = start if begin is None else begin
        if not piece.text[start:end].rstrip().endswith("\\") or piece.text[start:end].lstrip().startswith(("#", ";")):
            yield begin, end
            begin = None
    if begin is not None:
        yield begin, len(piece.text)


def _exec_line(reading: Reading, value: Piece, place: Place, owner: object) -> None:
    skip = re.match(r"[\s@\-:+!]*", value.text)
    begin = skip.end() if skip else 0
    read_shell_piece(reading, value.slice(begin, len(value.text)), place=place, owner=owner)


def _unit_environment(reading: Reading, piece: Piece, start: int, low: int, end: int, place: Place) -> None:
    matches = list(_ASSIGN_IN_UNIT.finditer(piece.text, low, end))
    for match in matches:
        index = next(number for number in (1, 3, 5, 7) if match.group(number))
        name, value_at = match.group(index), match.start(index + 1)
        value = piece.slice(value_at, match.end(index + 1))
        whole = (
            (piece.at(start), piece.at(end)) if len(matches) == 1 else (piece.at(match.start()), piece.at(match.end()))
        )
        word = Word(value, piece.at(value_at), piece.at(match.end(index + 1)), "fixed")
        variable = EnvVar(
            name=name,
            value=value.text,
            start=piece.at(match.start(index)),
            end=piece.at(match.end()),
            place=place,
            word=word,
            removable=whole,
            raw=value.text,
            name_piece=piece.slice(match.start(index), match.end(index)),
        )
        reading.env.append(variable)
        flag_variable(reading, variable)


def read_sysctl(reading: Reading, piece: Piece) -> None:
    for start, end, line in _said(reading, piece, lines_of(piece)):
        if match := _SYSCTL.match(line):
            value = re.sub(r"\s[#;].*$", "", match.group(2)).strip()
            key_at = start + match.start(1)
            word = Word(
                piece.slice(start + match.start(2), end), piece.at(start + match.start(2)), piece.at(end), "fixed"
            )
            reading.keys.append(
                KeyValue("sysctl", match.group(1).replace("/", "."), value, piece.at(key_at), piece.at(end), word)
            )


def read_limits(reading: Reading, piece: Piece) -> None:
    for start, end, line in _said(reading, piece, lines_of(piece), marks=("#",)):
        if match := _LIMIT.match(line):
            reading.keys.append(
                KeyValue("limit", match.group(3), match.group(4), piece.at(start + match.start(3)), piece.at(end))
            )


def read_crontab(reading: Reading, piece: Piece) -> None:
    """A crontab (or a file of /etc/cron.d): variables, and commands after their times."""
    for start, end, line in _said(reading, piece, lines_of(piece), marks=("#",)):
        if match := _CRON.match(line):
            low = start + match.end()
            user = re.match(r"(?:root|[a-z_][a-z0-9_-]*)\s+(?=\S)", piece.text[low:end])
            if user and ("cron.d" in reading.file or user.group().strip() in ("root", "ubuntu", "ray", "vllm")):
                low += user.end()
            read_shell_piece(reading, piece.slice(low, end), place="shell")
        elif ENV_LINE.match(line):
            read_env_file(reading, piece.slice(start, end))


def is_cron_line(line: str) -> bool:
    return _CRON.match(line) is not None


def read_dockerfile(reading: Reading, piece: Piece) -> None:
    """FROM, ENV, RUN, CMD and ENTRYPOINT of a Dockerfile."""
    image = ""
    for start, end, line in _said(reading, piece, _docker_instructions(piece), marks=("#",)):
        match = re.match(r"\s*([A-Za-z]+)\s+", line)
        if not match:
            continue
        verb, low = match.group(1).upper(), start + match.end()
        body = piece.slice(low, end)
        if verb == "FROM":
            name = re.match(r"(?:--\S+\s+)*(\S+)", body.text)
            if name:
                image = name.group(1)
                word = Word(
                    body.slice(name.start(1), name.end(1)), body.at(name.start(1)), body.at(name.end(1)), "fixed"
                )
                reading.images.append(KeyValue("image", "FROM", image, word.start, word.end, word))
        elif verb == "ENV":
            _docker_env(reading, piece, start, low, end)
        elif verb == "RUN":
            read_shell_piece(reading, body, place="dockerfile")
        elif verb in ("CMD", "ENTRYPOINT"):
            _docker_command(reading, body, image)


def _docker_instructions(piece: Piece) -> Iterator[tuple[int, int]]:
    begin: int | None = None
    for start, end in lines_of(piece):
        stripped = piece.text[start:end].strip()
        if begin is None and stripped.startswith("#"):
            yield start, end
            continue
        begin = start if begin is None else begin
        if stripped.endswith("\\") or (stripped.startswith("#") and begin != start):
            continue
        yield begin, end
        begin = None
    if begin is not None:
        yield begin, len(piece.text)


def _docker_env(reading: Reading, piece: Piece, start: int, low: int, end: int) -> None:
    old_form = re.match(r"([A-Za-z_]\w*)[ \t]+([^=\r\n][^\r\n]*)$", piece.text[low:end])
    if old_form:
        builder = PieceBuilder()
        builder.add_from(piece, low, low + old_form.end(1))
        builder.add("=", piece.at(low + old_form.end(1)))
        builder.add_from(piece, low + old_form.start(2), end)
        before = len(reading.env)
        read_env_file(reading, builder.build(piece.at(low)), place="dockerfile")
    else:
        before = len(reading.env)
        read_shell_piece(reading, piece.slice(low, end), place="dockerfile")
    added = reading.env[before:]
    if len(added) == 1:
        added[0].removable = (piece.at(start), piece.at(end))


def _docker_command(reading: Reading, body: Piece, image: str) -> None:
    if not body.text.lstrip().startswith("["):
        read_shell_piece(reading, body, place="dockerfile", image=image)
        return
    words = [
        Word(body.slice(match.start(1), match.end(1)), body.at(match.start()), body.at(match.end()), "yaml-flow")
        for match in re.finditer(r'"((?:[^"\\]|\\.)*)"', body.text)
    ]
    found = started(words, arity=reading.arity, place="dockerfile", image=image)
    reading.invocations.extend(found.invocations)
    for inner, _ in found.scripts:
        read_shell_piece(reading, inner, place="dockerfile")
