"""Variants of a document: pairs read, keys found, values changed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml

from roadworthy.core.errors import SpecError
from roadworthy.simulate.outages import Outage, parse_outage
from roadworthy.simulate.what_if import ALL, changed, parse_variant

DOCUMENT: dict[str, Any] = yaml.safe_load("""
workload: {rate: 12/s, prompt_tokens: {p50: 100, p90: 200, p99: 300}}
sla: {ttft_p99: 2s}
tenants:
  - {id: legal, weight: 2, kv_quota: 40GiB}
  - {id: bulk, weight: 0.5}
""")


def with_change(text: str) -> dict[str, Any]:
    return changed(DOCUMENT, parse_variant(text), yaml.safe_load)


def test_a_key_is_found_by_its_path_by_place_or_by_name() -> None:
    assert with_change("workload.rate=24/s")["workload"]["rate"] == "24/s"
    assert with_change("tenants[1].weight=3")["tenants"][1]["weight"] == 3
    assert with_change("tenants.bulk.weight=3")["tenants"][1]["weight"] == 3


def test_sections_that_the_document_leaves_out_are_made() -> None:
    assert with_change("governance.queue.total=5")["governance"] == {"queue": {"total": 5}}


def test_a_factor_multiplies_numbers_and_amounts() -> None:
    assert with_change("workload.rate=x1.5")["workload"]["rate"] == "18/s"
    assert with_change("tenants.legal.weight=x2")["tenants"][0]["weight"] == 4
    assert with_change("tenants.bulk.weight=x2")["tenants"][1]["weight"] == 1.0
    assert with_change("tenants.legal.kv_quota=x0.5")["tenants"][0]["kv_quota"] == "20GiB"


def test_values_may_hold_blanks_and_mappings() -> None:
    tree = with_change("workload.prompt_tokens={p50: 5, p90: 6, p99: 7} sla.ttft_p99=1s")
    assert tree["workload"]["prompt_tokens"] == {"p50": 5, "p90": 6, "p99": 7}
    assert tree["sla"]["ttft_p99"] == "1s"


def test_the_document_itself_stays_as_it_is() -> None:
    before = yaml.safe_dump(DOCUMENT)
    with_change("tenants.legal.weight=9")
    assert yaml.safe_dump(DOCUMENT) == before


def test_traffic_and_outages_are_no_keys_of_the_document() -> None:
    variant = parse_variant("traffic.legal=x2 traffic=3 outage=1@10min+5min sla.ttft_p99=1s")
    assert variant.traffic == (("legal", 2.0), (ALL, 3.0))
    assert variant.outages == (Outage(engine=1, at_s=600.0, lasts_s=300.0),)
    assert variant.changes == (("sla.ttft_p99", "1s"),)


@pytest.mark.parametrize(
    ("text", "replans"),
    [
        ("cluster.nodes=2", True),
        ("engine.settings.max_num_seqs=8", True),
        ("workload.rate=x2", False),
        ("traffic=x2", False),
    ],
)
def test_only_hardware_model_and_engine_are_planned_anew(text: str, replans: bool) -> None:
    assert parse_variant(text).replans is replans


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("workload.rate", "not KEY=VALUE"),
        ("workload.rate=", "not KEY=VALUE"),
        ("traffic.legal=lots", "not a factor"),
        ("outage=engine", "ENGINE@WHEN"),
        ("tenants.nobody.weight=2", "there is no 'nobody'"),
        ("tenants[9].weight=2", "nothing is called 9"),
        ("sla.ttft_p99.x=2", "nothing is called x"),
        ("sla.tpot_p99=x2", "no number there"),
        ("workload..rate=2", "not a key"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(text: str, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        with_change(text)


def test_the_hint_names_the_tenants_there_are() -> None:
    with pytest.raises(SpecError) as caught:
        with_change("tenants.nobody.weight=2")
    assert "legal, bulk" in caught.value.hint


def test_an_outage_without_a_length_lasts_for_ever() -> None:
    assert parse_outage("0@90s") == Outage(engine=0, at_s=90.0, lasts_s=math.inf)
    with pytest.raises(SpecError, match="outage '0@soon'"):
        parse_outage("0@soon")
    with pytest.raises(SpecError, match="cannot be"):
        parse_outage("0@1s+0s")
