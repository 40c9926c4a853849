"""Prometheus: what to scrape, what to record, when to call someone, and the tests that promtool runs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.commented_yaml import Node, Said, Text, said, settings_of, yaml_text
from roadworthy.render.names import engine_addresses, engines_are_named, gateway_admin_address
from roadworthy.render.services.alerts import ENGINES_JOB, GATEWAYS_JOB, Alert, Series
from roadworthy.render.services.engine_alerts import engine_alerts
from roadworthy.render.services.gateway_alerts import gateway_alerts
from roadworthy.render.services.recordings import ENGINE_RECORDINGS, GATEWAY_RECORDINGS, Recording
from roadworthy.render.values import Artifact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.render.values import RenderInput

RULES_FILE, TESTS_FILE = "rules.yml", "rules_test.yml"
SCRAPE_INTERVAL = "15s"


def prometheus_artifacts(inputs: RenderInput) -> tuple[Artifact, ...]:
    """``prometheus.yml``, ``rules.yml``, its promtool tests, and the same as objects for the Prometheus operator."""
    from roadworthy.render.kubernetes.monitoring import monitoring_artifacts

    return (*service_artifacts(inputs), *monitoring_artifacts(inputs))


def service_artifacts(inputs: RenderInput) -> tuple[Artifact, ...]:
    """The three files of a Prometheus that runs on a host."""
    rules = {"groups": rule_groups(inputs)}
    return (
        _artifact("prometheus.yml", _scrape(inputs), header=_scrape_header(inputs)),
        _artifact(RULES_FILE, rules, header="Recording and alert rules. Check: promtool check rules rules.yml"),
        Artifact(
            path=TESTS_FILE,
            text=yaml_text(
                _tests(all_alerts(inputs)),
                header="Each alert fires on its fault and is quiet beside it. Run: promtool test rules rules_test.yml",
            ),
        ),
    )


def all_alerts(inputs: RenderInput) -> tuple[Alert, ...]:
    """Every alert of the deployment, engines first."""
    return (*engine_alerts(inputs), *gateway_alerts(inputs))


def rule_groups(inputs: RenderInput) -> list[Node]:
    """Groups as Prometheus and as the operator's PrometheusRule have them."""
    return [
        {"name": "roadworthy-engines", "rules": [_recording(one) for one in ENGINE_RECORDINGS]},
        {"name": "roadworthy-gateways", "rules": [_recording(one) for one in GATEWAY_RECORDINGS]},
        {"name": "roadworthy-alerts", "rules": [_alert(one, inputs) for one in all_alerts(inputs)]},
    ]


def _artifact(path: str, tree: Node, *, header: str) -> Artifact:
    return Artifact(path=path, text=yaml_text(tree, header=header), settings=settings_of(tree))


def _scrape_header(inputs: RenderInput) -> str:
    lines = [f"Prometheus for {inputs.deployment.name}. Check: promtool check config prometheus.yml"]
    if not engines_are_named(inputs):
        lines.append("The document names no engine.endpoints or cluster.hosts: give the names below an address in DNS.")
    return "\n".join(lines)


def _scrape(inputs: RenderInput) -> dict[str, Node]:
    engines = engine_addresses(inputs)
    tls = any(engine.tls for engine in engines)
    engine_job: dict[str, Node] = {
        "job_name": said(ENGINES_JOB, "alerts know the engines by this name"),
        "metrics_path": said("/metrics", "without a key, even with --api-key: keep the port private"),
    }
    if tls:
        engine_job["scheme"] = said("https", "as engine.endpoints says")
    engine_job["static_configs"] = [
        {"targets": said([engine.text for engine in engines], "every port that answers; its ranks are in label engine")}
    ]
    return {
        "global": {
            "scrape_interval": said(SCRAPE_INTERVAL, "rates over 2 and 5 minutes see 8 and 20 samples"),
            "evaluation_interval": said(SCRAPE_INTERVAL, "as often as there is something new"),
        },
        "rule_files": said([RULES_FILE], "beside this file"),
        "scrape_configs": [
            engine_job,
            {
                "job_name": said(GATEWAYS_JOB, "alerts know the gateways by this name"),
                "static_configs": [
                    {
                        "targets": said(
                            [gateway_admin_address(inputs).text],
                            "the admin port; start gateways with --admin-host so that Prometheus reaches it",
                        )
                    }
                ],
            },
        ],
    }


def _recording(recording: Recording) -> Node:
    return said({"record": recording.name, "expr": _expression(recording.expr)}, recording.why, name=recording.name)


def _alert(alert: Alert, inputs: RenderInput) -> Node:
    rule: dict[str, Node] = {
        "alert": alert.name,
        "expr": _expression(alert.expr),
        "for": alert.for_,
        "labels": {"severity": alert.severity, "deployment": _literal(inputs.deployment.name)},
        "annotations": {"summary": alert.summary, "runbook": alert.runbook},
    }
    return Said(value=rule, why=alert.why, name=alert.name)


def _expression(expr: str) -> Node:
    return Text(text=expr + "\n") if "\n" in expr or '"' in expr else expr


def _literal(text: str) -> str:
    """Labels of alerts are templates: braces of a name must not be read as one."""
    return text.replace("{{", "{ {")


def _tests(alerts: Sequence[Alert]) -> dict[str, Node]:
    cases: list[Node] = []
    for alert in alerts:
        cases.append(_case(alert, alert.fires, "fires", 1))
        cases.append(_case(alert, alert.quiet, "is quiet", 0))
    return {"rule_files": [RULES_FILE], "evaluation_interval": "1m", "tests": cases}


def _case(alert: Alert, series: tuple[Series, ...], what: str, firing: int) -> Node:
    expr = f'count(ALERTS{{alertname="{alert.name}", alertstate="firing"}}) or vector(0)'
    return {
        "name": f"{alert.name} {what}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "promql_expr_test": [
            {"expr": expr, "eval_time": f"{alert.at_minute}m", "exp_samples": [{"labels": "{}", "value": firing}]}
        ],
    }
