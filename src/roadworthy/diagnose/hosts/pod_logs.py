"""Captures out of the logs of pods: one text with the output of many hosts, as `kubectl logs` prints it or as a node
keeps it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from roadworthy.diagnose.hosts.commands import BEGIN, NODE, QUESTIONS, WHOLE, Answer, parse_capture

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = re.compile(r"^\[(?P<source>pod/[^\]]+)\] ?")
"""`kubectl logs --prefix`: pod and container before each line."""
TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) ?")
"""`kubectl logs --timestamps`, and the beginning of a line of CRI."""
CRI = re.compile(r"^(?:stdout|stderr) (?P<part>[FP]) ?")
"""A file below /var/log/pods: the stream, and whether the line is full or goes on with the next."""

NOT_REACHED = "not in the log"


def holds_capture(text: str) -> bool:
    """Whether ``text`` has the output of a check in it."""
    return f"{NODE} " in text and f"{BEGIN} " in text


def captures_of_log(text: str) -> dict[str, tuple[Answer, ...]]:
    """Answers by host. Of several runs on a host the last whole one counts, else the last.

    A question whose answer the log does not hold, because the run goes on or the log was cut, is one that could not be
    looked at.
    """
    found: dict[str, tuple[bool, tuple[Answer, ...]]] = {}
    for lines in _sources(text).values():
        for host, run in _runs(lines):
            whole = WHOLE in run
            if host not in found or whole or not found[host][0]:
                found[host] = (whole, _answers(run))
    return {host: answers for host, (_, answers) in found.items()}


def _answers(lines: list[str]) -> tuple[Answer, ...]:
    answers = parse_capture("\n".join(lines))
    named = {one.file for one in answers}
    left = tuple(Answer(file=one.file, text="", status=NOT_REACHED) for one in QUESTIONS if one.file not in named)
    return (*answers, *left)


def _sources(text: str) -> dict[str, list[str]]:
    """Lines by pod where they say it, bare of what was put before them; parts of a line are joined."""
    found: dict[str, list[str]] = defaultdict(list)
    open_part: dict[str, bool] = {}
    for raw in text.splitlines():
        source, line, part = _bare(raw)
        if open_part.get(source):
            found[source][-1] += line
        else:
            found[source].append(line)
        open_part[source] = part
    return found


def _bare(raw: str) -> tuple[str, str, bool]:
    source, line, part = "", raw, False
    if match := PREFIX.match(line):
        source, line = match["source"], line[match.end() :]
    if match := TIME.match(line):
        rest = line[match.end() :]
        if cri := CRI.match(rest):
            part, rest = cri["part"] == "P", rest[cri.end() :]
        line = rest
    return source, line, part


def _runs(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """(host, its lines) of each run in the lines of one source."""
    host = ""
    run: list[str] = []
    for line in lines:
        if line.startswith(f"{NODE} "):
            if host:
                yield host, run
            host, run = line[len(NODE) + 1 :].strip(), []
        elif host:
            run.append(line)
    if host:
        yield host, run
