"""A deployment written back: the same deployment when it is read again, without its secrets and its defaults."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roadworthy.spec.load import load_text
from roadworthy.spec.write import document_tree

if TYPE_CHECKING:
    from roadworthy.spec.values import Deployment

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*.yaml"))


def read(text: str) -> Deployment:
    return load_text(text, source="x.yaml")


def bare(deployment: Deployment) -> Deployment:
    """Without what depends on the text, and without keys."""
    return replace(deployment, digest="", tenants=tuple(replace(one, key=None) for one in deployment.tenants))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_reads_back_as_itself(path: Path) -> None:
    deployment = read(path.read_text())
    assert bare(read(json.dumps(document_tree(deployment)))) == bare(deployment)


def test_secrets_are_left_out() -> None:
    deployment = read(
        "model: {config: tiny}\ntenants: [{id: a, key: sk-secret}]\n"
        "gateway: {state_url: 'postgresql://u:sk-secret@h/n', shared_url: 'redis://:sk-secret@h'}"
    )
    assert "sk-secret" not in json.dumps(document_tree(deployment))


def test_what_is_as_by_default_is_left_out() -> None:
    assert document_tree(read("model: {config: tiny}\ngateway: {port: 0}\nworkload: {rate: 1/s}")) == {
        "name": "x",
        "model": {"config": "tiny", "served_name": "tiny"},
    }


def test_both_ways_to_ask_for_goodput_are_written() -> None:
    for asked in ("12/s", "0.95"):
        deployment = read(f"model: {{config: tiny}}\nsla: {{goodput: {asked}}}")
        assert read(json.dumps(document_tree(deployment))).sla == deployment.sla
