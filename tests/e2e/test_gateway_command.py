"""`roadworthy gateway` as an operator runs it, in front of an engine that somebody else runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import IO

import httpx
import pytest

from fakes.engine import STREAM_HEAD, FakeEngine, chat_events, chunk, hang, plain
from support.gateway import chat, run
from support.service import roadworthy, serving

pytestmark = pytest.mark.e2e

KEY = "sk-acme-0123456789"


def document(folder: Path, *engines: str, gateway: str = "", tenants: str | None = None) -> str:
    """A document for a gateway before ``engines``."""
    lines = [
        "schema_version: 1",
        "model: {config: tiny}",
        "engine:",
        f"  endpoints: [{', '.join(f'{{url: {url!r}}}' for url in engines)}]",
        f"tenants: {tenants if tenants is not None else f'[{{id: acme, key: {KEY}}}]'}",
    ]
    if gateway:
        lines.append(f"gateway: {{{gateway}}}")
    path = folder / "gateway.yaml"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def failed(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code and standard error of a command that should end by itself."""
    done = subprocess.run(
        roadworthy(*arguments),
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **(env or {})},
        check=False,
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def ask(url: str) -> int:
    return httpx.post(
        f"{url}/v1/chat/completions", json=chat(stream=False), headers={"Authorization": f"Bearer {KEY}"}, timeout=10
    ).status_code


def test_it_serves_before_its_engine_appears_and_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    async def test() -> None:
        engine = FakeEngine(plain())
        await engine.start()
        await engine.stop()
        with serving(tmp_path, "gateway", document(tmp_path, engine.url), "--port", "0") as service:
            assert service.ready["engines"] == [{"url": engine.url, "pid": None}]
            assert service.ready["tenants"] == [{"id": "acme", "key": KEY}]
            assert (tmp_path / "ready.json").stat().st_mode & 0o077 == 0, "it holds keys"
            assert (await asyncio.to_thread(httpx.get, f"{service.admin_url}/readyz")).status_code == 503
            assert await asyncio.to_thread(ask, service.data_url) == 503
            async with engine:
                async with asyncio.timeout(10):
                    while await asyncio.to_thread(ask, service.data_url) != 200:
                        await asyncio.sleep(0.05)
                service.process.send_signal(signal.SIGTERM)
                _, err = await asyncio.to_thread(service.process.communicate, None, 30)
                assert service.process.returncode == 0
                assert f"warning: engine {engine.url} does not answer yet" in err
                assert "Traceback" not in err
                assert KEY not in err
            assert not (tmp_path / "ready.json").exists()

    run(test)


def test_a_taken_port_is_exit_3_and_names_the_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ready = tmp_path / "ready.json"
        for option in ("--port", "--admin-port"):
            code, err = failed(
                "gateway", document(tmp_path, "http://127.0.0.1:1"), option, str(port), "--ready-file", str(ready)
            )
            assert code == 3
            assert f"port {port} on 127.0.0.1 cannot be used" in err
            assert "hint: " in err
            assert not ready.exists()


@pytest.mark.parametrize(
    ("engines", "gateway", "tenants", "message"),
    [
        ((), "", None, "engine.endpoints"),
        (
            ("http://127.0.0.1:1",),
            "workers: 3",
            f"[{{id: acme, key: {KEY}, concurrency: 2}}]",
            "at least 3, one for each worker",
        ),
        (
            ("http://127.0.0.1:1",),
            "",
            "[{id: acme, key_env: ROADWORTHY_NO_SUCH_KEY}]",
            "export ROADWORTHY_NO_SUCH_KEY=...",
        ),
        (
            ("http://127.0.0.1:1",),
            "",
            "[{id: a, key: same-key-0123456789}, {id: b, key: same-key-0123456789}]",
            "a key of its own",
        ),
        (("https://127.0.0.1:1",), "", None, "http://host:port"),
    ],
    ids=["no engines", "a limit below the workers", "variable not set", "one key for two", "engine over TLS"],
)
def test_wrong_input_is_exit_2_and_says_what_to_change(
    tmp_path: Path, engines: tuple[str, ...], gateway: str, tenants: str | None, message: str
) -> None:
    code, err = failed("gateway", document(tmp_path, *engines, gateway=gateway, tenants=tenants))
    assert code == 2
    assert message in err
    assert "hint: " in err
    assert "same-key" not in err


def test_a_key_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROADWORTHY_TEST_KEY", KEY)
    spec = document(tmp_path, "http://127.0.0.1:1", tenants="[{id: acme, key_env: ROADWORTHY_TEST_KEY}]")
    with serving(tmp_path, "gateway", spec) as service:
        assert service.key == KEY
        assert ask(service.data_url) == 503, "the key is known, the engine is not there"
        code, _ = service.interrupt()
    assert code == 0


def test_a_second_interrupt_does_not_wait_for_requests_in_progress(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeEngine(hang(STREAM_HEAD, chunk(chat_events("x")[0]))) as engine:
            spec = document(tmp_path, engine.url)
            with serving(tmp_path, "gateway", spec, "--drain", "600") as service:
                async with (
                    httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, timeout=30) as client,
                    client.stream("POST", f"{service.data_url}/v1/chat/completions", json=chat()) as stream,
                ):
                    lines = stream.aiter_lines()
                    assert (await anext(lines)).startswith("data: ")
                    service.process.send_signal(signal.SIGINT)
                    assert "stopping" in await asyncio.to_thread(_line_with, service.process.stderr, "stopping")
                    service.process.send_signal(signal.SIGINT)
                    rest = [line async for line in lines if line]
                    assert "shutting_down" in rest[0]
                    assert len(rest) == 1, "one error event and no [DONE]"
                await asyncio.to_thread(service.process.wait, 30)
                assert service.process.returncode == 0

    run(test)


def _line_with(stream: IO[str] | None, word: str) -> str:
    assert stream is not None
    return next(line for line in stream if word in line)


def test_without_tenants_it_warns_and_writes_none(tmp_path: Path) -> None:
    with serving(tmp_path, "gateway", document(tmp_path, "http://127.0.0.1:1", tenants="[]")) as service:
        assert json.loads((tmp_path / "ready.json").read_text())["tenants"] == []
        _, err = service.interrupt()
    assert "names no tenant" in err
