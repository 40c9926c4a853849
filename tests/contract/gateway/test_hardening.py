"""Requests that are malformed, too large, too slow or not allowed: one answer each, and nothing reaches an engine."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.engine import FakeEngine, hang, plain
from roadworthy.gateway.data.limits import Limits
from roadworthy.spec.values import Tenant
from support.gateway import KEY, TENANT, chat, client_of, gateway_before, get, post, run, until

QUICK = Limits(sweep_s=0.01)
AUTH = f"Authorization: Bearer {KEY}\r\n".encode()
START = b"POST /v1/chat/completions HTTP/1.1\r\n"
BODY = json.dumps(chat(stream=False)).encode()
LENGTH = b"Content-Length: %d\r\n" % len(BODY)


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        pytest.param(
            START + b"Host: g\r\n" + AUTH + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "malformed_request",
            id="both lengths",
        ),
        pytest.param(
            START + b"Host: g\r\n" + AUTH + b"Transfer-Encoding: chunked\r\n" + LENGTH + b"\r\n0\r\n\r\n",
            400,
            "malformed_request",
            id="both lengths, the other way round",
        ),
        pytest.param(
            START + b"Host: g\r\n" + AUTH + LENGTH * 2 + b"\r\n" + BODY, 400, "malformed_request", id="two lengths"
        ),
        pytest.param(
            START + b"Host: g\r\n" + AUTH + b"Content-Length: +3\r\n\r\nabc",
            400,
            "malformed_request",
            id="signed length",
        ),
        pytest.param(
            START + b"Host: g\r\n" + AUTH + b"Content-Length: 3, 3\r\n\r\nabc",
            400,
            "malformed_request",
            id="length list",
        ),
        pytest.param(b"GET /v1/models HTTP/1.1\nHost: g\n\n", 400, "malformed_request", id="bare line feeds"),
        pytest.param(
            b"GET /v1/models HTTP/1.1\r\nHost: g\nX: y\r\n\r\n", 400, "malformed_request", id="one bare line feed"
        ),
        pytest.param(
            b"GET /v1/models HTTP/1.1\r\nHost: g\r\n folded\r\n\r\n", 400, "malformed_request", id="folded header"
        ),
        pytest.param(
            b"GET /v1/models HTTP/1.1\r\nHost : g\r\n\r\n", 400, "malformed_request", id="space before the colon"
        ),
        pytest.param(b"GET /v1/models HTTP/1.1\r\nHost: g\r\nX: a\x00b\r\n\r\n", 400, "malformed_request", id="NUL"),
        pytest.param(b"GET /v1/models HTTP/1.1\r\n" + AUTH + b"\r\n", 400, "malformed_request", id="no Host"),
        pytest.param(
            b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n" + AUTH + b"\r\n",
            400,
            "malformed_request",
            id="two Hosts",
        ),
        pytest.param(
            b"GET /v1/models HTTP/1.1\r\nHost: a\r\n" + AUTH * 2 + b"\r\n", 400, "malformed_request", id="two keys"
        ),
        pytest.param(
            START + b"Host: g\r\n" + AUTH + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            501,
            "malformed_request",
            id="another transfer encoding",
        ),
        pytest.param(
            START + b"Host: g\r\n" + AUTH + b"Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
            400,
            "malformed_request",
            id="bare line feed after a chunk size",
        ),
        pytest.param(
            START + b"Host: g\r\n" + AUTH + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n0\r\n\r\n",
            400,
            "malformed_request",
            id="chunk longer than it says",
        ),
        pytest.param(
            b"GET /v1/models HTTP/1.1\r\nHost: g\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
            400,
            "upgrade_not_offered",
            id="upgrade",
        ),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed_request", id="HTTP/2 preface"),
        pytest.param(b"GET /v1/models HTTP/2.0\r\nHost: g\r\n\r\n", 505, "http_version", id="HTTP/2 in words"),
        pytest.param(b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 400, "upgrade_not_offered", id="CONNECT"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", 400, "malformed_request", id="TLS hello"),
        pytest.param(
            b"GET /v1/models HTTP/1.1\r\nHost: g\r\nX: " + b"y" * 33_000 + b"\r\n\r\n",
            431,
            "head_too_large",
            id="long header",
        ),
        pytest.param(
            b"GET /v1/models?" + b"y" * 33_000 + b" HTTP/1.1\r\nHost: g\r\n\r\n", 431, "head_too_large", id="long path"
        ),
        pytest.param(
            b"GET /v1/models HTTP/1.1\r\nHost: g\r\n" + b"X: y\r\n" * 100 + b"\r\n",
            431,
            "head_too_large",
            id="many headers",
        ),
        pytest.param(
            b"GET /v1/models HTTP/1.1\r\nHost: g\r\nX: " + b"y" * 40_000, 431, "head_too_large", id="endless header"
        ),
        pytest.param(
            START + b"Host: g\r\n" + AUTH + b"Content-Length: 8388609\r\n\r\n{",
            413,
            "body_too_large",
            id="large length",
        ),
        pytest.param(
            START + b"Host: g\r\n" + AUTH + LENGTH + b"Content-Encoding: gzip\r\n\r\n" + BODY,
            415,
            "content_encoding",
            id="compressed body",
        ),
        pytest.param(
            START + b"Host: g\r\n" + AUTH + LENGTH + b"Expect: a-miracle\r\n\r\n" + BODY,
            417,
            "expectation",
            id="expectation",
        ),
    ],
)
def test_unsafe_framing_is_refused_and_the_connection_closed(request_bytes: bytes, status: int, code: str) -> None:
    async def test() -> None:
        async with FakeEngine(plain()) as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            # a second request behind it must not be answered: it is where smuggled ones hide
            answer = await client.ask(request_bytes + get("/v1/models"))
            assert (answer.status, answer.code) == (status, code)
            assert answer.headers["connection"] == "close"
            assert await client.at_end()
            assert not engine.requests

    run(test)


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        pytest.param(get("/v1/models", key=None), 401, "invalid_api_key", id="no key"),
        pytest.param(get("/v1/models", key="sk-wrong"), 401, "invalid_api_key", id="wrong key"),
        pytest.param(get("/v1/models", key=""), 401, "invalid_api_key", id="empty key"),
        pytest.param(post(chat(), key="sk-wrong"), 401, "invalid_api_key", id="wrong key with a body"),
        pytest.param(
            get("/v1/models", key=None, headers=["Authorization: Basic eA=="]), 401, "invalid_api_key", id="basic"
        ),
        pytest.param(get("/"), 404, "not_found", id="root"),
        pytest.param(get("/metrics"), 404, "not_found", id="the engine's metrics"),
        pytest.param(post(b"{}", path="/abort_requests"), 404, "not_found", id="the engine's own routes"),
        pytest.param(post(b"{}", path="/v1/chat/completions/"), 404, "not_found", id="slash at the end"),
        pytest.param(post(b"{}", path="/v1/../v1/completions"), 404, "not_found", id="dots"),
        pytest.param(post(b"{}", path="http://other/v1/completions"), 404, "not_found", id="absolute form"),
        pytest.param(get("/v1/chat/completions"), 405, "method_not_allowed", id="GET of a POST"),
        pytest.param(post(b"{}", path="/v1/models"), 405, "method_not_allowed", id="POST of a GET"),
        pytest.param(post(b""), 400, "invalid_json", id="no body"),
        pytest.param(post(b"{"), 400, "invalid_json", id="half a body"),
        pytest.param(post(b"[]"), 400, "invalid_json", id="a list"),
        pytest.param(post("{}".encode("utf-16")), 400, "invalid_json", id="UTF-16"),
        pytest.param(post(b"\xff{}"), 400, "invalid_json", id="no UTF-8"),
        pytest.param(post(b"[" * 100_000), 400, "invalid_json", id="deep"),
        pytest.param(post(b'{"model": "m", "n": ' + b"9" * 5000 + b"}"), 400, "invalid_value", id="endless number"),
        pytest.param(post(b"{}"), 400, "invalid_model", id="no model"),
        pytest.param(post({"model": 3}), 400, "invalid_model", id="model of another type"),
        pytest.param(post({"model": "m", "stream": "yes"}), 400, "invalid_value", id="stream of another type"),
        pytest.param(post({"model": "m", "max_tokens": -1}), 400, "invalid_value", id="negative tokens"),
        pytest.param(post({"model": "m", "n": 1000}), 400, "invalid_value", id="too many choices"),
        pytest.param(post(b'{"model": "m", "priority": 1, "x": "\\ud800"}'), 400, "invalid_json", id="lone surrogate"),
    ],
)
def test_a_refused_request_leaves_the_connection_usable(request_bytes: bytes, status: int, code: str) -> None:
    async def test() -> None:
        async with FakeEngine(plain()) as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            answer = await client.ask(request_bytes)
            assert (answer.status, answer.code) == (status, code)
            assert answer.headers["x-roadworthy-decision"] == code
            assert ("www-authenticate" in answer.headers) == (status == 401)
            assert ("allow" in answer.headers) == (status == 405)
            assert not engine.requests
            assert (await client.ask(post(chat(stream=False)))).status == 200

    run(test)


def test_a_bad_field_is_named() -> None:
    async def test() -> None:
        async with FakeEngine() as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            answer = await client.ask(post({"model": "m", "max_tokens": "many"}))
            assert answer.json()["error"]["param"] == "max_tokens"

    run(test)


def test_a_model_name_cannot_write_headers() -> None:
    name = "m\r\nx-injected: 1\r\n\r\nbody"

    async def test() -> None:
        async with (
            FakeEngine(plain(), models=()) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            answer = await client.ask(post(chat(stream=False, model=name)))
            assert answer.status == 200
            assert "x-injected" not in answer.headers

    run(test)


def test_head_answers_405_without_a_body() -> None:
    async def test() -> None:
        async with FakeEngine() as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            client.send(get("/v1/models").replace(b"GET", b"HEAD") + get("/v1/models"))
            assert (await client.head())[0] == 405
            assert (await client.response()).status == 200

    run(test)


def test_a_body_that_grows_beyond_the_limit_is_stopped() -> None:
    async def test() -> None:
        limits = replace(QUICK, body_bytes=1000)
        async with (
            FakeEngine() as engine,
            gateway_before(engine, limits=limits) as gateway,
            client_of(gateway) as client,
        ):
            head = START + b"Host: g\r\n" + AUTH + b"Transfer-Encoding: chunked\r\n\r\n"
            answer = await client.ask(head + b"1f4\r\n" + b"x" * 500 + b"\r\n1f5\r\n" + b"x" * 501 + b"\r\n")
            assert (answer.status, answer.code) == (413, "body_too_large")
            assert await client.at_end()

    run(test)


def test_a_refused_upload_gets_its_answer_although_it_reads_only_when_all_is_sent() -> None:
    """Closing with unread bytes would reset the connection, and the reset would swallow the answer."""
    upload = START + b"Host: g\r\n" + AUTH + b"Content-Length: 20000000\r\n\r\n" + b"x" * 20_000_000

    def send_all_then_read(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(upload)
            return client.recv(4096)

    async def test() -> None:
        async with FakeEngine() as engine, gateway_before(engine) as gateway:
            port = int(gateway.data_url.rsplit(":", 1)[1])
            assert (await asyncio.to_thread(send_all_then_read, port)).startswith(b"HTTP/1.1 413 ")

    run(test)


def test_a_wrong_key_is_told_before_the_body_is_sent() -> None:
    async def test() -> None:
        async with FakeEngine() as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            head, _, _ = post(chat(), key="sk-wrong", headers=["Expect: 100-continue"]).partition(b"\r\n\r\n")
            answer = await client.ask(head + b"\r\n\r\n")
            assert answer.code == "invalid_api_key"
            assert await client.at_end()

    run(test)


@pytest.mark.parametrize(
    "sent",
    [b"POST /v1/chat", START + b"Host: g\r\nX: y", START + b"Host: g\r\n" + AUTH + LENGTH + b"\r\n{"],
    ids=["request line", "headers", "body"],
)
def test_half_a_request_is_not_waited_for_for_ever(sent: bytes) -> None:
    async def test() -> None:
        limits = replace(QUICK, head_timeout_s=0.05, body_timeout_s=0.05)
        async with (
            FakeEngine() as engine,
            gateway_before(engine, limits=limits) as gateway,
            client_of(gateway) as client,
        ):
            answer = await client.ask(sent)
            assert (answer.status, answer.code) == (408, "request_timeout")
            assert await client.at_end()

    run(test)


def test_a_head_that_trickles_in_is_timed_from_its_first_byte() -> None:
    async def test() -> None:
        limits = replace(QUICK, head_timeout_s=0.1)
        async with (
            FakeEngine() as engine,
            gateway_before(engine, limits=limits) as gateway,
            client_of(gateway) as client,
        ):
            client.send(b"GET /v1/models HTTP/1.1\r\n")
            clients = gateway.status().client_connections

            def trickle() -> bool:
                client.send(b"X: y\r\n")
                return gateway.status().requests > 0

            await until(trickle)
            assert clients <= 1
            assert (await client.response()).code == "request_timeout"

    run(test)


def test_an_idle_connection_is_closed_without_a_word() -> None:
    async def test() -> None:
        limits = replace(QUICK, keep_alive_s=0.05)
        async with (
            FakeEngine(plain()) as engine,
            gateway_before(engine, limits=limits) as gateway,
            client_of(gateway) as fresh,
            client_of(gateway) as used,
        ):
            assert (await used.ask(post(chat(stream=False)))).status == 200
            assert await fresh.at_end()
            assert await used.at_end()

    run(test)


def test_pipelining_has_a_bound() -> None:
    async def test() -> None:
        limits = Limits(pipelined_requests=4)
        async with (
            FakeEngine() as engine,
            gateway_before(engine, limits=limits) as gateway,
            client_of(gateway) as client,
        ):
            client.send(get("/v1/models") * 20)
            answers = [await client.response() for _ in range(6)]
            assert [one.status for one in answers] == [200] * 5 + [400]
            assert await client.at_end()

    run(test)


# tenants


def test_a_tenant_may_use_only_its_models() -> None:
    async def test() -> None:
        tenants = (Tenant(id="one", key=KEY, models=("other",)),)
        async with (
            FakeEngine() as engine,
            gateway_before(engine, tenants=tenants) as gateway,
            client_of(gateway) as client,
        ):
            answer = await client.ask(post(chat()))
            assert (answer.status, answer.code) == (403, "model_not_allowed")
            assert not engine.requests

    run(test)


def test_requests_at_once_are_capped_and_freed_when_the_client_leaves() -> None:
    async def test() -> None:
        tenants = (replace(TENANT, concurrency=1), Tenant(id="other", key="sk-other"))
        async with (
            FakeEngine(hang()) as engine,
            gateway_before(engine, tenants=tenants) as gateway,
            client_of(gateway) as first,
            client_of(gateway) as second,
            client_of(gateway) as other,
        ):
            first.send(post(chat()))
            await until(lambda: len(engine.requests) == 1)
            answer = await second.ask(post(chat()))
            assert (answer.status, answer.code) == (429, "concurrency_limited")
            assert answer.headers["retry-after"] == "1"
            other.send(post(chat(), key="sk-other"))
            await until(lambda: len(engine.requests) == 2)
            first.leave()
            await until(lambda: gateway.status().tenants[0].in_flight == 0)
            engine.answer = plain()
            assert (await second.ask(post(chat()))).status == 200

    run(test)


def test_requests_a_minute_are_limited_and_told_when_to_come_back() -> None:
    async def test() -> None:
        tenants = (replace(TENANT, requests_per_minute=3),)
        async with (
            FakeEngine(plain()) as engine,
            gateway_before(engine, tenants=tenants) as gateway,
            client_of(gateway) as client,
        ):
            statuses = [(await client.ask(post(chat()))).status for _ in range(3)]
            assert statuses == [200] * 3
            answer = await client.ask(post(chat()))
            assert (answer.status, answer.code) == (429, "rate_limited")
            assert 15 <= int(answer.headers["retry-after"]) <= 20

    run(test)


def test_without_tenants_anyone_may_ask() -> None:
    async def test() -> None:
        async with FakeEngine(plain()) as engine, gateway_before(engine, tenants=()) as gateway:
            assert gateway.open_access
            async with client_of(gateway) as client:
                assert (await client.ask(post(chat(), key=None))).status == 200
                assert (await client.ask(post(chat(), key="whatever"))).status == 200
                assert gateway.status().tenants[0].id == "anonymous"

    run(test)


# fuzz


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_mutated_requests_never_break_the_gateway(data: st.DataObject) -> None:
    """Whatever comes, the connection ends or is answered, and the next client is served."""
    good = post(chat(stream=False)) + get("/v1/models")
    mutants = []
    for _ in range(20):
        mutant = bytearray(good)
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(mutant) - 1))
            kind = data.draw(st.sampled_from(["flip", "drop", "insert", "repeat"]))
            if kind == "flip":
                mutant[at] = data.draw(st.integers(0, 255))
            elif kind == "drop":
                del mutant[at : at + data.draw(st.integers(1, 8))]
            elif kind == "insert":
                mutant[at:at] = data.draw(
                    st.sampled_from([b"\r\n", b"\n", b"\0", b" ", b":", b"0\r\n\r\n", b"chunked"])
                )
            else:
                mutant[at:at] = mutant[at : at + 20]
        mutants.append(bytes(mutant))

    async def test() -> None:
        async with FakeEngine(plain()) as engine, gateway_before(engine) as gateway:
            for mutant in mutants:
                async with client_of(gateway) as client:
                    client.send(mutant)
                    client.writer.write_eof()
                    received = await client.reader.read()
                    assert received == b"" or received.startswith(b"HTTP/1.1 ")
            async with client_of(gateway) as client:
                assert (await client.ask(post(chat(stream=False)))).status == 200

    run(test)
