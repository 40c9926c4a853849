"""A gateway in the test's own process, and a client that sends and reads bytes exactly."""

from __future__ import annotations

import asyncio
import json
import re
import warnings
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvloop

from roadworthy.gateway.config import GatewayConfig
from roadworthy.gateway.data.limits import Limits
from roadworthy.gateway.poller import PollPolicy
from roadworthy.gateway.service import Gateway
from roadworthy.gateway.stores import NO_STORES, Stores
from roadworthy.spec.values import Tenant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from fakes.engine import FakeEngine

KEY = "sk-test"
SALT = re.compile(rb'"cache_salt":"[0-9a-f]{32}",')
TENANT = Tenant(id="acme", key=KEY)
LIMIT_S = 10.0


def run(test: Callable[[], Awaitable[None]], limit_s: float = 30) -> None:
    """Run an async test on the loop that the product uses; fails too when a socket or server is left open."""

    async def limited() -> None:
        async with asyncio.timeout(limit_s):
            await test()

    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    # uvloop 0.23 never returns from close() when this warning is an error, so it is collected instead
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        try:
            runner.run(limited())
        finally:
            runner.close()
    left = [str(one.message) for one in caught if one.category is ResourceWarning]
    assert left == [], left


async def until(condition: Callable[[], bool], within_s: float = LIMIT_S) -> None:
    """Return once ``condition`` holds; for state that has no event to wait for."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def gateway_before(
    *engines: FakeEngine | str,
    tenants: Sequence[Tenant] = (TENANT,),
    limits: Limits | None = None,
    poll: PollPolicy | None = None,
    drain_s: float = 0.0,
    stores: Stores = NO_STORES,
    **more: Any,
) -> AsyncIterator[Gateway]:
    """A gateway before ``engines``, with ``more`` of its configuration; at the end nothing may be left in flight."""
    gateway = Gateway(
        GatewayConfig(
            endpoints=tuple(engine if isinstance(engine, str) else engine.url for engine in engines),
            tenants=tuple(tenants),
            limits=limits or Limits(),
            poll=poll or PollPolicy(),
            **more,
        ),
        stores=stores,
    )
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop(drain_s)
        status = gateway.status()
        assert status.in_flight == 0
        assert [one.in_flight for one in status.endpoints] == [0] * len(status.endpoints)
        assert [one.in_flight for one in status.tenants] == [0] * len(status.tenants)
        assert status.client_connections == 0


@dataclass
class Response:
    """What came back, byte-exact; ``chunks`` as framed, when the body was chunked."""

    status: int
    headers: dict[str, str]
    body: bytes
    chunks: list[bytes] = field(default_factory=list)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error in our shape; fails if the shape is another."""
        error = self.json()["error"]
        assert set(error) == {"message", "type", "code", "param", "hint"}
        return str(error["code"])


class RawClient:
    """One connection to a data port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(LIMIT_S):
            text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text[:-4].split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return int(first.split(" ")[1]), headers

    async def chunk(self) -> bytes:
        """The next chunk; empty at the end of the stream."""
        async with asyncio.timeout(LIMIT_S):
            size = int((await self.reader.readline()).strip(), 16)
            data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def response(self) -> Response:
        status, headers = await self.head()
        if headers.get("transfer-encoding") == "chunked":
            chunks = []
            while part := await self.chunk():
                chunks.append(part)
            return Response(status, headers, b"".join(chunks), chunks)
        async with asyncio.timeout(LIMIT_S):
            return Response(status, headers, await self.reader.readexactly(int(headers["content-length"])))

    async def at_end(self) -> bool:
        """Whether the other side closes without another byte."""
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.read(1) == b""

    async def ask(self, data: bytes) -> Response:
        self.send(data)
        return await self.response()

    def leave(self) -> None:
        """Go away at once, as a killed process does."""
        self.writer.transport.abort()


@asynccontextmanager
async def client_of(gateway: Gateway, *, limit: int = 2**16) -> AsyncIterator[RawClient]:
    host, port = gateway.data_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=limit)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


def post(
    body: bytes | dict[str, object],
    *,
    path: str = "/v1/chat/completions",
    key: str | None = KEY,
    headers: Sequence[str] = (),
) -> bytes:
    """A completion request as bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: gateway", f"Content-Length: {len(data)}", *headers]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data


def unsalted(body: bytes) -> bytes:
    """An engine's request as its client sent it; fails unless exactly one salt was put in front."""
    start = body.index(b"{") + 1
    salt = SALT.match(body, start)
    assert salt is not None
    return body[:start] + body[salt.end() :]


def chat(*, stream: bool = True, model: str = "m", **fields: object) -> dict[str, object]:
    return {"model": model, "stream": stream, "messages": [{"role": "user", "content": "hi"}], **fields}


def get(path: str, *, key: str | None = KEY, headers: Sequence[str] = ()) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: gateway", *headers]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
