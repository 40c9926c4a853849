"""Every metric that a rule or a board reads is exported by the real engine, by our gateway, or by Prometheus itself."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
import yaml

from roadworthy.gateway.data.record import RequestRecord
from roadworthy.gateway.metrics import GatewayMetrics
from support.metrics import metric_names
from support.rendering import LLAMA_ON_8_H100, render_input, rendered

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


def gateway_series() -> set[str]:
    """What a gateway exports after one request."""

    class One:
        url, models, in_flight, healthy = "http://e0:8000", ("m",), 0, True

        class health:  # noqa: N801 - stands in for an attribute
            kv_usage_ratio = 0.0

    metrics = GatewayMetrics([One()], client_connections=lambda: 0)  # type: ignore[list-item]
    metrics.retried("connect")
    metrics.add(
        RequestRecord(
            tenant_id="t", model="m", endpoint="http://e0:8000", ending="ok", status=200, attempts=1, request_bytes=1,
            response_bytes=1, ttft_s=0.5, duration_s=1.0, prompt_tokens=1, output_tokens=1,
        )
    )  # fmt: skip
    return series(metrics.render().decode())


def test_what_gateways_are_asked_for_they_export() -> None:
    missing = {name: where for name, where in asked().items() if name.startswith("roadworthy_")}
    assert missing, "no rule looks at gateways"
    assert {name: where for name, where in missing.items() if name not in gateway_series()} == {}


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
