"""The Prometheus operator's objects: which pods to scrape, and the same rules as for a Prometheus on a host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.commented_yaml import Node, said
from roadworthy.render.kubernetes.objects import (
    ENGINE_COMPONENT,
    GATEWAY_COMPONENT,
    head,
    manifest_file,
    names_of,
    selector,
)
from roadworthy.render.services.alerts import ENGINES_JOB, GATEWAYS_JOB
from roadworthy.render.services.prometheus import SCRAPE_INTERVAL, rule_groups

if TYPE_CHECKING:
    from roadworthy.render.values import Artifact, RenderInput

API = "monitoring.coreos.com/v1"


def monitoring_artifacts(inputs: RenderInput) -> tuple[Artifact, ...]:
    """``podmonitor.yaml`` and ``prometheusrule.yaml``."""
    names = names_of(inputs)
    rule = {
        **head(inputs, api=API, kind="PrometheusRule", name=f"{names.deployment}-rules", component="rules"),
        "spec": {"groups": rule_groups(inputs)},
    }
    monitors = (
        _monitor(inputs, ENGINE_COMPONENT, names.engine, port="http", job=ENGINES_JOB, answering=True),
        _monitor(inputs, GATEWAY_COMPONENT, names.gateway, port="admin", job=GATEWAYS_JOB, answering=False),
    )
    need = (
        "Needs the Prometheus operator; its own selectors (podMonitorSelector, ruleSelector) must match these labels."
    )
    return (
        manifest_file("podmonitor.yaml", *monitors, header=need),
        manifest_file("prometheusrule.yaml", rule, header=need),
    )


def _monitor(inputs: RenderInput, component: str, name: str, *, port: str, job: str, answering: bool) -> Node:
    wanted = selector(inputs, component)
    if answering:
        wanted["roadworthy/role"] = "leader"
    return {
        **head(inputs, api=API, kind="PodMonitor", name=name, component=component),
        "spec": {
            "selector": {
                "matchLabels": said(
                    wanted, "pods that answer HTTP; workers of a group do not" if answering else "its pods"
                )
            },
            "podMetricsEndpoints": [
                {
                    "port": said(port, "the container port of that name"),
                    "path": said("/metrics", "without a key: the network policy says who may ask"),
                    "interval": said(SCRAPE_INTERVAL, "as in prometheus.yml"),
                    "relabelings": [
                        {
                            "action": "replace",
                            "targetLabel": said("job", "the name by which the alerts know them"),
                            "replacement": job,
                        }
                    ],
                }
            ],
        },
    }
