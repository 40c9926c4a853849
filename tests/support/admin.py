"""The admin application asked without a socket, by whoever the test says."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import socket
import sys
import threading
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import httpx
import pytest

from fakes.governed import FakeGoverned, FlakyRegistry
from roadworthy.cli import cli, output
from roadworthy.gateway.admin.app import admin_app
from roadworthy.gateway.admin.desk import Desk
from roadworthy.gateway.admin.server import AdminServer
from roadworthy.spec.values import Tenant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping

BOOTSTRAP = "bootstrap-key-of-the-tests"
DOCUMENT = (
    Tenant(id="acme", key="sk-acme", weight=2.0, requests_per_minute=100, kv_quota_bytes=2**30),
    Tenant(id="beta", key="sk-beta"),
)


@dataclass
class Clock:
    """Seconds of the epoch, moved by the test. It begins at 2026-11-30 12:00 UTC."""

    now_s: float = 1_796_040_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Office:
    """An open desk, its gateway and the application over them."""

    view: FakeGoverned
    desk: Desk
    clock: Clock
    registry: FlakyRegistry | None
    said: list[str] = field(default_factory=list)
    url: str = ""

    def client(
        self, key: str | None = BOOTSTRAP, *, address: str = "127.0.0.1", host: str = "127.0.0.1:8081"
    ) -> httpx.AsyncClient:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        transport = httpx.ASGITransport(admin_app(lambda: self.view, self.desk), client=(address, 4711))
        return httpx.AsyncClient(transport=transport, base_url=f"http://{host}", headers=headers)

    async def audit(self) -> list[dict[str, Any]]:
        async with self.client() as admin:
            rows: list[dict[str, Any]] = (await admin.get("/api/audit")).json()["rows"]
            return rows


@asynccontextmanager
async def office(
    *, bootstrap: str | None = BOOTSTRAP, document: tuple[Tenant, ...] = DOCUMENT, registry: FlakyRegistry | None = None
) -> AsyncIterator[Office]:
    """A desk that is open; without a registry it keeps all in memory."""
    view, clock = FakeGoverned(document=document), Clock()
    said: list[str] = []
    desk = Desk(pepper=b"p" * 32, registry=registry, bootstrap=bootstrap, now_s=clock, say=said.append)
    await desk.open(view)
    try:
        yield Office(view, desk, clock, registry, said)
    finally:
        await desk.close()


def code(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of an error; fails if its shape is not the one."""
    error = answer.json()["error"]
    assert set(error) - {"problems"} == {"message", "type", "code", "param", "hint"}
    return answer.status_code, error["code"]


@contextmanager
def admin_port(**more: Any) -> Iterator[Office]:
    """An office on a port of its own, for commands that bring no loop; ``office.url`` is the port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def there(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(10)

    opened = office(**more)
    here: Office = there(opened.__aenter__())  # type: ignore[arg-type]
    listening = socket.create_server(("127.0.0.1", 0))
    server = AdminServer(admin_app(lambda: here.view, here.desk), listening)
    try:
        there(server.start())
        here.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield here
    finally:
        there(server.stop())
        there(opened.__aexit__(None, None, None))  # type: ignore[arg-type]
        listening.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def command(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `roadworthy ARGUMENTS` as the shell sees them."""
    out, err = io.StringIO(), io.StringIO()
    output._printed.clear()  # of a command before, in this process
    with (
        patch.object(sys, "argv", ["roadworthy", *arguments]),
        patch.dict(os.environ, environment or {}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        output.run(cli)
    assert isinstance(ended.value.code, int)
    return ended.value.code, out.getvalue(), err.getvalue()
