"""Several workers on a port, a program put in another's place, a document read again: no stream is lost by it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.engine import END, STREAM_HEAD, Asked, FakeEngine, chat_events, chunk, plain
from support.gateway import chat, run
from support.service import Service, serving

KEY = "sk-workers-0123456789"
EVENTS = chat_events("a", "b", usage=(3, 2))
STREAM = b"".join(EVENTS)
LIMIT_S = 60


class Gate:
    """An engine's answer that sends its first event and waits; ``open`` lets it, and every later one, end."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.started = 0

    async def answer(self, asked: Asked) -> None:
        if b'"stream": false' in asked.body or b'"stream":false' in asked.body:
            await plain()(asked)
            return
        await asked.send(STREAM_HEAD + chunk(EVENTS[0]))
        self.started += 1
        await self.open.wait()
        for event in EVENTS[1:]:
            await asked.send(chunk(event))
        await asked.send(END)


def document(folder: Path, *engines: FakeEngine, tenants: str | None = None, gateway: str = "") -> str:
    path = folder / "gateway.yaml"
    urls = ", ".join(f"{{url: {one.url!r}}}" for one in engines)
    path.write_text(
        f"model: {{config: tiny}}\nengine: {{endpoints: [{urls}]}}\n"
        f"tenants: {tenants or f'[{{id: acme, key: {KEY}}}]'}\ngateway: {{{gateway}}}\n"
    )
    return str(path)


def client(service: Service, key: str = KEY) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=service.data_url, headers={"Authorization": f"Bearer {key}"}, timeout=LIMIT_S)


async def status(service: Service) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=service.admin_url, timeout=LIMIT_S) as admin:
        return dict((await admin.get("/api/status")).json())


async def whole(service: Service) -> bytes:
    """The body of one stream over a connection of its own."""
    async with client(service) as asking:
        answer = await asking.post("/v1/chat/completions", json=chat())
        assert answer.status_code == 200
        return answer.content


async def ask(service: Service, key: str = KEY) -> int:
    async with client(service, key) as asking:
        return (await asking.post("/v1/chat/completions", json=chat(stream=False))).status_code


async def until(condition: Any) -> Any:
    """What ``condition`` answers, once that is true."""
    async with asyncio.timeout(LIMIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.05)
        return found


@pytest.mark.parametrize("workers", [1, 2])
def test_an_upgrade_serves_with_new_processes_and_breaks_no_stream(tmp_path: Path, workers: int) -> None:
    async def test() -> None:
        gate = Gate()
        async with FakeEngine(gate.answer) as engine:
            with serving(tmp_path, "gateway", document(tmp_path, engine), "--workers", str(workers)) as service:
                before = {one["pid"] for one in (await status(service))["workers"]} or {service.process.pid}
                streams = [asyncio.create_task(whole(service)) for _ in range(8)]
                async with asyncio.timeout(LIMIT_S):
                    while gate.started < 8:
                        await asyncio.sleep(0.01)
                service.process.send_signal(signal.SIGUSR2)

                async def followed() -> set[int] | None:
                    told = (await status(service))["workers"]
                    new = {one["pid"] for one in told if not one["draining"]}
                    return new if len(new) == workers and not new & before else None

                new = await until(followed)
                assert await ask(service) == 200
                assert not any(one.done() for one in streams), "those before the upgrade still run"
                gate.open.set()
                assert await asyncio.gather(*streams) == [STREAM] * 8
                await until(lambda: only(service, new))
                assert service.process.poll() is None, "the process that was started stays"
            for pid in new - {service.process.pid}:
                with pytest.raises(ProcessLookupError):
                    os.kill(pid, 0)

    run(test, 2 * LIMIT_S)


async def only(service: Service, pids: set[int]) -> bool:
    told = await status(service)
    return {one["pid"] for one in told["workers"]} == pids and told["in_flight"] == 0


def test_a_worker_that_dies_is_replaced_and_the_port_never_refuses(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeEngine(plain()) as engine:
            with serving(tmp_path, "gateway", document(tmp_path, engine), "--workers", "2") as service:
                first, second = (await status(service))["workers"]
                victim, other = first["pid"], second["pid"]
                os.kill(victim, signal.SIGKILL)
                answers = await asyncio.gather(*(ask(service) for _ in range(30)))
                assert answers == [200] * 30, "connections wait for the successor"

                async def replaced() -> bool:
                    pids = {one["pid"] for one in (await status(service))["workers"]}
                    return len(pids) == 2 and other in pids and victim not in pids

                await until(replaced)
                async with httpx.AsyncClient(base_url=service.admin_url) as admin:
                    text = (await admin.get("/metrics")).text
                assert 'roadworthy_gateway_worker_restarts_total{worker="supervisor"} 1.0' in text
                assert text.count("# TYPE roadworthy_gateway_requests_total counter") == 1
                code, err = service.interrupt()
            assert code == 0
            assert f"worker {first['id']} died (signal {signal.SIGKILL.value})" in err

    run(test, 2 * LIMIT_S)


def test_a_successor_has_the_secrets_of_the_others_though_the_keys_have_changed(tmp_path: Path) -> None:
    new_key = "sk-another-9876543210"

    async def test() -> None:
        async with FakeEngine(plain()) as engine:
            with serving(tmp_path, "gateway", document(tmp_path, engine), "--workers", "2") as service:
                assert await ask(service) == 200
                document(tmp_path, engine, tenants=f"[{{id: acme, key: {new_key}}}]")
                service.process.send_signal(signal.SIGHUP)
                await until(lambda: reloads(service, 1, 0))
                for worker in (await status(service))["workers"]:
                    os.kill(worker["pid"], signal.SIGKILL)
                assert await asyncio.gather(*(ask(service, new_key) for _ in range(8))) == [200] * 8
                assert len({str(one.json()["cache_salt"]) for one in engine.requests}) == 1

    run(test, 2 * LIMIT_S)


def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeEngine(plain()) as engine:
            with serving(tmp_path, "gateway", document(tmp_path, engine), "--workers", "2") as service:
                pids = [one["pid"] for one in (await status(service))["workers"]]
                service.process.kill()

                async def gone() -> bool:
                    return not any(map(alive, pids))

                await until(gone)

    run(test, 2 * LIMIT_S)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_document_is_taken_over_whole_or_refused_and_no_stream_notices(tmp_path: Path, workers: int) -> None:
    new_key = "sk-another-9876543210"
    both = f"[{{id: acme, key: {KEY}}}, {{id: zeta, key: {new_key}}}]"

    async def test() -> None:
        gate = Gate()
        async with FakeEngine(gate.answer) as engine, FakeEngine(plain()) as second:
            with serving(tmp_path, "gateway", document(tmp_path, engine), "--workers", str(workers)) as service:
                stream = asyncio.create_task(whole(service))
                async with asyncio.timeout(LIMIT_S):
                    while gate.started < 1:
                        await asyncio.sleep(0.01)
                assert await ask(service, new_key) == 401

                document(tmp_path, engine, second, tenants=both)
                service.process.send_signal(signal.SIGHUP)
                await until(lambda: reloads(service, 1, 0))
                assert [one["url"] for one in (await status(service))["endpoints"]] == [engine.url, second.url]
                assert [await ask(service, key) for key in (KEY, new_key)] == [200, 200]

                document(tmp_path, engine, tenants="[{id: acme, key: 3}, {id: acme}]")
                async with httpx.AsyncClient(base_url=service.admin_url, timeout=LIMIT_S) as admin:
                    refused = await admin.post("/api/reload")
                assert (refused.status_code, refused.json()["error"]["code"]) == (422, "document_refused")
                assert "tenants[1].id" in refused.json()["error"]["message"]
                assert await reloads(service, 1, 1)
                assert await ask(service, new_key) == 200, "the one before stays in force"

                document(tmp_path, second, tenants=f"[{{id: zeta, key: {new_key}}}]")
                service.process.send_signal(signal.SIGHUP)
                await until(lambda: reloads(service, 2, 1))
                assert [await ask(service, key) for key in (KEY, new_key)] == [401, 200]
                gate.open.set()
                assert await stream == STREAM, "its tenant and its engine are gone, the stream is not"
                code, err = service.interrupt()
            assert code == 0
            assert "read again and is in force" in err
            assert KEY not in err

    run(test, 2 * LIMIT_S)


def alive(pid: int) -> bool:
    """Whether the process runs; one that nobody waited for does not."""
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


async def reloads(service: Service, taken: int, refused: int) -> bool:
    told = (await status(service))["document"]
    return (told["reloads"], told["refused"]) == (taken, refused)


def test_what_is_fixed_at_the_start_is_refused_by_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeEngine(plain()) as engine:
            with serving(tmp_path, "gateway", document(tmp_path, engine)) as service:
                document(tmp_path, engine, gateway="host: 0.0.0.0")
                async with httpx.AsyncClient(base_url=service.admin_url, timeout=LIMIT_S) as admin:
                    refused = (await admin.post("/api/reload")).json()["error"]
                    told = (await admin.get("/api/status")).json()["document"]
                assert refused["message"].startswith("gateway.host")
                assert told["problem"] == refused["message"]
                assert await ask(service) == 200

    run(test)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_engine_is_drained_and_brought_back_by_the_admin_port(tmp_path: Path, workers: int) -> None:
    async def test() -> None:
        async with FakeEngine(plain()) as first, FakeEngine(plain()) as second:
            with serving(tmp_path, "gateway", document(tmp_path, first, second), "--workers", str(workers)) as service:
                async with httpx.AsyncClient(base_url=service.admin_url, timeout=LIMIT_S) as admin:
                    drained = await admin.post("/api/engines/drain", json={"url": first.url})
                    assert drained.json() == {"url": first.url, "draining": True}
                    await asyncio.gather(*(ask(service) for _ in range(12)))
                    assert (len(first.requests), len(second.requests)) == (0, 12)
                    await admin.post("/api/engines/undrain", json={"url": first.url})
                    await asyncio.gather(*(ask(service) for _ in range(12)))
                    assert first.requests
                    unknown = await admin.post("/api/engines/drain", json={"url": "http://10.0.0.1:1"})
                    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "engine_not_found")
                    for body in (b"", b"[]", b'{"url": 3}'):
                        assert (await admin.post("/api/engines/drain", content=body)).status_code == 400

    run(test)


def test_the_access_log_has_a_line_for_each_request_and_none_of_its_text(tmp_path: Path) -> None:
    log = tmp_path / "access.log"

    async def test() -> None:
        async with FakeEngine(plain()) as engine:
            spec = document(tmp_path, engine, gateway="access_log: access.log")
            with serving(tmp_path, "gateway", spec, "--workers", "2") as service:
                body = {**chat(stream=False), "messages": [{"role": "user", "content": "the secret question"}]}
                async with client(service) as asking:
                    answer = await asking.post("/v1/chat/completions", json=body)
                assert await ask(service, "sk-wrong") == 401
                code, _ = service.interrupt()
                assert code == 0
        text = log.read_text()
        assert "secret question" not in text
        assert KEY not in text
        lines = sorted(
            (httpx.Response(200, text=line).json() for line in text.splitlines()), key=lambda one: one["status"]
        )
        assert [(one["status"], one["tenant_id"], one["ending"]) for one in lines] == [
            (200, "acme", "ok"), (401, "-", "refused"),
        ]  # fmt: skip
        assert lines[0]["request_id"] == answer.headers["x-request-id"]
        assert (lines[0]["prompt_tokens"], lines[0]["output_tokens"], lines[0]["endpoint"]) == (3, 2, engine.url)
        assert {one["worker"] for one in lines} <= {"0", "1"}

    with contextlib.suppress(FileNotFoundError):
        log.unlink()
    run(test)
