"""Scrapes and rules: what stands in them and where a threshold comes from; promtool's word is in the contract tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from roadworthy.render.services.prometheus import all_alerts
from support.metrics import metric_names
from support.rendering import LLAMA_ON_8_H100, V4_ON_32_H100, render_input, rendered

ENDPOINTS = "engine: {endpoints: [{url: 'http://10.0.0.1:8000'}, {url: 'https://engine.example:8443'}]}\n"
HOSTS = V4_ON_32_H100.replace(
    "nics:", "hosts: [{address: a.rack}, {address: b.rack}, {address: c.rack}, {address: d.rack}], nics:"
)


def read(document: str, file: str = "prometheus.yml", layout: str | None = None) -> Any:
    return yaml.safe_load(rendered("prometheus", render_input(document, layout))[file].text)


def targets(document: str, layout: str | None = None) -> dict[str, list[str]]:
    return {
        job["job_name"]: job["static_configs"][0]["targets"] for job in read(document, layout=layout)["scrape_configs"]
    }


def alert(document: str, name: str) -> dict[str, Any]:
    rules = read(document, "rules.yml")["groups"][-1]["rules"]
    return next(rule for rule in rules if rule["alert"] == name)


def test_engines_are_those_that_the_document_names() -> None:
    assert targets(LLAMA_ON_8_H100 + ENDPOINTS)["roadworthy-engines"] == ["10.0.0.1:8000", "engine.example:8443"]
    assert read(LLAMA_ON_8_H100 + ENDPOINTS)["scrape_configs"][0]["scheme"] == "https"


def test_engines_are_on_the_first_host_of_each_replica_where_hosts_are_named() -> None:
    assert targets(HOSTS, "2 x TP8 PP2")["roadworthy-engines"] == ["a.rack:8000", "c.rack:8000"]


def test_engines_without_an_address_get_names_and_the_file_says_so() -> None:
    assert all(one.startswith("v4-node-") for one in targets(V4_ON_32_H100)["roadworthy-engines"])
    assert (
        "give the names below an address" in rendered("prometheus", render_input(V4_ON_32_H100))["prometheus.yml"].text
    )


def test_gateways_are_scraped_on_their_admin_port() -> None:
    document = LLAMA_ON_8_H100 + "gateway: {host: gw.example, port: 80, admin_port: 9081}\n"
    assert targets(document)["roadworthy-gateways"] == ["gw.example:9081"]


@pytest.mark.parametrize(
    ("sla", "name", "limit"),
    [
        ("sla: {tpot_p99: 40ms}", "TpotMissed", "> 0.04"),
        ("sla: {tpot_p99: 400ms}", "ItlHigh", "> 0.4"),
        ("sla: {tpot_p99: 40ms}", "ItlHigh", "> 0.15"),
        ("", "TpotMissed", "> 0.15"),
        ("sla: {ttft_p99: 250ms}", "TtftMissed", "> 0.25"),
        ("sla: {success: 100%}", "RequestsFail", "> 0.0\n"),
        ("sla: {success: 99%}", "RequestsFail", "> 0.144\n"),
        ("", "RequestsFail", "> 0.0144\n"),
    ],
)
def test_thresholds_are_the_documents(sla: str, name: str, limit: str) -> None:
    assert limit in alert(LLAMA_ON_8_H100 + sla + "\n", name)["expr"] + "\n"


def test_a_time_to_first_token_that_nobody_promised_has_no_alert() -> None:
    assert "TtftMissed" not in {one.name for one in all_alerts(render_input(LLAMA_ON_8_H100))}


def test_every_alert_says_what_to_do_and_how_bad_it_is() -> None:
    for rule in read(V4_ON_32_H100, "rules.yml")["groups"][-1]["rules"]:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert len(rule["annotations"]["runbook"]) > 30
        assert rule["annotations"]["summary"]


def test_no_rule_uses_a_name_that_engines_stopped_exporting() -> None:
    text = rendered("prometheus", render_input(V4_ON_32_H100))["rules.yml"].text
    for gone in ("gpu_cache_usage_perc", "gpu_prefix_cache", "time_per_output_token_seconds_bucket", "fragmentation"):
        assert f"vllm:{gone}" not in text


def test_braces_in_a_name_are_no_template() -> None:
    """The document's loader refuses them in a name; another caller might not."""
    inputs = render_input(LLAMA_ON_8_H100)
    inputs = replace(inputs, deployment=replace(inputs.deployment, name="{{ .Bad }}"))
    rules = yaml.safe_load(rendered("prometheus", inputs)["rules.yml"].text)["groups"][-1]["rules"]
    assert not any("{{" in rule["labels"]["deployment"] for rule in rules)


def test_the_operators_rules_are_the_same_rules() -> None:
    files = rendered("prometheus", render_input(V4_ON_32_H100))
    assert yaml.safe_load(files["prometheusrule.yaml"].text)["spec"] == yaml.safe_load(files["rules.yml"].text)


def test_every_setting_is_explained() -> None:
    files = rendered("prometheus", render_input(V4_ON_32_H100))
    named = {setting.name for setting in files["rules.yml"].settings}
    assert {one.name for one in all_alerts(render_input(V4_ON_32_H100))} <= named
    assert all(setting.why for artifact in files.values() for setting in artifact.settings)


@pytest.mark.parametrize(
    ("expr", "names"),
    [
        ('histogram_quantile(0.99, sum by (le, a) (rate(x:y_bucket{b="c"}[5m])))', {"x:y_bucket"}),
        ("a > 0\nand on (instance) b == 0 unless c", {"a", "b", "c"}),
        ('absent(up{job="x"}) or vector(0)', {"up"}),
    ],
)
def test_metric_names_of_an_expression(expr: str, names: set[str]) -> None:
    """The reader that the contract tests rely on."""
    assert metric_names(expr) == names
