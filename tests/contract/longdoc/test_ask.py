"""`doc ask` over sockets: an OpenAI API that cites rightly, wrongly or not at all, that fails, and our own gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from fakes.engine import STREAM_HEAD as HEAD
from fakes.engine import Answer, Asked, FakeEngine, chunk, in_turn, plain, wire
from roadworthy.adapters.longdoc_library import Reranked, StoreLibrary
from roadworthy.adapters.longdoc_model import ModelClient
from roadworthy.adapters.longdoc_store import DocumentStore
from roadworthy.cli import doc
from roadworthy.cli.doc_options import budget_of
from roadworthy.core.errors import ProbeError, SpecError, Temporary
from roadworthy.longdoc.converse import Message, TooLong
from roadworthy.spec.values import Tenant
from support.gateway import gateway_before, run
from support.longdoc import LAW, NAME, lines, rightly, speaking, store_with
from support.threaded_engine import threaded_engine

QUOTE = "自然人享有隐私权"
CLAIM = "隐私权属于自然人。"
QUESTION = "隐私权归谁？"
HELLO = [Message(role="user", content="hello")]


def ask(home: Path, url: str, *more: str, question: str = QUESTION) -> int:
    code = doc.command.main(["ask", question, "--home", str(home), "--url", url, *more], standalone_mode=False)
    assert isinstance(code, int)
    return code


@pytest.fixture
def home(tmp_path: Path) -> Path:
    store_with(tmp_path)
    return tmp_path


def test_an_answer_is_one_json_document_with_places_that_are_true(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with threaded_engine(speaking(rightly(CLAIM, QUOTE))) as engine:
        assert ask(home, engine.url, "--model", "m", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    (citation,) = told["claims"][0]["citations"]
    assert told["outcome"] == "answered"
    assert LAW[citation["start"] : citation["end"]] == citation["quote"] == QUOTE
    assert (citation["document"], citation["section"], citation["page"]) == (NAME, "第一条", None)
    assert [one["name"] for one in told["rounds"]] == ["locate", "extract", "answer", "verify"]
    assert told["rounds"][0]["prompt_tokens"] == 9


def test_a_person_reads_claims_with_numbers_and_their_places(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_engine(speaking(rightly(CLAIM, QUOTE))) as engine:
        assert ask(home, engine.url) == 0
    out = capsys.readouterr().out
    assert f"{CLAIM} [1]" in out
    assert f"[1] {NAME}, 第一编 总则 > 第一条, {LAW.index(QUOTE)}-" in out


def test_an_answer_without_a_true_citation_is_told_and_ends_with_1(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    false = lines({"claim": "罚款一万元。", "cite": [{"id": "P1", "quote": "处以罚款一万元以上"}]})
    with threaded_engine(speaking(lambda name, prompt: false if name == "answer" else "")) as engine:
        assert ask(home, engine.url) == 1
    out = capsys.readouterr().out
    assert "Not verified: 罚款一万元。" in out
    assert "[1]" not in out


def test_what_would_steer_a_terminal_is_not_printed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim = "隐私权\x1b[31m属于\u202e自然人。\x07"
    with threaded_engine(speaking(rightly(claim, QUOTE))) as engine:
        assert ask(home, engine.url) == 0
    with threaded_engine(speaking(lambda name, prompt: claim)) as engine:
        assert ask(home, engine.url) == 1
    out = capsys.readouterr().out
    assert "隐私权 [31m属于 自然人。" in out
    assert not set(out) & set("\x1b\u202e\x07")


def test_that_the_documents_do_not_say_ends_with_0(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_engine(speaking(lambda name, prompt: '{"not_in_document": true}')) as engine:
        assert ask(home, engine.url) == 0
    assert "do not say" in capsys.readouterr().out


def test_through_the_gateway_with_the_callers_key_session_and_wait(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        tenant = Tenant(id="law-firm", key="sk-law", scopes=("trusted-caller",))
        async with (
            FakeEngine(speaking(rightly(CLAIM, QUOTE))) as engine,
            gateway_before(engine, tenants=[tenant]) as gateway,
        ):
            assert await asyncio.to_thread(ask, home, gateway.data_url, "--key", "sk-law", "--json") == 0
            told = json.loads(capsys.readouterr().out)
            assert told["model"] == "m"
            assert told["claims"][0]["verified"] is True
            asked = [one for one in engine.requests if one.path == "/v1/chat/completions"]
            assert len(asked) == 4
            with pytest.raises(ProbeError, match="401"):
                await asyncio.to_thread(ask, home, gateway.data_url, "--key", "sk-wrong")

    run(test)


def test_what_is_sent(home: Path) -> None:
    with threaded_engine(speaking(rightly(CLAIM, QUOTE))) as engine:
        ask(home, engine.url, "--key", "sk-1", "--answer-tokens", "300")
        asked = [one for one in engine.requests if one.method == "POST"]
    waits = [one.header("x-roadworthy-io-wait-ms") for one in asked]
    assert all(wait is not None and wait.isdigit() for wait in waits)
    assert waits[2:] == ["0", "0"]
    assert {one.header("authorization") for one in asked} == {"Bearer sk-1"}
    assert len({one.header("x-session-id") for one in asked}) == 1
    body: Any = asked[0].json()
    assert (body["temperature"], body["max_tokens"], body["stream"]) == (0, 300, True)


def error(status: int, message: str) -> Answer:
    return plain(status, json.dumps({"error": {"message": message, "hint": "do this"}}).encode())


def test_a_busy_endpoint_is_asked_again_and_then_given_up() -> None:
    waits: list[float] = []
    said = speaking(lambda name, prompt: "yes")
    with threaded_engine(in_turn(error(429, "full"), error(503, "starting"), said)) as engine:
        client = ModelClient(engine.url, model="m", sleep=waits.append)
        assert client.chat(HELLO, max_tokens=5).text == "yes"
    assert len(waits) == 2
    with threaded_engine(error(503, "starting")) as engine:
        client = ModelClient(engine.url, model="m", sleep=waits.append)
        with pytest.raises(Temporary, match="starting"):
            client.chat(HELLO, max_tokens=5)


@pytest.mark.parametrize(
    ("answer", "wanted", "words"),
    [
        (error(400, "This model's maximum context length is 512 tokens"), TooLong, "512"),
        (error(404, "no such model"), ProbeError, "no such model"),
        (error(401, "who?"), ProbeError, "who"),
        (plain(418, b"<html>teapot"), ProbeError, "teapot"),
        (wire(HEAD, chunk(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'), cut=True), Temporary, "broke off"),
        (wire(HEAD, chunk(b"data: {nonsense\n\n"), b"0\r\n\r\n"), Temporary, "broke off"),
        (wire(HEAD, chunk(b'data: {"error": {"message": "no memory"}}\n\n'), b"0\r\n\r\n"), Temporary, "no memory"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_told_as_what_it_is(answer: Answer, wanted: type[Exception], words: str) -> None:
    with threaded_engine(answer) as engine, pytest.raises(wanted, match=words):
        ModelClient(engine.url, model="m").chat(HELLO, max_tokens=5)


def test_nobody_there_and_no_url_are_told(home: Path) -> None:
    with threaded_engine() as engine:
        gone = engine.url
    with pytest.raises(ProbeError, match="does not answer"):
        ask(home, gone)
    for url in ("127.0.0.1:80", "ftp://x", "http://", "http://a b"):
        with pytest.raises(SpecError, match="no URL"):
            ask(home, url)


def test_wrong_use_is_told(home: Path, tmp_path: Path) -> None:
    url = "http://127.0.0.1:9"
    with pytest.raises(SpecError, match="empty question"):
        ask(home, url, question=" ")
    with pytest.raises(SpecError, match="not in the store"):
        ask(home, url, "--document", "other.md")
    with pytest.raises(SpecError, match="nothing is stored"):
        ask(tmp_path / "new", url)
    with pytest.raises(SpecError, match="answer-tokens"):
        ask(home, url, "--budget", "400", "--answer-tokens", "300")
    with pytest.raises(click.UsageError):
        doc.command.main(["ask", "q", "--home", str(home)], standalone_mode=False)


def test_the_budget_is_what_was_told_else_the_plans_else_the_endpoints(home: Path, examples: Path) -> None:
    listed = json.dumps({"data": [{"id": "a"}, {"id": "m", "max_model_len": 3000}]}).encode()
    with threaded_engine() as engine:
        engine.pages["/v1/models"] = (200, listed)
        client = ModelClient(engine.url, model="m")
        budgets = [
            budget_of(client, 900, examples / "laptop.yaml", 100),
            budget_of(client, None, examples / "laptop.yaml", None),
            budget_of(client, None, None, None), budget_of(ModelClient(engine.url, model="a"), None, None, None),
        ]  # fmt: skip
    assert [(one.window_tokens, one.answer_tokens) for one in budgets] == [
        (900, 100), (4096, 1024), (3000, 750), (8192, 1024),
    ]  # fmt: skip


def test_only_the_named_document_is_looked_into(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_with(home, LAW.replace("自然人", "法人"), "laws/other.md")
    with threaded_engine(speaking(lambda name, prompt: "")) as engine:
        ask(home, engine.url, "--document", "other.md", "--json")
    told = json.loads(capsys.readouterr().out)
    assert {one["document"] for one in told["passages"]} == {"laws/other.md"}


def answering(body: object) -> Answer:
    return plain(200, json.dumps(body).encode())


def test_embeddings_and_scores_come_in_the_order_of_the_texts() -> None:
    rows = [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": [1.0, 2.0]}]
    with threaded_engine(answering({"data": rows})) as engine:
        assert ModelClient(engine.url, model="m").embed(["a", "b"]) == [[1.0, 2.0], [3.0, 4.0]]
        with pytest.raises(ProbeError, match="no vector"):
            ModelClient(engine.url, model="m").embed(["a"])
    ranked = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]
    with threaded_engine(answering({"results": ranked})) as engine:
        assert ModelClient(engine.url, model="m").rerank("q", ["a", "b"]) == [0.1, 0.9]
        with pytest.raises(ProbeError, match="no score"):
            ModelClient(engine.url, model="m").rerank("q", ["a", "b", "c"])


def shared(question: str, text: str) -> int:
    """Pairs of characters in both: all that a reranker has to see to find a sentence's own unit."""
    return sum(question[at : at + 2] in text for at in range(len(question) - 1))


def reranking(scored: str | None) -> Answer:
    """An endpoint that answers, and whose reranker likes what has ``scored`` in it; None is broken."""
    chat = speaking(lambda name, prompt: "")

    async def answer(asked: Asked) -> None:
        body: Any = asked.json()
        if asked.path == "/v1/chat/completions":
            await chat(asked)
        elif scored is None or asked.path != "/v1/rerank":
            await plain(404, b'{"error": {"message": "no reranker here"}}')(asked)
        else:
            assert body["model"] == "reranker"
            likes = scored if body["query"] == QUESTION else ""
            rows = [
                {"index": at, "relevance_score": shared(body["query"], text) + 99 * (likes in text)}
                for at, text in enumerate(body["documents"])
            ]
            await plain(200, json.dumps({"results": rows[::-1]}).encode())(asked)

    return answer


def test_a_reranker_orders_what_is_found_and_one_that_fails_is_left_out(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def passages(scored: str | None, *more: str) -> list[str]:
        with threaded_engine(reranking(scored)) as engine:
            ask(home, engine.url, "--json", "--quick", *more)
        return [one["section"] for one in json.loads(capsys.readouterr().out)["passages"]]

    def found(scored: str) -> list[str]:
        with threaded_engine(reranking(scored)) as engine:
            more = ["--reranker", "reranker", "--reranker-url", engine.url] if scored else []
            doc.command.main(["search", QUESTION, "--home", str(home), "--json", *more], standalone_mode=False)
        return [one["section"] for one in json.loads(capsys.readouterr().out)["results"]]

    plainly = found("")
    last = plainly[-1]
    words = LAW[LAW.index(last + "　") :][4:12]
    assert found(words).index(last) <= 1  # bounded: it lifts a unit, and does not throw out what was found first
    assert passages(None, "--reranker", "reranker") == passages("继承")


def test_a_reranker_that_reads_little_is_given_less(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read: list[int] = []

    class Short:
        def __call__(self, question: str, texts: Sequence[str]) -> list[float]:
            if any(len(text) > 400 for text in texts):
                raise TooLong("512 tokens at most")
            read.append(max(map(len, texts)))
            return [float(shared(question, text)) for text in texts]

    long = LAW.replace("法律保护", "法律保护" + "，任何人不得侵害" * 200)
    store_with(home, long, "laws/long.md")
    with DocumentStore(home) as store:
        library = Reranked(StoreLibrary(store, home, ["laws/long.md"]), Short(), print)
        assert library.search("合同受法律保护", limit=1)[0].stored.unit.label == "第二条"
    assert read
    assert "left out" not in capsys.readouterr().out


def test_what_a_question_names_stays_before_what_a_reranker_likes(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Likes:
        def __call__(self, question: str, texts: Sequence[str]) -> list[float]:
            return [shared(question, text) + 99.0 * ("继承" in text and question == "第二条") for text in texts]

    with DocumentStore(home) as store:
        library = Reranked(StoreLibrary(store, home), Likes(), print)
        assert [hit.stored.unit.label for hit in library.search("第二条", limit=2)] == ["第二条", "第六条"]
