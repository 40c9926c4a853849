"""Asks hosts the questions of a capture: here, over ssh, or from a folder that an earlier capture wrote."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.adapters.files import write_atomically
from roadworthy.core.errors import ProbeError
from roadworthy.diagnose.hosts import pod_logs
from roadworthy.diagnose.hosts.commands import Answer, capture_script, parse_capture

if TYPE_CHECKING:
    from roadworthy.adapters.remote_shell import Programs

CAPTURE_LIMIT_S = 300
CAPTURE_MOST = 64 * 2**20
"""Characters of one host's answers; those of a large host are about two million."""

SSH_AT_ONCE = 32
MANIFEST, FABRIC_MANIFEST = "capture.json", "fabric.json"
LOG_MOST_BYTES = 2**29
"""Of the logs of all pods together; a node's answers take about 2 MB."""


def capture_here(*, weights: str | None = None) -> tuple[Answer, ...]:
    """Ask this host. Raises ProbeError when there is no shell to ask with."""
    from roadworthy.adapters.remote_shell import SHELL, Programs

    return _asked(list(SHELL), capture_script(weights=weights), "this host", Programs())


def capture_over_ssh(hosts: Sequence[str], *, weights: str | None = None) -> dict[str, tuple[Answer, ...] | ProbeError]:
    """Ask every host at once, without a password prompt; a host that cannot be reached gives its error.

    Questions that still run on hosts end when this does, also by an interrupt. Raises SpecError for a name that ssh
    would take for an option.
    """
    from concurrent.futures import ThreadPoolExecutor

    from roadworthy.adapters.remote_shell import Programs, through

    script, running = capture_script(weights=weights), Programs()
    commands = {host: through(host) for host in hosts}

    def ask(host: str) -> tuple[Answer, ...] | ProbeError:
        try:
            return _asked(commands[host], script, host, running)
        except ProbeError as error:
            return error

    with ThreadPoolExecutor(max_workers=min(SSH_AT_ONCE, max(1, len(hosts)))) as pool:
        try:
            return dict(zip(hosts, pool.map(ask, hosts), strict=True))
        except BaseException:
            running.close_all()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _asked(command: list[str], script: str, host: str, running: Programs) -> tuple[Answer, ...]:
    from roadworthy.adapters.remote_shell import SHELL, script_of  # not needed to judge what was captured

    asks = script_of(SHELL, {}, limit_s=CAPTURE_LIMIT_S, reads=script)
    try:
        with running.started(command, asks, most=CAPTURE_MOST) as program:
            ended = program.wait(CAPTURE_LIMIT_S + 5)
            text = program.text
    except FileNotFoundError as error:
        raise ProbeError(f"{host}: {command[0]} is not installed here", hint="capture on the host itself") from error
    answers = parse_capture(text)
    if answers:
        return answers
    if not ended:
        raise ProbeError(f"{host}: no answer within {CAPTURE_LIMIT_S} s")
    said = text.strip().splitlines()
    raise ProbeError(
        f"{host}: could not look: {said[-1] if said else 'no answer'}",
        hint="`ssh -o BatchMode=yes HOST true` must work without a question",
    )


def write_capture(folder: Path, captured: Mapping[str, Sequence[Answer]]) -> None:
    """``folder/HOST/FILE`` for every answer, and ``folder/HOST/capture.json`` with what could not be looked at.

    Names come from hosts and logs; whatever they are, the files stay inside ``folder``.
    """
    for host, answers in captured.items():
        place = folder / file_name(host, otherwise="host")
        place.mkdir(parents=True, exist_ok=True)
        for answer in answers:
            if answer.text:
                write_atomically(place / file_name(answer.file, otherwise="host"), answer.text, durable=False)
        unanswered = [{"file": one.file, "status": one.status} for one in answers if one.status != "answered"]
        write_atomically(place / MANIFEST, json.dumps({"host": host, "unanswered": unanswered}, indent=2) + "\n")


def file_name(text: str, *, otherwise: str) -> str:
    """``text`` as the name of a file or folder: names of hosts and devices hold no slash, but who knows.
    ``otherwise`` is the name where nothing is left of it."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text).lstrip(".") or otherwise


def holds_capture(source: Path) -> bool:
    """Whether there is a host's capture in ``source``, which may be a folder, a log or ``-``."""
    return not source.is_dir() or bool(_manifests(source)) or any(_logs(source))


def read_capture(source: Path) -> dict[str, tuple[Answer, ...]]:
    """Answers by host, from what :func:`write_capture` wrote, a folder of one host alone, the log of the rendered
    check (of one pod or of all), a folder of such logs, or standard input (``-``) with a log.

    Raises ProbeError for anything else.
    """
    if str(source) == "-":
        return _of_log(sys.stdin.buffer.read(LOG_MOST_BYTES).decode("utf-8", "replace"), "standard input")
    if source.is_file():
        return _of_log(_text(source), str(source))
    if not source.is_dir():
        raise ProbeError(f"{source}: no such folder or file", hint="`roadworthy check --capture DIR` writes one")
    manifests = _manifests(source)
    captured: dict[str, tuple[Answer, ...]] = {}
    if not manifests:
        for path, text in _logs(source):
            captured |= _of_log(text, str(path))
    if not captured:
        places = sorted(path.parent for path in manifests) or [source]
        captured = {host: answers for host, answers in map(_read_host, places) if answers}
    if not captured:
        raise ProbeError(f"{source}: no capture in it", hint="`roadworthy check --capture DIR` writes one")
    return captured


def _manifests(folder: Path) -> list[Path]:
    return list(folder.rglob(MANIFEST))


def _logs(folder: Path) -> Iterator[tuple[Path, str]]:
    """Files right in ``folder`` that hold the output of a check, and their text."""
    for path in sorted(folder.iterdir()):
        if path.is_file() and pod_logs.holds_capture(text := _text(path)):
            yield path, text


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(LOG_MOST_BYTES).decode("utf-8", "replace")


def _of_log(text: str, source: str) -> dict[str, tuple[Answer, ...]]:
    captured = pod_logs.captures_of_log(text)
    if not captured:
        raise ProbeError(
            f"{source}: no output of a check in it",
            hint="kubectl logs -l app.kubernetes.io/component=check --tail=-1 --prefix (without --tail: ten lines)",
        )
    return captured


def _read_host(place: Path) -> tuple[str, tuple[Answer, ...]]:
    manifest: object = {}
    path = place / MANIFEST
    if path.is_file():
        try:
            manifest = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        except ValueError as error:
            raise ProbeError(f"{path}: not JSON: {error}") from error
    told = manifest if isinstance(manifest, dict) else {}
    answers = [
        Answer(file=one.name, text=one.read_text(encoding="utf-8", errors="replace"), status="answered")
        for one in sorted(place.iterdir())
        if one.is_file() and one.name != MANIFEST and not one.name.startswith(".")
    ]
    unanswered = [one for one in told.get("unanswered") or () if isinstance(one, dict)]
    answers += [Answer(file=str(one.get("file")), text="", status=str(one.get("status"))) for one in unanswered]
    return str(told.get("host") or place.name), tuple(answers)
