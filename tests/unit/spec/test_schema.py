"""One tree describes the document; values, JSON Schema and the reference page cannot drift from it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

import jsonschema
import pytest
import yaml

from roadworthy.spec.fields import ListOf, Section, written_default
from roadworthy.spec.json_schema import json_schema
from roadworthy.spec.kinds import Kind
from roadworthy.spec.load import load_text
from roadworthy.spec.schema import DOCUMENT, walk
from roadworthy.spec.values import Deployment, Sla
from roadworthy.spec.yaml_text import MapNode, ScalarNode, read_yaml

ROOT = Path(__file__).resolve().parents[3]
PINNED = {
    "": "model cluster engine workload sla tenants gateway cost schema_version",
    "model": "config weights max_model_len",
    "cluster": "nodes gpus_per_node gpu nvlink nics",
    "cluster.nics[]": "count rate",
    "engine": "name version endpoints settings",
    "engine.endpoints[]": "url",
    "workload": "prompt_tokens output_tokens rate shared_prefix sessions",
    "workload.prompt_tokens": "p50 p90 p99",
    "workload.output_tokens": "p50 p90 p99",
    "workload.sessions": "turns think_time",
    "sla": "ttft_p99 tpot_p99 success goodput",
    "tenants[]": "id key key_env weight priority kv_quota rpm tpm daily_tokens concurrency models fallback",
    "governance": "borrow_headroom slots_per_engine billing queue lease_ttl on_state_loss alert rules ledger",
    "governance.queue": "total per_tenant max_wait ageing",
    "governance.alert": "at for webhook smtp",
    "gateway": "host port admin_port workers state_url shared_url",
}


def sections() -> dict[str, Section]:
    found = {"": DOCUMENT}
    for path, _, field in walk():
        value = field.value.item if isinstance(field.value, ListOf) else field.value
        if isinstance(value, Section):
            found[path] = value
    return found


@pytest.mark.parametrize("path", PINNED)
def test_pinned_keys_keep_their_names(path: str) -> None:
    assert set(PINNED[path].split()) <= set(sections()[path].keys)


def test_every_field_of_every_value_has_a_key_and_every_key_a_field() -> None:
    for path, section in sections().items():
        described = {field.attribute for field in section.fields if field.attribute}
        held = {one.name for one in fields(section.cls)}
        if section.cls is Sla:
            described |= {"goodput_per_s", "goodput_ratio"}
        if section.cls is Deployment:
            held -= {"digest"}
        assert described == held, path


def test_a_key_is_required_exactly_when_its_field_has_no_default() -> None:
    required = {path for path, section, field in walk() if section.required(field)}
    assert required == {
        "model", "model.config", "cluster.nics[].count", "cluster.nics[].rate", "cluster.hosts[].address",
        "engine.endpoints[].url", "tenants[].id", "gateway.lanes.long.above_tokens",
        "governance.alert.smtp.host", "governance.alert.smtp.from", "governance.alert.smtp.to[]",
        "governance.rules[].name", "governance.rules[].when[]",
        "workload.mix[].kind",
        *(f"workload.{name}_tokens.{p}" for name in ("prompt", "output") for p in ("p50", "p90", "p99")),
        *(f"workload.mix[].{name}_tokens.{p}" for name in ("prompt", "added", "output") for p in ("p50", "p90", "p99")),
    }  # fmt: skip


@pytest.mark.parametrize("path", [path for path, _, field in walk() if isinstance(field.value, Kind)])
def test_the_example_of_a_key_is_accepted_and_its_written_default_reads_back(path: str) -> None:
    section, field = next((section, field) for place, section, field in walk() if place == path)
    assert isinstance(field.value, Kind)
    assert field.value.read(scalar(field.value.example)) is not None
    default = written_default(section, field)
    if default is not None:
        assert field.value.read(scalar(str(default))) == section.default(field)


def scalar(written: str) -> ScalarNode:
    node, problems = read_yaml(f"a: {written}", source="x")
    assert not problems
    assert isinstance(node, MapNode)
    held = node.entries["a"]
    assert isinstance(held, ScalarNode)
    return held


def test_the_json_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_json_schema_takes_what_the_loader_takes(path: Path) -> None:
    jsonschema.Draft202012Validator(json_schema()).validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    "text",
    [
        "cluster: {nodes: 1}",
        "model: {config: tiny}\nclutser: {}",
        "model: {config: tiny}\ncluster: {nodes: 0}",
        "model: {config: tiny, weights: int3}",
        "model: {config: tiny}\nsla: {ttft_p99: 250}",
        "model: {config: tiny}\ntenants: [{weight: 2}]",
    ],
)
def test_the_json_schema_warns_an_editor_of_the_common_slips(text: str) -> None:
    assert list(jsonschema.Draft202012Validator(json_schema()).iter_errors(yaml.safe_load(text)))


def test_the_reference_page_is_the_generated_one() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "docs"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_values_are_frozen_throughout() -> None:
    deployment = load_text("model: {config: tiny}\ntenants: [{id: a, key: sk}]", source="x")
    assert "sk" not in repr(deployment.tenants[0]).replace("key_env", "")
    for one in fields(deployment):
        held = getattr(deployment, one.name)
        if is_dataclass(held):
            with pytest.raises((AttributeError, TypeError)):
                setattr(held, fields(held)[0].name, None)
