"""An HTTP server that answers as a Prometheus does, from series that a test gives; it can refuse and break off."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

MATCHER = re.compile(r'([A-Za-z_]\w*)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"')
SELECTOR = re.compile(r"\{([^{}]*)\}")


def series(
    name: str, values: Sequence[float], *, start_s: float, step_s: float = 15.0, **labels: str
) -> dict[str, Any]:
    """One series with a value every ``step_s``."""
    points = [[start_s + number * step_s, f"{value:g}"] for number, value in enumerate(values)]
    return {"metric": {"__name__": name, **labels}, "values": points}


def answer(*some: Mapping[str, Any], **more: Any) -> str:
    """The body of a range query's answer."""
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(some)}, **more})


@dataclass
class FakePrometheus:
    """What it holds, how it behaves, and what it was asked.

    Args:
        behave: hears the path and the query; what it returns is sent instead (status, body), None answers as usual.
    """

    held: Sequence[Mapping[str, Any]]
    login: str = ""
    behave: Callable[[str, str], tuple[int, bytes] | None] = lambda path, query: None
    warnings: tuple[str, ...] = ()
    url: str = ""
    asked: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)

    def body(self, path: str, query: dict[str, list[str]]) -> str:
        if path.endswith("/label/__name__/values"):
            wanted = [_matches(text) for text in query.get("match[]", ["{}"])]
            names = {one["metric"]["__name__"] for one in self.held if any(test(one["metric"]) for test in wanted)}
            return json.dumps({"status": "success", "data": sorted(names)})
        tests = [_matches("{" + inner + "}") for inner in SELECTOR.findall(query["query"][0])]
        start_s, end_s = float(query["start"][0]), float(query["end"][0])
        found = []
        for one in self.held:
            points = [point for point in one["values"] if start_s <= point[0] <= end_s]
            if points and any(test(one["metric"]) for test in tests):
                found.append({"metric": one["metric"], "values": points})
        return answer(*found, **({"warnings": list(self.warnings)} if self.warnings else {}))


def _matches(selector: str) -> Callable[[Mapping[str, str]], bool]:
    rules = MATCHER.findall(selector)

    def test(metric: Mapping[str, str]) -> bool:
        return all(_one(metric.get(key, ""), how, json.loads(f'"{value}"')) for key, how, value in rules)

    return test


def _one(seen: str, how: str, wanted: str) -> bool:
    equal = bool(re.fullmatch(wanted, seen)) if "~" in how else seen == wanted
    return equal != how.startswith("!")


@contextmanager
def serving(fake: FakePrometheus) -> Iterator[FakePrometheus]:
    """``fake`` at ``fake.url`` while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            fake.asked.append((parts.path, parse_qs(parts.query)))
            status, body = self._answer(parts.path, parts.query)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status in (301, 302):
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", str(len(body) + (1000 if body.endswith(b"CUT") else 0)))
            self.end_headers()
            self.wfile.write(body)

        def _answer(self, path: str, query: str) -> tuple[int, bytes]:
            if fake.login and self.headers.get("Authorization") != fake.login:
                return 401, b"Unauthorized"
            told = fake.behave(path, query)
            return told if told is not None else (200, fake.body(path, parse_qs(query)).encode())

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
