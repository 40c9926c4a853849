"""The board: a structure that Grafana reads, queries that exist, lines where the document draws them."""

from __future__ import annotations

import json
from typing import Any

import yaml

from support.rendering import LLAMA_ON_8_H100, V4_ON_32_H100, render_input, rendered

BOARD = "dashboards/roadworthy.json"


def board(document: str = V4_ON_32_H100) -> Any:
    return json.loads(rendered("grafana", render_input(document))[BOARD].text)


def panels(document: str = V4_ON_32_H100) -> dict[str, Any]:
    return {panel["title"]: panel for panel in board(document)["panels"] if panel["type"] != "row"}


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    found = board()["panels"]
    assert len({panel["id"] for panel in found}) == len(found)
    taken: set[tuple[int, int]] = set()
    for panel in found:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_panel_says_why_one_looks_at_it_and_asks_something() -> None:
    for panel in panels().values():
        assert len(panel["description"]) > 15
        assert panel["targets"]
        assert all(target["expr"] and target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


def test_lines_are_drawn_where_the_document_promises() -> None:
    document = LLAMA_ON_8_H100 + "sla: {ttft_p99: 700ms, tpot_p99: 33ms, success: 99.5%}\n"
    steps = {
        title: [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
        for title, panel in panels(document).items()
    }
    assert steps["Time to first token, p99"] == [None, 0.7]
    assert steps["Time per output token, p99"] == [None, 0.033]
    assert abs(steps["Failed requests"][1] - 0.005) < 1e-9
    assert len(panels()["Time to first token, p99"]["fieldConfig"]["defaults"]["thresholds"]["steps"]) == 1


def test_variables_that_queries_use_are_there() -> None:
    names = {variable["name"] for variable in board()["templating"]["list"]}
    text = json.dumps(board())
    assert names == {"datasource", "engine"}
    assert "$engine" in text
    assert "${datasource}" in text


def test_provisioning_finds_the_board_and_names_a_data_source() -> None:
    files = rendered("grafana", render_input(V4_ON_32_H100))
    (provider,) = yaml.safe_load(files["provisioning/dashboards/roadworthy.yaml"].text)["providers"]
    assert (provider["type"], provider["allowUiUpdates"]) == ("file", False)
    (source,) = yaml.safe_load(files["provisioning/datasources/prometheus.yaml"].text)["datasources"]
    assert source["type"] == "prometheus"
