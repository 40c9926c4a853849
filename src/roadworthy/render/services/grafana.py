"""Grafana: one board and what provisions it. JSON holds no comments, so each panel carries its reason in its text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from roadworthy.render.commented_yaml import Node, said, settings_of, yaml_text
from roadworthy.render.names import object_name
from roadworthy.render.services.panels import Panel, rows
from roadworthy.render.values import Artifact, Emitted

if TYPE_CHECKING:
    from roadworthy.render.values import RenderInput

SCHEMA_VERSION = 39
"""Of the dashboard model; Grafana migrates older ones forward."""
COLUMNS, WIDTH, HEIGHT = 3, 8, 8
BOARD_FOLDER = "/var/lib/grafana/dashboards"
DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def grafana_artifacts(inputs: RenderInput) -> tuple[Artifact, ...]:
    """``dashboards/roadworthy.json``, and the provisioning of the board and of its data source."""
    board = dashboard(inputs)
    provider, source = _provider(), _data_source()
    return (
        Artifact(
            path="dashboards/roadworthy.json", text=json.dumps(board, indent=2) + "\n", settings=_board_settings(board)
        ),
        Artifact(
            path="provisioning/dashboards/roadworthy.yaml",
            text=yaml_text(
                provider, header=f"dashboards/ goes to {BOARD_FOLDER}, this to Grafana's provisioning folder."
            ),
            settings=settings_of(provider),
        ),
        Artifact(path="provisioning/datasources/prometheus.yaml", text=yaml_text(source), settings=settings_of(source)),
    )


def dashboard(inputs: RenderInput) -> dict[str, Any]:
    """The board as plain data, in the model that Grafana 10 and later read."""
    return {
        "uid": object_name(inputs.deployment.name),
        "title": f"roadworthy: {inputs.deployment.name}",
        "description": f"{inputs.deployment.model.served_name}, {inputs.chosen.layout.label}",
        "tags": ["roadworthy", "vllm"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_source_variable(), _engine_variable()]},
        "annotations": {"list": [_alerts_on_the_board()]},
        "panels": _panels(inputs),
    }


def _source_variable() -> dict[str, Any]:
    return {
        "name": "datasource", "type": "datasource", "label": "Prometheus", "query": "prometheus", "hide": 0,
        "multi": False, "includeAll": False, "refresh": 1, "regex": "", "options": [],
    }  # fmt: skip


def _engine_variable() -> dict[str, Any]:
    return {
        "name": "engine", "type": "query", "label": "Engine", "datasource": DATA_SOURCE, "hide": 0, "multi": True,
        "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "refresh": 2, "sort": 1,
        "query": {"query": "label_values(vllm:num_requests_running, instance)", "refId": "engine"},
        "definition": "label_values(vllm:num_requests_running, instance)", "regex": "", "options": [],
    }  # fmt: skip


def _alerts_on_the_board() -> dict[str, Any]:
    return {
        "name": "Alerts", "enable": True, "datasource": DATA_SOURCE, "iconColor": "red",
        "expr": 'ALERTS{alertstate="firing", severity=~"critical|warning"}',
        "titleFormat": "{{alertname}}", "tagKeys": "severity,instance", "step": "60s",
    }  # fmt: skip


def _panels(inputs: RenderInput) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    top = 0
    for row in rows(inputs):
        found.append(
            {"id": len(found) + 1, "type": "row", "title": row.title, "collapsed": False, "panels": [],
             "gridPos": {"x": 0, "y": top, "w": COLUMNS * WIDTH, "h": 1}}
        )  # fmt: skip
        for index, panel in enumerate(row.panels):
            place = {
                "x": index % COLUMNS * WIDTH, "y": top + 1 + index // COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT,
            }  # fmt: skip
            found.append(_panel(panel, number=len(found) + 1, place=place))
        top += 1 + -(-len(row.panels) // COLUMNS) * HEIGHT
    return found


def _panel(panel: Panel, *, number: int, place: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.limit is not None:
        steps.append({"color": "red", "value": float(f"{panel.limit:.9g}")})  # 0.7, not 0.7000000000000001
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.why,
        "datasource": DATA_SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": {
                    "fillOpacity": 5,
                    "showPoints": "never",
                    "thresholdsStyle": {"mode": "off" if panel.limit is None else "line"},
                },
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": DATA_SOURCE, "expr": expr, "legendFormat": legend}
            for index, (expr, legend) in enumerate(panel.queries)
        ],
    }


def _board_settings(board: dict[str, Any]) -> tuple[Emitted, ...]:
    return tuple(
        Emitted(
            kind="field", name=f"panels[{panel['title']}]",
            value="; ".join(target["expr"] for target in panel["targets"]), why=panel["description"].rstrip("."),
        )
        for panel in board["panels"]
        if panel["type"] != "row"
    )  # fmt: skip


def _provider() -> dict[str, Node]:
    return {
        "apiVersion": 1,
        "providers": [
            {
                "name": "roadworthy",
                "folder": said("roadworthy", "beside other deployments' boards"),
                "type": "file",
                "allowUiUpdates": said(False, "the file is the truth; render again instead of editing"),
                "options": {"path": said(BOARD_FOLDER, "where the JSON lies on Grafana's host")},
            }
        ],
    }


def _data_source() -> dict[str, Node]:
    return {
        "apiVersion": 1,
        "datasources": [
            {
                "name": "Prometheus",
                "type": "prometheus",
                "access": said("proxy", "Grafana asks, not the browser"),
                "url": said("http://127.0.0.1:9090", "where Prometheus listens; leave this file out if you have one"),
                "isDefault": said(True, "boards that name none use it"),
                "jsonData": {"timeInterval": said("15s", "the scrape interval: rates need at least four of them")},
            }
        ],
    }
