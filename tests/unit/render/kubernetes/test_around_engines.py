"""What stands around engines: the gateway and its document, keys by reference, the checkpoint, policies and budgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from roadworthy.cli.tenant_keys import with_keys
from roadworthy.gateway.config import GatewayConfig
from roadworthy.plan.weights import checkpoint_totals
from roadworthy.spec.load import load_text
from support.rendering import LLAMA_ON_8_H100, TINY, V4_ON_32_H100, render_input, rendered

TENANTS = """\
tenants:
  - {id: chat, key_env: CHAT_KEY, weight: 3, priority: -1, kv_quota: 200GiB, rpm: 60}
  - {id: batch, key: sk-literal-key, concurrency: 64, models: [llama], daily_tokens: 400M, tpm: 5M, fallback: small}
gateway: {port: 9080, admin_port: 9081}
"""


def objects(document: str, file: str, target: str = "lws") -> dict[str, Any]:
    text = rendered(target, render_input(document))[file].text
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def gateway_container(document: str) -> Any:
    return objects(document, "gateway.yaml")["Deployment"]["spec"]["template"]["spec"]["containers"][0]


def test_the_gateways_document_is_one_that_the_gateway_starts_with() -> None:
    text = objects(LLAMA_ON_8_H100 + TENANTS, "gateway.yaml")["ConfigMap"]["data"]["roadworthy.yaml"]
    deployment = load_text(text, source="roadworthy.yaml")
    keys = {one["name"]: f"sk-{index}" for index, one in enumerate(gateway_container(LLAMA_ON_8_H100 + TENANTS)["env"])}
    config = GatewayConfig.from_deployment(deployment, tenants=with_keys(deployment.tenants, keys))
    asked = render_input(LLAMA_ON_8_H100 + TENANTS).deployment
    assert (config.host, config.port, config.admin_port) == ("0.0.0.0", 9080, 9081)
    assert len(config.endpoints) == render_input(LLAMA_ON_8_H100 + TENANTS).chosen.layout.replicas
    for tenant, wanted in zip(deployment.tenants, asked.tenants, strict=True):
        assert replace(tenant, key=None, key_env=None) == replace(wanted, key=None, key_env=None)
    assert deployment.model == asked.model


def test_no_key_is_in_any_file() -> None:
    for target in ("lws", "kuberay", "check", "gateway-api", "envoy", "prometheus", "grafana"):
        for artifact in rendered(target, render_input(LLAMA_ON_8_H100 + TENANTS)).values():
            assert "sk-literal-key" not in artifact.text
            assert "sk-literal-key" not in str(artifact.settings)


def test_keys_come_from_the_secret_that_the_document_names() -> None:
    container = gateway_container(LLAMA_ON_8_H100 + TENANTS + "kubernetes: {tenant_secret: our-keys}\n")
    references = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in container["env"]}
    assert references == {
        "CHAT_KEY": {"name": "our-keys", "key": "chat"},
        "ROADWORTHY_KEY_1": {"name": "our-keys", "key": "batch"},
    }


def test_the_gateway_runs_without_rights_and_keeps_its_admin_port_inside() -> None:
    container = gateway_container(LLAMA_ON_8_H100 + TENANTS)
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "admin"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "admin"}
    (service_port,) = objects(LLAMA_ON_8_H100 + TENANTS, "gateway.yaml")["Service"]["spec"]["ports"]
    assert service_port["targetPort"] == "http", "the admin port is in no Service"


def test_the_gateways_command_is_one_that_the_command_line_takes() -> None:
    from roadworthy.cli.gateway import command

    container = gateway_container(LLAMA_ON_8_H100 + TENANTS)
    assert (container["command"], container["args"][0]) == (["roadworthy"], "gateway")
    context = command.make_context("gateway", list(container["args"][1:]))
    assert context.params["admin_host"] == "0.0.0.0"
    grace = objects(LLAMA_ON_8_H100, "gateway.yaml")["Deployment"]["spec"]["template"]["spec"]
    assert grace["terminationGracePeriodSeconds"] > context.params["drain_s"]


def test_the_volume_holds_the_checkpoint() -> None:
    claim = objects(V4_ON_32_H100, "model-cache.yaml")["PersistentVolumeClaim"]["spec"]
    size_gib = int(claim["resources"]["requests"]["storage"].removesuffix("Gi"))
    weights_bytes = checkpoint_totals(render_input(V4_ON_32_H100).model).bytes
    assert weights_bytes < size_gib * 2**30 < 1.3 * weights_bytes
    assert claim["accessModes"] == ["ReadWriteMany"]


def test_the_download_writes_where_engines_read() -> None:
    job = objects(V4_ON_32_H100, "model-cache.yaml")["Job"]["spec"]["template"]["spec"]["containers"][0]
    leader = objects(V4_ON_32_H100, "leaderworkerset.yaml")["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    served = leader["leaderTemplate"]["spec"]["containers"][0]["args"][1]
    assert job["command"] == ["hf", "download"]
    assert job["args"] == ["deepseek-ai/DeepSeek-V4-Pro", "--local-dir", served]
    token = next(one for one in job["env"] if one["name"] == "HF_TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": "hugging-face", "key": "token", "optional": True}


def test_a_checkpoint_of_ones_own_is_not_downloaded() -> None:
    assert "Job" not in objects(TINY, "model-cache.yaml")
    assert "copy it" in rendered("lws", render_input(TINY))["model-cache.yaml"].text


def test_a_folder_on_every_node_needs_no_volume() -> None:
    files = rendered("lws", render_input(V4_ON_32_H100 + "kubernetes: {model_path: /mnt/nvme}\n"))
    assert "model-cache.yaml" not in files
    group = yaml.safe_load(files["leaderworkerset.yaml"].text)["spec"]["leaderWorkerTemplate"]
    volumes = group["leaderTemplate"]["spec"]["volumes"]
    assert {"name": "model", "hostPath": {"path": "/mnt/nvme", "type": "Directory"}} in volumes


def test_engines_are_called_by_gateways_each_other_and_prometheus_only() -> None:
    text = rendered("lws", render_input(V4_ON_32_H100))["network-policy.yaml"].text
    engines, gateways = yaml.safe_load_all(text)
    peers, from_gateways, from_monitoring = engines["spec"]["ingress"]
    assert "ports" not in peers, "ranks use many ports"
    assert [one["port"] for one in from_gateways["ports"]] == [8000]
    assert from_monitoring["from"][0]["namespaceSelector"]
    everyone, monitoring = gateways["spec"]["ingress"]
    assert "from" not in everyone
    assert [one["port"] for one in monitoring["ports"]] == [8081]


def test_the_policy_says_where_it_does_not_hold() -> None:
    several = rendered("lws", render_input(V4_ON_32_H100))["network-policy.yaml"].text
    single = rendered("lws", render_input(LLAMA_ON_8_H100))["network-policy.yaml"].text
    assert "do NOT apply policies to such pods" in several
    assert "do NOT apply" not in single


@pytest.mark.parametrize(
    ("document", "layout", "engines"),
    [(V4_ON_32_H100, "TP8 DP4 EP32", 0), (V4_ON_32_H100, "2 x TP8 PP2", 0), (LLAMA_ON_8_H100, "8 x TP1", 1)],
)
def test_a_drain_never_takes_one_pod_of_a_group(document: str, layout: str, engines: int) -> None:
    text = rendered("lws", render_input(document, layout))["disruption-budget.yaml"].text
    first, gateways = yaml.safe_load_all(text)
    assert first["spec"]["maxUnavailable"] == engines
    assert gateways["spec"]["maxUnavailable"] == 1


def test_the_route_leads_to_the_gateways_service_over_https_and_has_no_time_limit() -> None:
    document = LLAMA_ON_8_H100 + "kubernetes: {host_name: llm.example.com, tls_secret: cert, gateway_class: cilium}\n"
    gateway = objects(document, "gateway.yaml", "gateway-api")["Gateway"]["spec"]
    route = objects(document, "httproute.yaml", "gateway-api")["HTTPRoute"]["spec"]
    (listener,) = gateway["listeners"]
    assert (listener["protocol"], listener["hostname"]) == ("HTTPS", "llm.example.com")
    assert listener["tls"]["certificateRefs"] == [{"kind": "Secret", "name": "cert"}]
    assert gateway["gatewayClassName"] == "cilium"
    (rule,) = route["rules"]
    assert rule["backendRefs"][0]["name"] == objects(document, "gateway.yaml")["Service"]["metadata"]["name"]
    assert rule["timeouts"]["request"] == "0s"
    assert "sessionPersistence" not in rule


def test_the_guide_names_every_file_that_is_applied() -> None:
    for target in ("lws", "kuberay"):
        files = rendered(target, render_input(V4_ON_32_H100 + TENANTS))
        text = files["README.md"].text
        for path in files:
            assert path in text or path == "README.md", path


def test_every_setting_of_every_manifest_has_its_reason() -> None:
    """Scalars outside of identity (kind, names, labels) stand on or under a line with a comment."""
    for path, artifact in rendered("lws", render_input(V4_ON_32_H100 + TENANTS)).items():
        if path.endswith(".yaml"):
            assert artifact.text.startswith("#"), path
            assert artifact.settings, path
            assert all(setting.why and not setting.why.endswith(".") for setting in artifact.settings)


def gateway_document(document: str) -> dict[str, Any]:
    text = objects(document, "gateway.yaml")["ConfigMap"]["data"]["roadworthy.yaml"]
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_routing_reaches_the_gateways_and_what_belongs_to_one_host_does_not() -> None:
    document = LLAMA_ON_8_H100 + (
        "gateway:\n"
        "  access_log: /var/log/gateway.jsonl\n"
        "  workers: 3\n"
        "  state_url: 'postgresql://u:sk-password@h/n'\n"
        "  routing: {policy: session, session_header: x-chat}\n"
        "cost: {gpu_hour: 2}\n"
        "kubernetes: {namespace: llm}\n"
    )
    found = gateway_document(document)
    assert found["gateway"]["routing"] == {"policy": "session", "session_header": "x-chat"}
    assert not {"access_log", "state_url", "tls"} & found["gateway"].keys()
    assert not {"cost", "kubernetes"} & found.keys()
    container = gateway_container(document)
    assert "--access-log=-" in container["args"]
    assert container["resources"]["limits"]["cpu"] == "3"
    text = rendered("lws", render_input(document))["gateway.yaml"].text
    assert "sk-password" not in text
    assert "# gateway.state_url is left out" in text


def test_a_lane_of_engines_elsewhere_is_left_out_with_a_remark() -> None:
    document = LLAMA_ON_8_H100 + (
        "engine: {endpoints: [{url: 'http://a:1'}, {url: 'http://b:1'}]}\n"
        "gateway: {lanes: {long: {above_tokens: 4096, engines: ['http://b:1']}}}\n"
    )
    assert "lanes" not in gateway_document(document)["gateway"]
    assert "# gateway.lanes is left out" in rendered("lws", render_input(document))["gateway.yaml"].text
    kept = LLAMA_ON_8_H100 + "gateway: {lanes: {long: {above_tokens: 4096, slots: 2}}}\n"
    assert gateway_document(kept)["gateway"]["lanes"] == {"long": {"above_tokens": 4096, "slots": 2}}


def test_a_checkpoint_of_ones_own_is_mounted_for_the_gateway_too() -> None:
    """Its document names the folder, and the gateway refuses one that is not there."""
    document = "name: own\nmodel: {config: ./my-model, served_name: my-model}\nengine: {version: 0.32.0}\n"
    pod = objects(document, "gateway.yaml")["Deployment"]["spec"]["template"]["spec"]
    folder = gateway_document(document)["model"]["config"]
    assert folder == "/models/my-model"
    leader = objects(document, "leaderworkerset.yaml")["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"][
        "leaderTemplate"
    ]
    assert leader["spec"]["containers"][0]["args"][1] == folder
    assert {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]} == {"/etc/roadworthy", "/models"}
    assert {volume["name"] for volume in pod["volumes"]} == {"document", "model"}


def test_many_tenants_do_not_make_a_long_command() -> None:
    tenants = ", ".join(f"{{id: t{number}, key: sk-{number}}}" for number in range(60))
    text = rendered("lws", render_input(LLAMA_ON_8_H100 + f"tenants: [{tenants}]\n"))["gateway.yaml"].text
    assert "... and 40 more" in text
    assert len(gateway_container(LLAMA_ON_8_H100 + f"tenants: [{tenants}]\n")["env"]) == 60
