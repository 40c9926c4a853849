"""`diagnose --metrics` against a real engine: its scrape is read, and range queries ask for names that it has."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

from roadworthy.cli import diagnose
from roadworthy.diagnose.metrics.engines import RUNNING, USAGE, WAITING
from roadworthy.diagnose.metrics.wanted import wanted_of

if TYPE_CHECKING:
    import pytest

    from support.vllm_process import RunningEngine

RULES_READ = {
    "vllm:num_preemptions_total", "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
    "vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:request_success_total",
    "vllm:inter_token_latency_seconds_sum", "vllm:inter_token_latency_seconds_count",
}  # fmt: skip


def test_an_engine_at_rest_is_healthy(vllm_engine: RunningEngine, capsys: pytest.CaptureFixture[str]) -> None:
    code = diagnose.command.main(["--metrics", vllm_engine.url, "--apart", "1", "--json"], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    assert (code, document["status"], document["skipped"]) == (0, "healthy", [])
    assert document["read"]["files"] == 2


def test_the_engine_counts_under_the_names_that_are_asked_for(vllm_engine: RunningEngine) -> None:
    with urllib.request.urlopen(f"{vllm_engine.url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line and not line.startswith("#")}
    wanted = set(wanted_of(names)["engines"])
    assert wanted >= {f"vllm:{names[0]}" for names in (USAGE, RUNNING, WAITING)} | RULES_READ
