"""Tenants and keys changed by command while several workers serve: in force in each of them, through a reload, an
upgrade, a worker's death and a restart."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from support.service import Service, roadworthy, serving
from support.threaded_engine import threaded_engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ADMIN_KEY = "admin-key-of-this-test-0123456789"
LIMIT_S = 60
EACH_WORKER = 12
"""Requests over connections of their own, so that each of two workers gets some."""


@pytest.fixture(autouse=True)
def keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROADWORTHY_ADMIN_KEY", ADMIN_KEY)


def command(service: Service, *arguments: str) -> str:
    done = subprocess.run(
        [*roadworthy(*arguments), "--admin", service.admin_url], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def answers(service: Service, key: str) -> set[int]:
    """The statuses that ``key`` gets from all workers."""
    body = json.dumps({"model": "m", "stream": True, "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]})
    return {_asked(service.data_url, "POST", "/v1/chat/completions", key, body)[0] for _ in range(EACH_WORKER)}


def status(service: Service) -> Any:
    return json.loads(_asked(service.admin_url, "GET", "/api/status", ADMIN_KEY)[1])


def _asked(url: str, method: str, path: str, key: str, body: str | None = None) -> tuple[int, bytes]:
    """Status and body, over a connection of its own."""
    with contextlib.closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=LIMIT_S)) as asking:
        asking.request(method, path, body, {"Authorization": f"Bearer {key}"})
        answer = asking.getresponse()
        return answer.status, answer.read()


def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def pids(service: Service) -> set[int]:
    return {one["pid"] for one in status(service)["workers"] if not one["draining"]}


def test_what_is_changed_is_in_force_in_every_worker_whatever_becomes_of_them(tmp_path: Path) -> None:
    with threaded_engine() as engine:
        document = tmp_path / "gateway.yaml"
        document.write_text(
            f"model: {{config: tiny}}\nengine: {{endpoints: [{{url: '{engine.url}'}}]}}\n"
            "tenants: [{id: acme, key: sk-acme}, {id: beta, key: sk-beta}]\n"
            "gateway: {workers: 2, state_url: 'sqlite:///state.db'}\n"
        )
        with serving(tmp_path, "gateway", str(document)) as service:
            key = command(service, "tenants", "add", "new", "--with-key").strip()
            command(service, "tenants", "remove", "beta", "--yes")
            assert answers(service, key) == {200}
            assert answers(service, "sk-beta") == {401}

            reloads = status(service)["document"]["reloads"]
            service.process.send_signal(signal.SIGHUP)
            eventually(lambda: status(service)["document"]["reloads"] > reloads)
            assert (answers(service, key), answers(service, "sk-beta")) == ({200}, {401})

            before = pids(service)
            service.process.send_signal(signal.SIGUSR2)
            eventually(lambda: len(pids(service)) == 2 and not pids(service) & before)
            assert (answers(service, key), answers(service, "sk-beta")) == ({200}, {401})

            killed = min(pids(service))
            os.kill(killed, signal.SIGKILL)
            eventually(lambda: len(pids(service) - {killed}) == 2)
            assert (answers(service, key), answers(service, "sk-beta")) == ({200}, {401})

            (issued,) = json.loads(command(service, "keys", "list", "--json"))["keys"]
            command(service, "keys", "revoke", issued["id"])
            assert answers(service, key) == {401}
            service.interrupt()
        with serving(tmp_path, "gateway", str(document)) as service:
            assert (answers(service, key), answers(service, "sk-beta"), answers(service, "sk-acme")) == (
                {401}, {401}, {200},
            )  # fmt: skip
            trail = json.loads(command(service, "tenants", "audit", "--json"))["rows"]
            assert [one["action"] for one in trail] == ["key.revoke", "tenant.remove", "key.create", "tenant.add"]
            service.interrupt()
