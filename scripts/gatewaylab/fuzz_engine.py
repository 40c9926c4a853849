"""An engine that trusts nobody: it reads requests strictly and notes whatever should never have reached it."""

from __future__ import annotations

import asyncio
import json
import re
from typing import cast

from gatewaylab.fuzz_bodies import FORBIDDEN
from gatewaylab.fuzz_parts import KEY, MODEL, PATHS, find_marker

REQUEST_LINE = re.compile(rb"(GET|POST) (/[\x21-\x7e]*) HTTP/1\.1")
HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([\x20-\x7e]*)")
SALT = re.compile("[0-9a-f]{32}")
"""What the gateway may set as ``cache_salt``; no case of the fuzzer has such a value."""

NEVER = frozenset(
    {
        b"te", b"trailer", b"transfer-encoding", b"upgrade", b"keep-alive", b"proxy-authorization",
        b"proxy-connection", b"cookie", b"expect",
        b"x-secret", b"x-session-id", b"x-vllm-priority", b"x-data-parallel-rank", b"endpoint-load-metrics-format",
        b"forwarded",
        b"x-roadworthy-io-wait-ms", b"http2-settings", b"origin", b"authorization",
    }
)  # fmt: skip


class StrictEngine:
    """``url`` once started; ``problems`` are what it should not have been sent."""

    def __init__(self) -> None:
        self.url = ""
        self.completions = 0
        self.problems: list[str] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> StrictEngine:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=1024)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()

    def note(self, what: str) -> None:
        if len(self.problems) < 100:
            self.problems.append(what)

    def check_body(self, body: bytes) -> None:
        """Top-level fields as the engine's own JSON reader would see them, repeated ones included."""
        seen: list[str] = []

        def top(pairs: list[tuple[str, object]]) -> dict[str, object]:
            seen[:] = [name for name, _ in pairs]  # the outermost object is read last
            return dict(pairs)

        try:
            value = json.loads(body.decode("utf-8"), object_pairs_hook=top)
        except (ValueError, RecursionError) as error:
            self.note(f"a body that is no JSON ({error}): {body[:200]!r}")
            return
        if not isinstance(value, dict):
            self.note(f"a body that is no object: {body[:200]!r}")
            return
        salts = seen.count("cache_salt")
        if salts and (salts > 1 or not SALT.fullmatch(str(value["cache_salt"]))):
            self.note(f"a salt that is not the gateway's own in {body[:300]!r}")
        if found := sorted(set(seen) & set(FORBIDDEN) - {"cache_salt"}):
            self.note(f"fields {found} in {body[:300]!r}")
        if value.get("model") != MODEL:
            self.note(f"model {value.get('model')!r} in {body[:300]!r}")


class _Connection(asyncio.Protocol):
    def __init__(self, engine: StrictEngine) -> None:
        self.engine = engine
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            line, *lines = self.buffer[:end].split(b"\r\n")
            request = REQUEST_LINE.fullmatch(line)
            headers = [HEADER.fullmatch(one) for one in lines]
            if request is None or None in headers:
                self.engine.note(f"not a request: {self.buffer[:300]!r}")
                self.transport.abort()
                return
            named = [(one[1].lower(), one[2]) for one in headers if one is not None]
            lengths = [value for name, value in named if name == b"content-length"]
            size = int(lengths[0]) if lengths else 0
            if len(self.buffer) < end + 4 + size:
                return
            body = self.buffer[end + 4 : end + 4 + size]
            self.buffer = self.buffer[end + 4 + size :]
            self._answer(request[1], request[2], named, lengths, body)
        if self.buffer and not self.buffer[:1].isalpha():
            self.engine.note(f"bytes behind a request: {self.buffer[:200]!r}")

    def _answer(
        self, method: bytes, path: bytes, headers: list[tuple[bytes, bytes]], lengths: list[bytes], body: bytes
    ) -> None:
        if method == b"GET":
            self._answer_probe(path)
            return
        engine = self.engine
        engine.completions += 1
        if path.decode() not in PATHS:
            engine.note(f"path {path!r}")
        if len(lengths) != 1:
            engine.note(f"{len(lengths)} lengths: {headers}")
        for name, value in headers:
            if name in NEVER or KEY.encode() in value or (name == b"connection" and value.lower() != b"keep-alive"):
                engine.note(f"header {name!r}: {value!r}")
        engine.check_body(body)
        marker = find_marker(body)
        self._say(marker.encode() if marker else b"none", stream=b'"stream": true' in body)

    def _say(self, marker: bytes, *, stream: bool) -> None:
        if stream:
            event = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % marker
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (event, b"data: [DONE]\n\n"))
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                + chunks
                + b"0\r\n\r\n"
            )
            return
        self._say_json(
            b'{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":'
            b'{"role":"assistant","content":"%b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,'
            b'"completion_tokens":1,"total_tokens":2}}' % marker
        )

    def _say_json(self, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(head + body)

    def _answer_probe(self, path: bytes) -> None:
        if path == b"/metrics":
            self._say_json(
                b"vllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\nvllm:kv_cache_usage_perc 0.0\n"
            )
        else:
            self._say_json(b'{"object":"list","data":[{"id":"m","object":"model"}]}')
