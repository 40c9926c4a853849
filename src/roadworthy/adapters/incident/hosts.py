"""What hosts know, over ssh: journal, logs of containers, of Ray and our services, local metrics, a whole capture."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from roadworthy.adapters.capture import capture_over_ssh
from roadworthy.adapters.incident.engines import is_of_interest
from roadworthy.adapters.incident.fetched import safe_part
from roadworthy.adapters.incident.programs import each_at_once
from roadworthy.core.errors import ProbeError, SpecError

if TYPE_CHECKING:
    from roadworthy.adapters.incident.fetched import Fetched

HOST_LIMIT_S = 300.0
HOST_MOST_BYTES = 2 * 2**30
ONE_LOG_MOST_BYTES = 256 * 2**20
AT_ONCE = 16
LINE_MOST_BYTES = 2**20
METRICS_PORTS = (8000, 8001, 8002, 8003, 8004, 8005, 8006, 8007, 8080, 8081, 8100, 8200, 9400, 30000)
"""Where vLLM, SGLang, our gateway and the DCGM exporter listen unless told otherwise."""

SCRIPT = r"""
PATH="$PATH:/usr/sbin:/sbin"
mark='@MARK@'
begin() { printf '\n%s begin %s\n' "$mark" "$1"; }
end() { printf '\n%s end %s\n' "$mark" "$1"; }
limited() {  # stdin is this script: whoever read it would eat the rest
  if command -v timeout >/dev/null 2>&1; then timeout -k 2 60 "$@" </dev/null; else "$@" </dev/null; fi
}
if command -v journalctl >/dev/null 2>&1; then
  begin journal.log
  limited journalctl --since='-@SINCE@s' -o short-iso-precise --no-pager -q 2>&1 | head -c @MOST@
  end 'done'
else
  begin journal.log; end missing:journalctl
fi
state='State {{.State.Status}} OOMKilled={{.State.OOMKilled}} Exit Code: {{.State.ExitCode}}'
for runtime in docker podman nerdctl; do
  command -v "$runtime" >/dev/null 2>&1 || continue
  list=$(limited "$runtime" ps -a --no-trunc --format '{{.ID}} {{.Names}} {{.Image}}' 2>&1)
  code=$?
  if [ "$code" -ne 0 ]; then begin "$runtime.txt"; printf '%s\n' "$list"; end "failed:$runtime ps"; continue; fi
  printf '%s\n' "$list" | grep -iE 'vllm|sglang|ray|roadworthy|nvidia|llm' | while read -r id name _; do
    begin "containers/$name.log"
    limited "$runtime" logs --since '@SINCE@s' --timestamps "$id" 2>&1 | head -c @MOST@
    end 'done'
    begin "containers/$name.state.txt"
    limited "$runtime" inspect --format "$state" "$id" 2>&1
    end 'done'
  done
done
if command -v crictl >/dev/null 2>&1; then
  limited crictl ps -a -o json 2>/dev/null | tr -d '\n' | sed 's/"id"/\n"id"/g' |
    grep -iE 'vllm|sglang|ray|roadworthy|llm' |
    sed -n 's/^"id": *"\([0-9a-f]*\)".*"metadata": *{[^}]*"name": *"\([^"]*\)".*/\1 \2/p' |
    while read -r id name; do
      begin "containers/$name-$(printf '%.8s' "$id").log"
      limited crictl logs --timestamps --since '@SINCE@s' "$id" 2>&1 | head -c @MOST@
      end 'done'
    done
fi
minutes=$(( (@SINCE@ + 59) / 60 ))
for folder in /var/log/vllm /var/log/roadworthy /tmp/ray/session_latest/logs "@LOGS@"; do
  if [ -z "$folder" ] || [ ! -d "$folder" ]; then continue; fi
  find -L "$folder" -maxdepth 2 -type f -mmin "-$minutes" 2>/dev/null | grep -E '\.(log|out|err)' |
    head -n 200 | while read -r file; do
      begin "logs/$(printf '%s' "$file" | tr '/' '_')"
      tail -c 33554432 "$file" 2>&1
      end 'done'
    done
done
if command -v curl >/dev/null 2>&1; then
  for port in @PORTS@; do
    begin "metrics.$port.prom"
    curl -sS -f -m 3 --noproxy '*' "http://127.0.0.1:$port/metrics" 2>/dev/null | head -c 16777216
    end 'done'
  done
else
  begin metrics.prom; end missing:curl
fi
exit 0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which hosts, how far back, and a folder of logs beside the usual ones."""

    hosts: tuple[str, ...]
    since_s: float
    logs: str = ""


def fetch_hosts(asked: Asked, fetched: Fetched) -> None:
    """Logs and a capture of every host at once; what cannot be had is noted.

    Raises:
        SpecError: a name that ssh would take for something else.
    """
    for host in asked.hosts:
        if host.startswith("-") or not host.strip():
            raise SpecError(f"{host!r} is no host name", hint="give names or addresses as ssh knows them")
    reachable = each_at_once(
        lambda host: _logs(host, asked, fetched), asked.hosts, most=AT_ONCE, programs=fetched.programs
    )
    hosts = [host for host, good in zip(asked.hosts, reachable, strict=True) if good]
    for host, answers in capture_over_ssh(hosts).items() if hosts else ():
        if isinstance(answers, ProbeError):
            fetched.could_not_look(host, str(answers))
            continue
        for answer in answers:
            fetched.put(f"hosts/{safe_part(host)}/{answer.file}", answer.text)
            if answer.status != "answered" and not answer.text:
                fetched.could_not_look(f"hosts/{safe_part(host)}/{answer.file}", answer.status)


def _logs(host: str, asked: Asked, fetched: Fetched) -> bool:
    mark = f"@@@{secrets.token_hex(12)}"
    script = _script(asked, mark)
    sections = Sections(f"hosts/{safe_part(host)}", mark.encode(), fetched)
    command = [
        "ssh",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=10",
        "-o",
        "ServerAliveInterval=15",
        "-T",
        host,
        "sh",
        "-s",
    ]
    try:
        ended = fetched.programs.run_into(
            command, sections.feed, stdin=script.encode(), limit_s=HOST_LIMIT_S, most_bytes=HOST_MOST_BYTES
        )
    except ProbeError as error:
        fetched.could_not_look(host, str(error))
        return False
    finally:
        sections.close()
    if ended.cut:
        fetched.could_not_look(f"{host}: the rest of its logs", ended.cut)
    elif ended.code:
        fetched.could_not_look(host, ended.said or f"ssh ended with {ended.code}")
    return bool(sections.seen) or ended.code == 0


def _script(asked: Asked, mark: str) -> str:
    logs = asked.logs.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
    script = SCRIPT.lstrip("\n")
    for name, value in (
        ("MARK", mark), ("SINCE", f"{asked.since_s:.0f}"), ("MOST", str(ONE_LOG_MOST_BYTES)), ("LOGS", logs),
        ("PORTS", " ".join(map(str, METRICS_PORTS))),
    ):  # fmt: skip
        script = script.replace(f"@{name}@", value)
    return script


class Sections:
    """Cuts what a host answers into files as it comes. A section that is not ended is kept: the connection broke."""

    def __init__(self, folder: str, mark: bytes, fetched: Fetched) -> None:
        self._folder, self._mark, self._fetched = folder, mark, fetched
        self._rest = b""
        self._name = ""
        self._sink: IO[bytes] | None = None
        self._opened = ExitStack()
        self.seen = 0

    def feed(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._line(line + b"\n")
        if len(self._rest) >= LINE_MOST_BYTES:
            self._line(self._rest)
            self._rest = b""

    def close(self) -> None:
        """The host says no more."""
        if self._rest:
            self._line(self._rest)
            self._rest = b""
        if self._sink is not None:
            self._finish()
            self._fetched.could_not_look(f"{self._folder}/{self._name}, the rest", "the connection ended")

    def _line(self, line: bytes) -> None:
        if line.startswith(self._mark + b" begin "):
            self._finish()
            self._name = line.split(b" begin ", 1)[1].strip().decode("utf-8", "replace")
            self._sink = self._opened.enter_context(self._fetched.writing(f"{self._folder}/{self._name}"))
            self.seen += 1
        elif line.startswith(self._mark + b" end "):
            how = line.split(b" end ", 1)[1].strip().decode("utf-8", "replace")
            self._finish()
            if how != "done":
                word, _, what = how.partition(":")
                reason = f"{what} is not installed there" if word == "missing" else f"`{what}` failed there"
                self._fetched.could_not_look(f"{self._folder}/{self._name}", reason)
        elif self._sink is not None:
            self._sink.write(line)

    def _finish(self) -> None:
        """The section that is written to, if any, is whole."""
        if self._sink is None:
            return
        self._sink = None
        self._opened.close()
        path = self._fetched.path_of(f"{self._folder}/{self._name}")
        if self._name.endswith(".prom") and path.exists() and not is_of_interest(path.read_text(errors="replace")):
            path.unlink()  # somebody else's port
        elif self._name == "journal.log" and path.exists():
            self._journal(path.read_bytes()[:65536])

    def _journal(self, head: bytes) -> None:
        if b"not seeing messages from other users" in head or b"No journal files were opened" in head:
            self._fetched.could_not_look(
                f"{self._folder}/journal.log", "that user may not read the system's journal: add it to systemd-journal"
            )
