"""Documents through the data port: its keys and errors hold, bodies stream, and one request is one tenant's."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from fakes.engine import STREAM_HEAD, FakeEngine, chat_events, chunk
from roadworthy.gateway.data.limits import Limits
from roadworthy.gateway.documents.place import socket_of
from roadworthy.spec.values import Tenant
from support.documents_service import ACME, BETA, call, left_on_disk, pid_of, served, upload
from support.gateway import chat, client_of, gateway_before, get, post, run, until
from support.longdoc import LAW, rightly, speaking

if TYPE_CHECKING:
    from pathlib import Path

CLAIM, QUOTE, QUESTION = "隐私权属于自然人。", "自然人享有隐私权", "隐私权归谁？"
PATIENT = Limits(linger_s=60)
"""Of a client that is still sending when it is answered, on a busy machine."""

FORGED = "x-roadworthy-tenant: beta"


def head(method: str, target: str, *more: str, key: str = "sk-acme") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: gateway", f"Authorization: Bearer {key}", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def test_a_tenant_stores_finds_asks_and_deletes_and_another_sees_nothing_of_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeEngine(speaking(rightly(CLAIM, QUOTE))) as engine, served(engine, tmp_path) as (gateway, _):
            mine = await upload(gateway, LAW.encode())
            assert (await call(gateway, "GET", "", key="sk-beta")).json()["documents"] == []
            for method, path, body in (
                ("GET", f"/{mine}", None), ("GET", f"/{mine}/content", None), ("DELETE", f"/{mine}", None),
                ("POST", "/search", {"query": "隐私权", "documents": [mine]}),
                ("POST", "/ask", {"question": QUESTION, "documents": [mine]}),
                ("POST", "/compare", {"document": mine, "playbook": {"checks": [{"id": "c"}]}}),
            ):  # fmt: skip
                response = await call(
                    gateway, method, path, body, key="sk-beta", headers=[FORGED.replace("beta", "acme")]
                )
                assert (response.status, response.code) == (404, "document_not_found"), path
            found = (await call(gateway, "POST", "/search", {"query": "第一条", "limit": 1})).json()
            (hit,) = found["results"]
            assert (hit["document"], hit["document_id"]) == ("law.md", mine)
            assert LAW[hit["start"] : hit["end"]] == hit["text"]
            answer = (await call(gateway, "POST", "/ask", {"question": QUESTION, "model": "m"})).json()
            (citation,) = answer["claims"][0]["citations"]
            assert answer["outcome"] == "answered"
            assert LAW[citation["start"] : citation["end"]] == citation["quote"] == QUOTE
            content = await call(gateway, "GET", f"/{mine}/content")
            assert content.body == LAW.encode()
            assert content.headers["content-disposition"].startswith("attachment")
            assert (await call(gateway, "DELETE", f"/{mine}")).json() == {"id": mine, "deleted": True}
            assert (await call(gateway, "GET", f"/{mine}")).status == 404
            assert left_on_disk(tmp_path, "隐私权", mine) == []

    run(test)


def test_the_data_ports_keys_and_errors_hold(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeEngine() as engine, served(engine, tmp_path, max_upload_bytes=1000) as (gateway, _):
            wrong = await call(gateway, "GET", "", key="sk-wrong")
            assert (wrong.status, wrong.code) == (401, "invalid_api_key")
            assert wrong.headers["www-authenticate"] == "Bearer"
            for method, path, body, more, status, code in (
                ("GET", "/nothing/here", None, (), 404, "not_found"),
                ("GET", "/", None, (), 404, "not_found"),
                ("DELETE", "", None, (), 405, "method_not_allowed"),
                ("GET", "/doc_1", None, (), 400, "invalid_parameter"),
                ("POST", "/search", {"query": ""}, (), 400, "invalid_fields"),
                ("POST", "/search", b"{", ("Content-Type: application/json",), 400, "invalid_json"),
                ("POST", "/search", b"{}", ("Content-Type: text/plain",), 415, "unsupported_media_type"),
                ("POST", "", b"x=1", ("Content-Type: multipart/form-data; boundary=x",), 415, "unsupported_media_type"),
                ("POST", "", b"", (), 400, "empty_document"),
                ("POST", "", b"x" * 1001, (), 413, "document_too_large"),
            ):  # fmt: skip
                response = await call(gateway, method, path, body, headers=more)
                assert (response.status, response.code) == (status, code), (method, path)
                assert response.headers["connection"] == "close"
            async with client_of(gateway) as client:  # told before a byte of it is sent
                response = await client.ask(
                    head("POST", "/v1/documents", "Expect: 100-continue", "Content-Length: 99999")
                )
                assert (response.status, response.code) == (413, "document_too_large")
            async with client_of(gateway) as client:
                refused = await client.ask(
                    head("POST", "/v1/documents", "Expect: 100-continue", "Content-Length: 9", key="sk-wrong")
                )
                assert refused.status == 401
            assert left_on_disk(tmp_path, "upload-") == []

    run(test)


@pytest.mark.parametrize("size", [1000, 200_000, 5_000_000])
def test_a_refusal_before_the_body_was_read_reaches_the_client(size: int, tmp_path: Path) -> None:
    """As `curl -F` sends it: what does not fit into the sockets' buffers is on its way when the answer is known."""

    async def test() -> None:
        async with FakeEngine() as engine, served(engine, tmp_path) as (gateway, _):
            form = await call(
                gateway, "POST", "", b"x" * size, headers=("Content-Type: multipart/form-data; boundary=x",)
            )
            assert (form.status, form.code) == (415, "unsupported_media_type")
            listed = await call(gateway, "GET", "", b"x" * size)
            assert listed.status == 200

    run(test)


def test_nothing_behind_a_body_passes_for_another_request(tmp_path: Path) -> None:
    """Bytes that look like a request of another tenant, sent behind a length, a last chunk, or no body at all."""
    smuggled = head("POST", "/v1/documents?name=smuggled", FORGED, "Content-Length: 5", key="x") + b"hello"

    async def test() -> None:
        async with FakeEngine() as engine, served(engine, tmp_path, limits=PATIENT) as (gateway, _):
            size = len(LAW.encode())
            for request in (
                head("POST", "/v1/documents?name=a", f"Content-Length: {size}", FORGED) + LAW.encode(),
                head("POST", "/v1/documents?name=b", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n0\r\n\r\n",
                head("GET", "/v1/documents"),
                head("GET", "/v1/documents/jobs", "Transfer-Encoding: chunked")
                + b"%x\r\n%b\r\n0\r\n\r\n" % (len(smuggled), smuggled),
            ):
                for step in (len(request + smuggled), 1):  # in one piece, and byte by byte
                    async with client_of(gateway) as client:
                        for at in range(0, len(request + smuggled), step):
                            client.send((request + smuggled)[at : at + step])
                            await asyncio.sleep(0)
                        assert (await client.response()).status in (200, 202)
                        assert await client.at_end()
            listed = [one["name"] for one in (await call(gateway, "GET", "")).json()["documents"]]
            assert sorted(listed) == ["a", "b"]
            assert (await call(gateway, "GET", "", key="sk-beta")).json()["documents"] == []

    run(test)


def test_documents_are_not_asked_for_behind_another_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeEngine() as engine, served(engine, tmp_path) as (gateway, _), client_of(gateway) as client:
            client.send(get("/v1/models", key="sk-acme") + head("GET", "/v1/documents"))
            assert (await client.response()).status == 200
            assert (await client.response()).code == "malformed_request"

    run(test)


def test_a_large_upload_goes_through_in_pieces_and_comes_back_as_it_was(tmp_path: Path) -> None:
    data = os.urandom(9_000_000)

    async def test() -> None:
        async with FakeEngine() as engine, served(engine, tmp_path) as (gateway, _):
            async with client_of(gateway) as client:
                client.send(head("POST", "/v1/documents?vectors=false", "Transfer-Encoding: chunked"))
                for at in range(0, len(data), 100_000):
                    part = data[at : at + 100_000]
                    client.send(b"%x\r\n%b\r\n" % (len(part), part))
                    await client.writer.drain()
                client.send(b"0\r\n\r\n")
                stored = await client.response()
            assert stored.status == 202
            document = stored.json()["document"]
            assert document["bytes"] == len(data)
            assert (await call(gateway, "GET", f"/{document['id']}/content")).body == data
            other = await call(gateway, "POST", "?vectors=false", b"x" + data)  # with its length, beyond any prompt's
            assert (other.status, other.json()["document"]["bytes"]) == (202, 1 + len(data))

    run(test)


def test_an_upload_that_stops_or_whose_client_leaves_stores_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(body_timeout_s=0.3, sweep_s=0.05)
        async with FakeEngine() as engine, served(engine, tmp_path, limits=limits) as (gateway, _):
            async with client_of(gateway) as slow:
                slow.send(head("POST", "/v1/documents", "Content-Length: 1000") + b"zanzibar")
                response = await slow.response()
                assert (response.status, response.code) == (408, "request_timeout")
            async with client_of(gateway) as gone:
                gone.send(head("POST", "/v1/documents", "Content-Length: 1000") + b"zanzibar")
                await until(lambda: gateway.status().in_flight == 1)
                gone.leave()
            await until(lambda: gateway.status().in_flight == 0)
            assert (await call(gateway, "GET", "")).json()["stored_bytes"] == 0
            await until(lambda: not left_on_disk(tmp_path, "zanzibar", "upload-"))

    run(test)


def test_what_a_tenants_quota_refuses_comes_back_as_the_data_port_says_it(tmp_path: Path) -> None:
    limited = Tenant(id="acme", key="sk-acme", requests_per_minute=1, models=("m",))

    async def test() -> None:
        async with (
            FakeEngine(speaking(lambda name, prompt: "")) as engine,
            served(engine, tmp_path, tenants=(limited, BETA)) as (gateway, _),
        ):
            await upload(gateway, LAW.encode())
            body = {"question": QUESTION, "model": "m"}
            for stream in (False, True):
                refused = await call(gateway, "POST", "/ask", body | {"stream": stream, "quick": not stream})
                if not stream:
                    assert refused.status == 200  # one request a minute, and this was it
                    continue
                assert (refused.status, refused.code) == (429, "rate_limited")
                assert int(refused.headers["retry-after"]) > 0
            other = await call(gateway, "POST", "/ask", body | {"model": "secret"})
            assert (other.status, other.code) == (403, "model_not_allowed")

    run(test)


def test_each_request_is_counted_once_by_how_it_ended(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            FakeEngine(speaking(rightly(CLAIM, QUOTE))) as engine,
            served(engine, tmp_path, tenants=(ACME,)) as (gateway, _),
        ):
            await upload(gateway, LAW.encode())
            for path, body in (
                ("/ask", {"question": QUOTE, "model": "m", "stream": True}),
                ("/search", {"query": "x"}),
            ):
                async with client_of(gateway) as client:  # leaves as soon as it has all of the answer
                    data = json.dumps(body).encode()
                    client.send(head("POST", f"/v1/documents{path}", f"Content-Length: {len(data)}") + data)
                    assert (await client.response()).status == 200
                    client.leave()
            async with client_of(gateway) as client:
                client.send(head("HEAD", "/v1/documents"))
                assert (await client.head())[0] == 200
                assert await client.at_end()
            await call(gateway, "GET", "/doc_" + "0" * 32)
            await until(lambda: gateway.status().in_flight == 0)
            told = [one for one in await gateway.requests_view() if one["operation"] == "documents"]
        assert {(one["ending"], one["status"]) for one in told} == {("ok", 200), ("ok", 202), ("ok", 404)}
        assert {one["tenant_id"] for one in told} == {"acme"}

    run(test)


def test_a_streamed_answer_tells_rounds_claims_and_at_last_the_whole(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeEngine(speaking(rightly(CLAIM, QUOTE))) as engine, served(engine, tmp_path) as (gateway, _):
            await upload(gateway, LAW.encode())
            response = await call(gateway, "POST", "/ask", {"question": QUESTION, "model": "m", "stream": True})
        assert response.headers["content-type"].startswith("text/event-stream")
        events = _events(response.body)
        assert [kind for kind, _ in events] == ["round", "round", "round", "claim", "round", "answer"]
        claim, answer = events[3][1], events[-1][1]
        assert (claim["text"], claim["verified"]) == (CLAIM, True)
        (citation,) = answer["claims"][0]["citations"]
        assert LAW[citation["start"] : citation["end"]] == QUOTE

    run(test)


def _events(body: bytes) -> list[tuple[str, Any]]:
    found = []
    for block in body.decode().strip().split("\n\n"):
        kind, data = block.split("\n")
        found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_a_client_that_leaves_takes_its_question_with_it(tmp_path: Path) -> None:
    async def test() -> None:
        heard, silent = asyncio.Event(), asyncio.Event()

        async def talks_on(asked: Any) -> None:
            heard.set()
            if silent.is_set():  # as in a queue, before the first token
                await asked.left.wait()
                return
            asked.transport.write(STREAM_HEAD)
            while not asked.left.is_set():
                await asked.send(chunk(chat_events("word ")[1]))
                await asyncio.sleep(0.01)

        async with FakeEngine(talks_on) as engine, served(engine, tmp_path) as (gateway, _):
            await upload(gateway, LAW.encode())
            for stream, before in ((False, False), (True, False), (False, True)):
                heard.clear()
                if before:
                    silent.set()
                async with client_of(gateway) as client:
                    body = json.dumps({"question": QUESTION, "model": "m", "stream": stream}).encode()
                    client.send(head("POST", "/v1/documents/ask", f"Content-Length: {len(body)}") + body)
                    await heard.wait()
                    client.leave()
                await until(engine.requests[-1].left.is_set)
                await until(lambda: gateway.status().in_flight == 0)

    run(test)


def test_killed_in_the_middle_of_reading_the_process_comes_back_and_reads_on(tmp_path: Path) -> None:
    text = "".join(f"# Part {n}\n\n{n}. Clause {n} has words of its own.\n\n" for n in range(1500))

    async def test() -> None:
        async with FakeEngine() as engine, served(engine, tmp_path) as (gateway, process):
            stored = (await call(gateway, "POST", "?name=long.md", text.encode())).json()
            job = stored["job"]["id"]
            async with asyncio.timeout(20):
                while (await call(gateway, "GET", f"/jobs/{job}")).json()["progress"]["done"] < 20:
                    await asyncio.sleep(0.02)
            first = pid_of(tmp_path)
            assert first == process.pid
            os.kill(first, signal.SIGKILL)
            assert (await call(gateway, "GET", "")).code == "documents_unavailable"
            ok = await _asked(gateway)
            assert ok  # the relay has not noticed
            async with asyncio.timeout(20):
                while (await call(gateway, "GET", f"/jobs/{job}")).status != 200:
                    await asyncio.sleep(0.05)
            told = (await call(gateway, "GET", f"/jobs/{job}")).json()
            assert told["status"] in ("queued", "running")
            assert pid_of(tmp_path) != first
            cancelled = await call(gateway, "POST", f"/jobs/{job}/cancel")
            assert cancelled.json()["status"] == "cancelled"

    run(test, limit_s=60)


async def _asked(gateway: Any) -> bool:
    async with client_of(gateway) as client:
        return (await client.ask(post(chat(), key="sk-acme"))).status == 200


def test_without_a_home_there_are_no_documents(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeEngine() as engine, gateway_before(engine, tenants=(ACME,)) as gateway:
            response = await call(gateway, "GET", "")
            assert (response.status, response.code) == (404, "not_found")

    run(test)


def test_the_socket_is_this_users_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeEngine() as engine, served(engine, tmp_path):
            place = socket_of(tmp_path)
            assert place.parent.stat().st_mode & 0o077 == 0
            assert place.stat().st_mode & 0o077 == 0
        assert not place.exists()

    run(test)
