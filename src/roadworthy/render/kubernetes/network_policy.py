"""Who may call whom, and how many may go at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.commented_yaml import Node, said
from roadworthy.render.kubernetes.objects import (
    ENGINE_COMPONENT,
    GATEWAY_COMPONENT,
    gateway_admin_port,
    gateway_port,
    head,
    manifest_file,
    names_of,
    selector,
)

if TYPE_CHECKING:
    from roadworthy.render.values import Artifact, RenderInput

MONITORING = {"kubernetes.io/metadata.name": "monitoring"}


def network_policy_artifact(
    inputs: RenderInput, *, host_network: bool, engine_port: int, operator: bool = False
) -> Artifact:
    """Two policies: engines hear gateways, each other and Prometheus; the gateways' admin port hears Prometheus.

    Args:
        operator: KubeRay's operator asks the head for its state, so it must get through.
    """
    lines = ["Ingress only. Engines' own routes have no key (/metrics, /pause in dev mode, ...), hence these rules."]
    if host_network:
        lines.append(
            "Engines use the host's network here: most network plugins do NOT apply policies to such pods, so close "
            f"port {engine_port} and the ranks' ports with a firewall on the nodes."
        )
    lines.append(f"Prometheus is expected in the namespace {MONITORING['kubernetes.io/metadata.name']}.")
    return manifest_file(
        "network-policy.yaml",
        _engines(inputs, engine_port, operator=operator),
        _gateways(inputs),
        header="\n".join(lines),
    )


def disruption_artifact(inputs: RenderInput, *, pods_of_an_engine: int) -> Artifact:
    """Budgets for voluntary evictions, such as draining a node."""
    names, replicas = names_of(inputs), inputs.chosen.layout.replicas
    engines = said(1 if pods_of_an_engine == 1 and replicas > 1 else 0, _engine_why(inputs, pods_of_an_engine))
    gateways = said(1, "the others serve; with one replica a drain stops the service for a moment")
    return manifest_file(
        "disruption-budget.yaml",
        _budget(inputs, ENGINE_COMPONENT, names.engine, {"maxUnavailable": engines}),
        _budget(inputs, GATEWAY_COMPONENT, names.gateway, {"maxUnavailable": gateways}),
        header="How many pods a drain may take at once. It does not hold against a node that fails.",
    )


def _engine_why(inputs: RenderInput, pods_of_an_engine: int) -> str:
    if pods_of_an_engine > 1:
        return "evicting one pod stops its whole engine, for a load of tens of minutes: drain by deleting the group"
    if inputs.chosen.layout.replicas == 1:
        return "the only engine: evicting it stops the service"
    return "one engine at a time; the others take its load"


def _engines(inputs: RenderInput, engine_port: int, *, operator: bool) -> Node:
    asking: list[Node] = [{"from": [_operator()]}] if operator else []
    return _policy(
        inputs,
        ENGINE_COMPONENT,
        names_of(inputs).engine,
        [
            {
                "from": [_pods(inputs, ENGINE_COMPONENT)],
            },
            {
                "from": [_pods(inputs, GATEWAY_COMPONENT)],
                "ports": [{"port": said(engine_port, "requests and health"), "protocol": "TCP"}],
            },
            {
                "from": [_monitoring()],
                "ports": [{"port": said(engine_port, "/metrics"), "protocol": "TCP"}],
            },
            *asking,
        ],
        "ranks use many ports (29500 and up, and random ones): open between them; outside only the HTTP port",
    )


def _gateways(inputs: RenderInput) -> Node:
    return _policy(
        inputs,
        GATEWAY_COMPONENT,
        names_of(inputs).gateway,
        [
            {"ports": [{"port": said(gateway_port(inputs), "clients; keys are checked there"), "protocol": "TCP"}]},
            {
                "from": [_monitoring()],
                "ports": [{"port": said(gateway_admin_port(inputs), "the admin port has no key"), "protocol": "TCP"}],
            },
        ],
        "the data port for all, the admin port for Prometheus; probes come from the node and always pass",
    )


def _policy(inputs: RenderInput, component: str, name: str, rules: list[Node], why: str) -> Node:
    return {
        **head(inputs, api="networking.k8s.io/v1", kind="NetworkPolicy", name=name, component=component),
        "spec": {
            "podSelector": {"matchLabels": said(selector(inputs, component), "whom it protects")},
            "policyTypes": said(["Ingress"], "what they call is left alone"),
            "ingress": said(rules, why),
        },
    }


def _pods(inputs: RenderInput, component: str) -> Node:
    return {"podSelector": {"matchLabels": selector(inputs, component)}}


def _monitoring() -> Node:
    return {"namespaceSelector": {"matchLabels": said(dict(MONITORING), "where Prometheus runs; change it to yours")}}


def _operator() -> Node:
    return {
        "namespaceSelector": said({}, "in whatever namespace it runs"),
        "podSelector": {
            "matchLabels": said({"app.kubernetes.io/name": "kuberay-operator"}, "asks the head how Ray and Serve are")
        },
    }


def _budget(inputs: RenderInput, component: str, name: str, limit: dict[str, Node]) -> Node:
    return {
        **head(inputs, api="policy/v1", kind="PodDisruptionBudget", name=name, component=component),
        "spec": {**limit, "selector": {"matchLabels": said(selector(inputs, component), "whom it counts")}},
    }
