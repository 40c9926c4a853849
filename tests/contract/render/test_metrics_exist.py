"""Every metric that a rule or a board reads is exported by the real engine, by our gateway, or by Prometheus itself."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
import yaml

from fakes.engine import FakeEngine, plain
from support.gateway import KEY, gateway_before, run
from support.metrics import metric_names
from support.rendering import LLAMA_ON_8_H100, render_input, rendered

pytestmark = pytest.mark.timeout(400)  # the first test that asks for the engine waits for its start
OF_PROMETHEUS = {"up", "ALERTS"}
DOCUMENT = LLAMA_ON_8_H100 + "sla: {ttft_p99: 900ms, tpot_p99: 200ms, success: 99%}\n"


def rules() -> list[dict[str, Any]]:
    text = rendered("prometheus", render_input(DOCUMENT))["rules.yml"].text
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def asked() -> dict[str, str]:
    """Every metric that is read, with where."""
    board = json.loads(rendered("grafana", render_input(DOCUMENT))["dashboards/roadworthy.json"].text)
    expressions = {rule.get("record") or rule["alert"]: rule["expr"] for rule in rules()}
    expressions |= {panel["title"]: target["expr"] for panel in board["panels"] for target in panel.get("targets", [])}
    expressions["annotation"] = board["annotations"]["list"][0]["expr"]
    expressions["variable"] = re.sub(r"label_values\((.*), \w+\)", r"\1", board["templating"]["list"][1]["definition"])
    return {name: where for where, expr in expressions.items() for name in metric_names(expr)}


def series(exposition: str) -> set[str]:
    return {re.split(r"[{ ]", line, maxsplit=1)[0] for line in exposition.splitlines() if line and line[0] != "#"}


@pytest.fixture(scope="module")
def gateway_series() -> set[str]:
    """What a gateway exports after one request that went well and one that a full engine sent elsewhere."""
    found: set[str] = set()

    async def inside() -> None:
        async with (
            FakeEngine(plain(503)) as full,
            FakeEngine() as engine,
            gateway_before(full, engine) as gateway,
            httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}) as client,
        ):
            for _ in range(2):
                body = {"model": "m", "messages": [], "stream": True}
                answer = await client.post(f"{gateway.data_url}/v1/chat/completions", json=body)
                assert answer.status_code == 200
            found.update(series((await client.get(f"{gateway.admin_url}/metrics")).text))

    run(inside)
    return found


def test_what_gateways_are_asked_for_they_export(gateway_series: set[str]) -> None:
    wanted = {name: where for name, where in asked().items() if name.startswith("roadworthy_")}
    assert wanted, "no rule looks at gateways"
    assert {name: where for name, where in wanted.items() if name not in gateway_series} == {}


def test_recorded_names_that_are_read_are_recorded() -> None:
    of_rules = {name for name in asked() if name.startswith(("engine:", "gateway:"))}
    assert of_rules
    assert of_rules <= recorded()


def test_no_metric_comes_from_nowhere() -> None:
    known = ("vllm:", "roadworthy_gateway_", "engine:", "gateway:")
    assert {name for name in asked() if not name.startswith(known)} <= OF_PROMETHEUS


@pytest.mark.engine
def test_what_engines_are_asked_for_the_real_one_exports(vllm_engine) -> None:
    body = {"model": "tiny", "prompt": "a b c", "max_tokens": 4, "ignore_eos": True}
    assert httpx.post(f"{vllm_engine.url}/v1/completions", json=body, timeout=60).status_code == 200
    exported = series(httpx.get(f"{vllm_engine.url}/metrics").text)
    wanted = {name: where for name, where in asked().items() if name.startswith("vllm:")}
    assert len(wanted) > 10
    assert {name: where for name, where in wanted.items() if name not in exported} == {}


@pytest.mark.engine
def test_labels_that_rules_group_by_are_the_engines(vllm_engine) -> None:
    line = next(
        line
        for line in httpx.get(f"{vllm_engine.url}/metrics").text.splitlines()
        if line.startswith("vllm:num_requests_running{")
    )
    assert 'engine="' in line
    assert 'model_name="' in line


@pytest.mark.engine
def test_the_default_limit_of_gaps_is_a_bound_of_the_histogram(vllm_engine) -> None:
    text = httpx.get(f"{vllm_engine.url}/metrics").text
    assert "vllm:inter_token_latency_seconds_bucket" in text
    assert re.search(r'inter_token_latency_seconds_bucket\{[^}]*le="0\.15"', text)
