"""The twin's HTTP surface, spoken to over real sockets."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from support.twin import config, step_time


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "fake-model", "messages": [{"role": "user", "content": "how far is it"}], **more}


def events_of(answer: httpx.Response) -> list[str]:
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.text.endswith("data: [DONE]\n\n")
    return [event.removeprefix("data: ") for event in answer.text.split("\n\n") if event]


@contextmanager
def open_stream(url: str, body: dict[str, Any], *, path: str = "/v1/chat/completions") -> Iterator[socket.socket]:
    """A raw connection with the request sent, so that the test decides when it closes."""
    host, port = url.removeprefix("http://").split(":")
    payload = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(head.encode() + payload)
        yield connection


def wait_until(condition: Callable[[], bool], limit_s: float) -> float:
    """Seconds until ``condition`` held; fails the test after ``limit_s``."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > limit_s:
            pytest.fail(f"not within {limit_s} s")
        time.sleep(0.01)
    return time.monotonic() - start


def test_a_stream_has_one_event_for_each_token_and_tells_usage(twin) -> None:
    body = chat(max_tokens=12, stream=True, stream_options={"include_usage": True})
    answer = httpx.post(f"{twin.url}/v1/chat/completions", json=body, headers={"X-Request-Id": "abc"})
    *chunks, done = events_of(answer)
    parsed = [json.loads(chunk) for chunk in chunks]
    assert done == "[DONE]"
    assert {chunk["id"] for chunk in parsed} == {"chatcmpl-abc"}
    assert parsed[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len(parsed) == 1 + 12 + 1
    assert all(chunk["choices"][0]["delta"]["content"] for chunk in parsed[1:-1])
    assert [chunk["choices"][0]["finish_reason"] for chunk in parsed[1:-1]] == [None] * 11 + ["length"]
    assert parsed[-1]["choices"] == []
    assert parsed[-1]["usage"]["completion_tokens"] == 12


def test_streamed_and_whole_answers_have_the_same_text_each_time(twin) -> None:
    whole = [httpx.post(f"{twin.url}/v1/chat/completions", json=chat(max_tokens=30)).json() for _ in range(2)]
    streamed = events_of(httpx.post(f"{twin.url}/v1/chat/completions", json=chat(max_tokens=30, stream=True)))
    text = "".join(json.loads(event)["choices"][0]["delta"]["content"] for event in streamed[:-1])
    assert text == whole[0]["choices"][0]["message"]["content"] == whole[1]["choices"][0]["message"]["content"]
    assert text.startswith("(simulated)")


def test_completions_stream_text(twin) -> None:
    body = {"model": "fake-model", "prompt": "how far is it", "max_tokens": 5, "stream": True}
    *chunks, _ = events_of(httpx.post(f"{twin.url}/v1/completions", json=body))
    assert len(chunks) == 5
    assert json.loads(chunks[0])["object"] == "text_completion"


def test_everything_says_that_it_is_simulated(twin) -> None:
    answer = httpx.post(f"{twin.url}/v1/chat/completions", json=chat(max_tokens=1))
    assert answer.headers["server"] == "roadworthy-twin (simulated)"
    assert answer.json()["system_fingerprint"] == "simulated"
    (card,) = httpx.get(f"{twin.url}/v1/models").json()["data"]
    assert (card["id"], card["owned_by"], card["max_model_len"]) == ("fake-model", "roadworthy-twin", 4096)
    assert httpx.get(f"{twin.url}/version").json() == {"version": "0.32.0 (simulated)"}
    assert 'roadworthy_twin_info{label="simulated"' in httpx.get(f"{twin.url}/metrics").text


def test_health_and_ping_answer(twin) -> None:
    assert httpx.get(f"{twin.url}/health").status_code == 200
    assert httpx.get(f"{twin.url}/ping").status_code == httpx.post(f"{twin.url}/ping").status_code == 200


def test_unknown_paths_and_methods_answer_as_vllm_does(twin) -> None:
    missing, method = httpx.get(f"{twin.url}/v1/nothing"), httpx.get(f"{twin.url}/v1/chat/completions")
    assert (missing.status_code, missing.json()) == (404, {"detail": "Not Found"})
    assert (method.status_code, method.json(), method.headers["allow"]) == (
        405,
        {"detail": "Method Not Allowed"},
        "POST",
    )


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [(b'{"model":', 400, "Bad Request"), (json.dumps(chat(model="gone")).encode(), 404, "NotFoundError")],
)
def test_errors_have_vllms_shape(twin, body: bytes, status: int, kind: str) -> None:
    answer = httpx.post(f"{twin.url}/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (status, status, kind)
    assert set(error) == {"message", "type", "param", "code"}


def test_the_openai_client_streams_from_it(twin) -> None:
    with openai.OpenAI(base_url=f"{twin.url}/v1", api_key="none") as client:
        stream = client.chat.completions.create(
            model="fake-model",
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=8,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8
    assert chunks[-2].choices[0].finish_reason == "length"


def test_the_openai_client_sees_its_errors(twin) -> None:
    with (
        openai.OpenAI(base_url=f"{twin.url}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.NotFoundError, match="does not exist"),
    ):
        client.chat.completions.create(model="gone", messages=[{"role": "user", "content": "hello"}])


def test_a_second_turn_is_found_in_the_prefix_cache(twin) -> None:
    question = {"role": "user", "content": "tell me about the north road " * 20}
    first = httpx.post(f"{twin.url}/v1/chat/completions", json=chat(messages=[question], max_tokens=40)).json()
    answer = first["choices"][0]["message"]["content"]
    follow_up = [question, {"role": "assistant", "content": answer}, {"role": "user", "content": "and the south"}]
    second = httpx.post(f"{twin.url}/v1/chat/completions", json=chat(messages=follow_up, max_tokens=2)).json()
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    # all but the last answer token had their KV, and only full blocks of 16 can hit
    assert cached == (first["usage"]["total_tokens"] - 1) // 16 * 16
    salted = chat(messages=follow_up, max_tokens=2, cache_salt="someone else")
    third = httpx.post(f"{twin.url}/v1/chat/completions", json=salted).json()
    assert third["usage"]["prompt_tokens_details"] is None


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_the_engine_within_half_a_second(twin, stream: bool) -> None:
    with open_stream(twin.url, chat(max_tokens=4000, stream=stream)) as connection:
        wait_until(lambda: twin.metric("vllm:num_requests_running") == 1, 2)
        if stream:
            assert connection.recv(100)
        assert twin.metric("vllm:kv_cache_usage_perc") > 0
    left_s = wait_until(lambda: twin.metric("vllm:num_requests_running") == 0, 0.5)
    assert left_s < 0.5
    assert twin.metric("vllm:kv_cache_usage_perc") == 0


def test_tokens_come_at_the_speed_of_the_model(twin) -> None:
    """200 tokens of 2 ms: never faster than the model, and not much slower."""
    start = time.monotonic()
    httpx.post(f"{twin.url}/v1/chat/completions", json=chat(max_tokens=200))
    assert 0.4 <= time.monotonic() - start < 2


def test_a_full_queue_refuses_streams_with_an_event_and_others_with_503(start_twin) -> None:
    full = start_twin(config(step_time=step_time(step_s=0.005), max_num_queued_reqs=1))
    with open_stream(full.url, chat(max_tokens=900, stream=True)):
        wait_until(lambda: full.metric("vllm:num_requests_running") == 1, 2)
        streamed = httpx.post(f"{full.url}/v1/chat/completions", json=chat(max_tokens=2, stream=True))
        plain = httpx.post(f"{full.url}/v1/chat/completions", json=chat(max_tokens=2))
    first, done = events_of(streamed)
    assert (streamed.status_code, json.loads(first)["error"]["code"], done) == (200, 503, "[DONE]")
    assert plain.status_code == plain.json()["error"]["code"] == 503
    assert plain.json()["error"]["type"] == "Service Unavailable"
    assert full.metric("vllm:admission_rejections_total") == 2


def test_many_streams_at_once_all_get_every_token(twin) -> None:
    counts: list[int] = []

    def one() -> None:
        answer = httpx.post(f"{twin.url}/v1/chat/completions", json=chat(max_tokens=50, stream=True), timeout=30)
        counts.append(len(events_of(answer)))

    threads = [threading.Thread(target=one) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1 + 50 + 1] * 24


def test_metrics_count_what_was_served(start_twin) -> None:
    fresh = start_twin(config(step_time=step_time(step_s=0.002)))
    for _ in range(3):
        httpx.post(f"{fresh.url}/v1/chat/completions", json=chat(max_tokens=10))
    assert fresh.metric("vllm:generation_tokens_total") == 30
    assert fresh.metric("vllm:time_to_first_token_seconds_count") == 3
    assert fresh.metric("vllm:inter_token_latency_seconds_count") == 27
    assert fresh.metric("vllm:inter_token_latency_seconds_sum") == pytest.approx(27 * 0.002)
    assert fresh.metric("vllm:e2e_request_latency_seconds_count") == 3
    text = httpx.get(f"{fresh.url}/metrics").text
    assert 'vllm:request_success_total{engine="0",finished_reason="length",model_name="fake-model"} 3.0' in text
    assert re.search(r'vllm:cache_config_info\{block_size="16",.*num_gpu_blocks="1001"\} 1.0', text)


def test_every_metric_is_one_that_vllm_has(twin) -> None:
    """Names and labels, held against the source of the installed engine."""
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        pytest.skip("vLLM is not installed: its metric names cannot be compared")
    source = (Path(found.origin).parent / "v1" / "metrics" / "loggers.py").read_text()
    known = set(re.findall(r'"(vllm:[a-z0-9_]+)"', source))
    # the counters and histograms of the exposition carry suffixes that the source leaves to the client library
    families = set(re.findall(r"^# TYPE (vllm:\S+)", httpx.get(f"{twin.url}/metrics").text, re.MULTILINE))
    families = {name for name in families if not name.endswith("_created")}
    assert families
    assert {name for name in families if name not in known and name.removesuffix("_total") not in known} == set()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_cleanly_on_a_signal_and_prints_nothing_on_stdout(start_twin, how: signal.Signals) -> None:
    server = start_twin(config())
    server.process.send_signal(how)
    out, err = server.process.communicate(timeout=10)
    assert (server.process.returncode, out) == (0, "")
    assert re.fullmatch(r"twin of fake-model \(simulated\) at http://127\.0\.0\.1:\d+ is ready\n", err)


def test_it_stops_with_a_stream_under_way(start_twin) -> None:
    server = start_twin(config(step_time=step_time(step_s=0.05)))
    with open_stream(server.url, chat(max_tokens=900, stream=True)) as connection:
        assert connection.recv(10)
        server.process.terminate()
        server.process.communicate(timeout=10)
    assert server.process.returncode == 0


def run_twin(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "roadworthy.adapters.twin_server", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_a_taken_port_is_said_and_ends_with_3(tmp_path: Path) -> None:
    file = tmp_path / "twin.json"
    file.write_text(config().to_json())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run_twin("--config", str(file), "--port", str(taken.getsockname()[1]))
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "cannot be used: Address already in use" in ended.stderr
    assert "hint: " in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("text", "word"), [(None, "no such file"), ("{", "not JSON"), ("{}", "is missing")])
def test_a_bad_configuration_is_said_and_ends_with_2(tmp_path: Path, text: str | None, word: str) -> None:
    file = tmp_path / "twin.json"
    if text is not None:
        file.write_text(text)
    ended = run_twin("--config", str(file), "--port", "0")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert word in ended.stderr
    assert "Traceback" not in ended.stderr
