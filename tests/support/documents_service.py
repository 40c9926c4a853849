"""Documents served as a gateway serves them, and tenants who ask: with a real process, or the collections alone."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import threading
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.adapters.library.service import Library
from roadworthy.gateway.documents.place import socket_of
from roadworthy.gateway.documents.process import DocumentsProcess
from roadworthy.spec.gateway_values import DocumentsSpec
from roadworthy.spec.values import Tenant
from support.gateway import client_of, gateway_before
from support.threaded_engine import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from fakes.engine import FakeEngine
    from roadworthy.gateway.data.limits import Limits
    from roadworthy.gateway.service import Gateway
    from support.gateway import Response

ACME = Tenant(id="acme", key="sk-acme")
BETA = Tenant(id="beta", key="sk-beta")


@contextmanager
def library(
    home: Path, *, gateway_url: str = "http://127.0.0.1:1", reader: Sequence[str] = (), **limits: Any
) -> Iterator[Library]:
    """The collections in this process; documents are read by real processes, or by ``reader``."""
    more = {"reader": tuple(reader)} if reader else {}
    found = Library(DocumentsSpec(home=str(home), **limits), gateway_url=gateway_url, **more)
    try:
        yield found
    finally:
        found.close()


def put(
    collections: Library, tenant: str, data: bytes, name: str = "law.md", *, vectors: bool = False
) -> dict[str, Any]:
    """Upload ``data`` as the HTTP side does."""
    upload = collections.upload(tenant)
    try:
        upload.write(data)
        return collections.stored(tenant, upload, name, vectors=vectors)
    finally:
        upload.drop()


def put_and_read(collections: Library, tenant: str, data: bytes, name: str = "law.md", **more: Any) -> dict[str, Any]:
    """The document once it has been read, well or not."""
    stored = put(collections, tenant, data, name, **more)
    if stored["job"] is not None:
        ended(collections, tenant, stored["job"]["id"])
    return collections.document(tenant, stored["document"]["id"])


def ended(collections: Library, tenant: str, job: str) -> dict[str, Any]:
    """The job once it runs no more."""
    eventually(lambda: collections.job(tenant, job)["status"] not in ("queued", "running"))
    return collections.job(tenant, job)


def asked(question: str, **more: Any) -> dict[str, Any]:
    """What the HTTP side hands on of a question."""
    plain = {
        "model": "m",
        "reranker": None,
        "documents": [],
        "quick": False,
        "budget_tokens": 4096,
        "answer_tokens": None,
    }
    return {"question": question, **plain, **more}


def not_stopped() -> threading.Event:
    return threading.Event()


@asynccontextmanager
async def served(
    engine: FakeEngine | str,
    home: Path,
    *,
    tenants: Sequence[Tenant] = (ACME, BETA),
    limits: Limits | None = None,
    **documents: Any,
) -> AsyncIterator[tuple[Gateway, DocumentsProcess]]:
    """A gateway with its documents' process."""
    spec = DocumentsSpec(home=str(home), **documents)
    async with gateway_before(engine, tenants=tenants, limits=limits, documents=spec) as gateway:
        process = DocumentsProcess(spec, gateway.data_url, say=print)
        await process.start()
        try:
            yield gateway, process
        finally:
            await process.stop()


async def call(
    gateway: Gateway, method: str, path: str, body: Any = None, *, key: str = "sk-acme", headers: Sequence[str] = ()
) -> Response:
    """One request for documents; ``body`` is JSON, or bytes of a document."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
    lines = [f"{method} /v1/documents{path} HTTP/1.1", "Host: gateway", f"Authorization: Bearer {key}", *headers]
    if body is not None:
        lines += [f"Content-Length: {len(data)}"]
        if not any(one.lower().startswith("content-type") for one in headers):
            lines.append(f"Content-Type: {kind}")
    async with client_of(gateway) as client:
        return await client.ask("\r\n".join(lines).encode() + b"\r\n\r\n" + data)


async def upload(
    gateway: Gateway, data: bytes, name: str = "law.md", *, key: str = "sk-acme", vectors: bool = False
) -> str:
    """The id of a document that has been read."""
    stored = await call(gateway, "POST", f"?name={name}&vectors={str(vectors).lower()}", data, key=key)
    assert stored.status in (200, 202), stored.body
    document: str = stored.json()["document"]["id"]
    async with asyncio.timeout(20):
        while (await call(gateway, "GET", f"/{document}", key=key)).json()["status"] in ("queued", "reading"):
            await asyncio.sleep(0.02)
    return document


def pid_of(home: Path) -> int:
    """Of the process that serves ``home``, as the kernel knows it."""
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(socket_of(home)))
        pid, _, _ = struct.unpack("3i", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid)


def left_on_disk(home: Path, *words: str) -> list[str]:
    """Files below ``home`` that hold any of ``words``, or are called so; written as the text's own bytes, in UTF-16 or
    as JSON escapes."""
    wanted = [
        form for word in words for form in (word.encode(), word.encode("utf-16-le"), json.dumps(word)[1:-1].encode())
    ]
    found = []
    for folder, folders, files in os.walk(home):
        found += [name for name in (*folders, *files) if any(word in name for word in words)]
        for name in files:
            data = (Path(folder) / name).read_bytes()
            if any(one in data for one in wanted):
                found.append(name)
    return found
