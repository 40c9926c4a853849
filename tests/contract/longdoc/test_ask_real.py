"""`doc ask` and `doc batch` before real vLLM with random weights: it says noise, and nothing of it is believed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from roadworthy.cli import doc
from support.gateway import KEY, gateway_before, run
from support.longdoc import store_with

if TYPE_CHECKING:
    from pathlib import Path


class RunningEngine(Protocol):
    """What is used of the ``vllm_engine`` fixture."""

    url: str


pytestmark = pytest.mark.engine

LONG_LAW = "\n\n".join(
    f"第{one}条　自然人享有第{one}项权利，{'任何组织不得侵害，' * 60}。" for one in "一二三四五六七八九"
)


def printed(home: Path, url: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    given = [*arguments, "--home", str(home), "--url", url, "--key", KEY, "--json"]
    code = doc.command.main(given, standalone_mode=False)
    return code, json.loads(capsys.readouterr().out)


def test_noise_is_never_an_answer_and_a_window_is_found_that_fits(
    vllm_engine: RunningEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_with(tmp_path, LONG_LAW)

    async def test() -> None:
        async with gateway_before(vllm_engine.url) as gateway:
            ask = ("ask", "第三条", "--budget", "60000", "--answer-tokens", "16")
            code, told = await asyncio.to_thread(printed, tmp_path, gateway.data_url, capsys, *ask)
        assert code == 1
        assert (told["outcome"], told["claims"]) == ("unverified", [])
        assert told["rounds"][-1]["name"] in ("answer", "verify")
        assert all(0 < one["prompt_tokens"] <= 4096 for one in told["rounds"])
        assert any("counts more tokens" in note for note in told["notes"])
        assert told["passages"][0]["section"] == "第三条"

    run(test, limit_s=100)


def test_clauses_that_noise_was_said_of_are_unread(
    vllm_engine: RunningEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_with(tmp_path)
    (tmp_path / "pb.yaml").write_text("[{id: cap, topic: Liability, wanted: capped}]")

    async def test() -> None:
        async with gateway_before(vllm_engine.url) as gateway:
            batch = ("batch", str(tmp_path / "pb.yaml"), "--document", "law.md", "--answer-tokens", "16")
            code, told = await asyncio.to_thread(printed, tmp_path, gateway.data_url, capsys, *batch)
        assert code == 3
        assert [one["status"] for one in told["risks"]] == ["unread"]
        assert len(told["unread"]) == told["clauses"]

    run(test, limit_s=100)
