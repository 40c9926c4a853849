"""What the gateway takes from the document's plan."""

from __future__ import annotations

from pathlib import Path

from roadworthy.cli.gateway_shape import plan_for, with_plan
from roadworthy.gateway.config import GatewayConfig
from roadworthy.spec.load import load_text

DOCUMENT = """
model: {{config: {model}, max_model_len: 8K}}
cluster: {{nodes: 1, gpus_per_node: 2, gpu: H100-80GB}}
engine: {{version: 0.33.0, settings: {{tensor_parallel_size: 1, max_num_seqs: 64}}}}
tenants: [{tenants}]
"""
TWO = "{id: a, key: sk-a}, {id: b, key: sk-b}"


def planned(tenants: str = TWO, model: str = "Llama-3.1-8B", more: str = "") -> GatewayConfig:
    deployment = load_text(DOCUMENT.format(tenants=tenants, model=model) + more, source="t")
    config = GatewayConfig.from_deployment(
        deployment, tenants=deployment.tenants, endpoints=("http://127.0.0.1:1", "http://127.0.0.1:2")
    )
    return with_plan(config, plan_for(deployment, base=Path()), max_num_seqs=deployment.engine.settings["max_num_seqs"])


def test_tenants_that_share_engines_get_their_room_and_pace() -> None:
    config = planned()
    assert config.prefill is not None
    assert config.prefill.tokens_per_s > 10_000
    assert config.backlog_s == 1.0
    assert config.governance.slots_per_engine == 64
    assert config.shape is not None
    assert config.replica is not None


def test_what_the_document_says_of_slots_goes_before() -> None:
    assert planned(more="governance: {slots_per_engine: 5}").governance.slots_per_engine == 5


def test_one_tenant_alone_pays_for_no_plan() -> None:
    config = planned(tenants="{id: a, key: sk-a}")
    assert (config.prefill, config.shape, config.governance.slots_per_engine) == (None, None, None)


def test_engines_that_no_plan_explains_are_served_without_bounds() -> None:
    assert planned(model="deepseek-ai/DeepSeek-V4-Pro").prefill is None, "two GPUs cannot hold it"
