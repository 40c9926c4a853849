"""The load client against a real socket: streams, reuse, and everything a service can do to it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from fakes.engine import (
    END,
    STREAM_HEAD,
    Answer,
    FakeEngine,
    chat_events,
    chunk,
    error_event,
    hang,
    in_turn,
    plain,
    stream_of,
    wire,
)
from roadworthy.adapters.load_client import LoadClient, Origin
from roadworthy.adapters.ports import free_ports
from roadworthy.bench.client import GenerateRequest, Message, Outcome
from roadworthy.core.errors import SpecError

ASK = GenerateRequest(messages=(Message("user", "hello"),), output_tokens=2, key="sk-1", session="s1")
GOOD = stream_of(chat_events("a", "b", usage=(5, 2)))


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(main)


def client_of(engine: FakeEngine, *, timeout_s: float = 5.0) -> LoadClient:
    return LoadClient(Origin.of_url(engine.url), model="m", timeout_s=timeout_s)


async def outcomes_of(answer: Answer, *, count: int = 1, timeout_s: float = 5.0) -> tuple[list[Outcome], FakeEngine]:
    """``count`` requests, one after another, against an engine that answers so."""
    async with (
        FakeEngine(answer) as engine,
        client_of(engine, timeout_s=timeout_s) as client,
    ):
        return [await client.generate(ASK) for _ in range(count)], engine


def outcome_of(answer: Answer, *, timeout_s: float = 5.0) -> Outcome:
    (outcome,), _ = run(outcomes_of(answer, timeout_s=timeout_s))
    return outcome


def test_a_stream_is_read_to_its_end() -> None:
    (outcome,), engine = run(outcomes_of(GOOD))
    assert outcome.error == ""
    assert (outcome.text, outcome.n_in, outcome.n_out, len(outcome.token_times_s)) == ("ab", 5, 2, 2)
    assert outcome.token_times_s[-1] <= outcome.t_end_s
    (asked,) = engine.requests
    assert asked.path == "/v1/chat/completions"
    assert asked.header("authorization") == "Bearer sk-1"
    assert asked.header("x-session-id") == "s1"
    body = asked.json()
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert (body["model"], body["max_tokens"], body["ignore_eos"], body["stream"]) == ("m", 2, True, True)
    assert body["stream_options"] == {"include_usage": True}


def test_a_connection_is_used_again() -> None:
    outcomes, engine = run(outcomes_of(GOOD, count=5))
    assert [outcome.error for outcome in outcomes] == [""] * 5
    assert engine.connections == 1


def test_many_streams_at_once_each_get_their_own_answer() -> None:
    async def main() -> list[Outcome]:
        async def answer(asked: Any) -> None:
            await stream_of(chat_events(str(asked.json()["max_tokens"]), usage=(1, 1)))(asked)

        async with FakeEngine(answer) as engine, client_of(engine) as client:
            asks = [GenerateRequest(messages=ASK.messages, output_tokens=index) for index in range(1, 101)]
            return list(await asyncio.gather(*map(client.generate, asks)))

    assert [outcome.text for outcome in run(main())] == [str(index) for index in range(1, 101)]


def test_a_kept_connection_that_the_server_closed_meanwhile_is_replaced_unseen() -> None:
    async def main() -> tuple[list[str], int]:
        async with FakeEngine(GOOD) as engine, client_of(engine) as client:
            first = await client.generate(ASK)
            engine.close_idle()
            second = await client.generate(ASK)
            return [first.error, second.error], engine.connections

    assert run(main()) == (["", ""], 2)


def test_an_engine_that_dies_while_it_holds_a_request_fails_it_once_the_connection_is_fresh() -> None:
    assert outcome_of(wire(cut=True)).error == "the server closed the connection"


def test_frames_split_at_every_byte_are_one_answer() -> None:
    body = b"".join(chunk(event) for event in chat_events("a", "b", usage=(5, 2))) + END
    outcome = outcome_of(wire(*(bytes([byte]) for byte in STREAM_HEAD + body)))
    assert (outcome.error, outcome.text, len(outcome.token_times_s)) == ("", "ab", 2)


def test_a_body_that_ends_with_the_connection_is_an_answer() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    outcome = outcome_of(wire(head, *chat_events("a", usage=(1, 1)), cut=True))
    assert (outcome.error, outcome.text) == ("", "a")


def test_a_body_with_a_length_is_an_answer() -> None:
    body = b"".join(chat_events("a", usage=(1, 1)))
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body)
    assert outcome_of(wire(head + body)).error == ""


def test_an_interim_answer_is_not_the_answer() -> None:
    body = b"".join(chunk(event) for event in chat_events("a", usage=(1, 1))) + END
    assert outcome_of(wire(b"HTTP/1.1 100 Continue\r\n\r\n" + STREAM_HEAD + body)).error == ""


def test_a_stream_that_is_cut_keeps_what_came_and_fails() -> None:
    events = chat_events("a", "b", usage=(5, 2))
    outcome = outcome_of(wire(STREAM_HEAD, *(chunk(event) for event in events[:2]), cut=True))
    assert outcome.error == "the server closed the connection"
    assert len(outcome.token_times_s) == 1


def test_an_error_event_in_a_stream_is_a_failure_and_the_connection_lives_on() -> None:
    refused = stream_of([error_event(503), b"data: [DONE]\n\n"])
    outcomes, engine = run(outcomes_of(in_turn(refused, GOOD), count=2))
    assert outcomes[0].error.startswith("error event 503")
    assert outcomes[1].error == ""
    assert engine.connections == 1


def test_a_status_is_a_failure_and_the_connection_lives_on() -> None:
    full = plain(503, b'{"error": {"message": "queue full"}}')
    outcomes, engine = run(outcomes_of(in_turn(full, GOOD), count=2))
    assert [outcome.error for outcome in outcomes] == ["HTTP 503: queue full", ""]
    assert engine.connections == 1


def test_what_is_not_http_is_a_failure() -> None:
    assert outcome_of(wire(b"SSH-2.0-OpenSSH_9.2\r\n")).error.startswith("not HTTP")


def test_silence_ends_with_the_timeout_and_hangs_up() -> None:
    async def main() -> Outcome:
        async with FakeEngine(hang(STREAM_HEAD)) as engine, client_of(engine, timeout_s=0.05) as client:
            outcome = await client.generate(ASK)
            await engine.requests[0].left.wait()
            return outcome

    assert run(main()).error == "no end of the answer within 0.05 s"


def test_a_cancelled_request_hangs_up_so_that_the_engine_stops() -> None:
    async def main() -> None:
        async with FakeEngine(hang(STREAM_HEAD)) as engine, client_of(engine) as client:
            task = asyncio.create_task(client.generate(ASK))
            await engine.asked.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await engine.requests[0].left.wait()

    run(main())


def test_a_refused_connection_is_a_failure_and_not_an_exception() -> None:
    (port,) = free_ports("127.0.0.1", 1)

    async def main() -> tuple[str, str]:
        async with LoadClient(Origin.of_url(f"http://127.0.0.1:{port}"), model="m") as client:
            return (await client.generate(ASK)).error, (await client.get("/v1/models")).error

    for error in run(main()):
        assert error.startswith("cannot connect: ")
        assert "refused" in error


def test_a_plain_question_gives_the_whole_body() -> None:
    async def main() -> bytes:
        async with (
            FakeEngine(models=["one", "two"]) as engine,
            client_of(engine) as client,
        ):
            answer = await client.get("/v1/models")
            assert answer.status == 200
            return answer.body

    assert b'"two"' in run(main())


@pytest.mark.parametrize("url", ["ftp://host", "host:8000", "http://", "http://host:port", "http://[::1"])
def test_what_is_no_http_url_is_wrong_input(url: str) -> None:
    with pytest.raises(SpecError):
        Origin.of_url(url)


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("http://host", "http://host:80"),
        ("https://host/v1", "https://host:443"),
        ("http://host:8000/v1/", "http://host:8000"),
        ("http://host:8000/team/v1", "http://host:8000/team"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_a_url_may_carry_the_v1_that_clients_add(url: str, wanted: str) -> None:
    assert str(Origin.of_url(url)) == wanted
