"""What real vLLM says on the wire. The twin, the gateway and the bench client are built on these shapes."""

from __future__ import annotations

import json

import httpx
import pytest

pytestmark = pytest.mark.engine


def stream_lines(url: str, path: str, body: dict[str, object]) -> tuple[int, list[str]]:
    """Status and the data of every server-sent event."""
    with httpx.stream("POST", f"{url}{path}", json=body, timeout=60) as answer:
        lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
        return answer.status_code, lines


def chat(model: str, **more: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "the cat sat"}], "max_tokens": 6, **more}


def test_models_lists_the_served_name_and_its_length(vllm_engine) -> None:
    (card,) = httpx.get(f"{vllm_engine.url}/v1/models").json()["data"]
    assert (card["id"], card["max_model_len"]) == ("tiny", 4096)


def test_a_chat_stream_starts_with_a_role_ends_with_usage_and_done(vllm_engine) -> None:
    body = chat("tiny", stream=True, stream_options={"include_usage": True}, ignore_eos=True)
    status, lines = stream_lines(vllm_engine.url, "/v1/chat/completions", body)
    assert status == 200
    assert lines[-1] == "[DONE]"
    events = [json.loads(line) for line in lines[:-1]]
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 6
    assert events[-2]["choices"][0]["finish_reason"] == "length"


def test_a_plain_completion_counts_its_tokens(vllm_engine) -> None:
    body = {"model": "tiny", "prompt": "the cat", "max_tokens": 5, "ignore_eos": True}
    answer = httpx.post(f"{vllm_engine.url}/v1/completions", json=body, timeout=60).json()
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["finish_reason"] == "length"


def test_an_unknown_model_is_404_in_the_error_shape(vllm_engine) -> None:
    answer = httpx.post(f"{vllm_engine.url}/v1/chat/completions", json=chat("absent"))
    assert answer.status_code == 404
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_prompt_longer_than_the_context_is_400(vllm_engine) -> None:
    body = {"model": "tiny", "prompt": "word " * 5000, "max_tokens": 5}
    answer = httpx.post(f"{vllm_engine.url}/v1/completions", json=body, timeout=60)
    assert answer.status_code == 400
    assert "4096" in answer.json()["error"]["message"]


def test_the_metrics_that_we_read_are_emitted(vllm_engine) -> None:
    text = httpx.get(f"{vllm_engine.url}/metrics").text
    for name in (
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:generation_tokens_total",
        "vllm:prompt_tokens_total",
        "vllm:num_preemptions_total",
        "vllm:prefix_cache_queries_total",
        "vllm:cache_config_info",
    ):
        assert name in text, f"{name} is read by the gateway or the twin's tests, and vLLM does not emit it"
