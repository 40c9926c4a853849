"""The admin application asked without a socket, by whoever the test says."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from fakes.governed import FakeGoverned, FlakyRegistry
from roadworthy.gateway.admin.app import admin_app
from roadworthy.gateway.admin.desk import Desk
from roadworthy.spec.values import Tenant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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
