"""The keys of `cost`: units, limits and what contradicts what, each told with its place and the way out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roadworthy.spec.load import check_text, load_text

if TYPE_CHECKING:
    from roadworthy.core.errors import Problem


def problems(cost: str) -> tuple[Problem, ...]:
    deployment, found = check_text(f"model: {{config: tiny}}\ncost: {{{cost}}}", source="x.yaml")
    assert (deployment is None) == bool(found)
    return found


def test_a_whole_purchase_reads() -> None:
    read = load_text(
        """
model: {config: tiny}
cost:
  capex: 1450000
  months: 48
  interest: 10%
  resale: 15%
  node_power: 10.2kW
  pue: 1.3
  kwh_price: 0.1
  space_per_kw: 150
  maintenance: 5%
  staff_per_month: 12000
  spare_nodes: 1
  volume_per_month: 22.8B
  utilisation_by_hour: [0,0,0,0,0,0,0.2,0.5,1,1,1,1,1,1,1,1,1,0.5,0.2,0,0,0,0,0]
  api:
    {name: theirs, input_miss: 0.66, input_hit: 0.022, output: 1.98, peak_multiplier: 2, peak_hours: [1, 2],
     date: "2026-11-30"}
  data_may_leave: false
  needs: [audit, sla]
""",
        source="x.yaml",
    ).cost
    assert (read.capex, read.node_power_w, read.interest_ratio) == (1.45e6, 10_200, 0.10)
    assert read.volume_tokens_per_month == 22_800_000_000
    assert read.api.peak_hours == (1, 2)
    assert read.data_may_leave is False
    assert read.needs == ("audit", "sla")


def test_hours_from_a_shorter_profile_are_refused() -> None:
    (found,) = problems("utilisation_by_hour: [0.5, 0.6]")
    assert (found.path, found.seen) == ("cost.utilisation_by_hour", "2 values")


def test_a_day_without_traffic_is_refused() -> None:
    (found,) = problems(f"utilisation_by_hour: [{', '.join(['0'] * 24)}]")
    assert "24 zeros" in found.seen


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("fixed_per_month: 57000, capex: 1450000", "cost.capex"),
        ("fixed_per_month: 57000, staff_per_month: 1", "cost.staff_per_month"),
        ("fixed_per_month: 57000, spare_nodes: 1", "cost.spare_nodes"),
        ("gpu_hour: 2, pue: 1.3", "cost.pue"),
        ("gpu_hour: 2, months: 48", "cost.months"),
        ("node_power: 10kW, power_per_gpu: 1kW", "cost.node_power"),
        ("api: {output: 1}", "cost.api.input_miss"),
        ("api: {input_miss: 1}", "cost.api.output"),
        ("api: {input_miss: 1, output: 2, input_hit: 1.5}", "cost.api.input_hit"),
        ("api: {peak_hours: [3, 3]}", "cost.api.peak_hours"),
        ("needs: [sla, sla]", "cost.needs"),
        ("usd_rate: 0.9", "cost.usd_rate"),
        (f"utilisation: 0.5, utilisation_by_hour: [{', '.join(['0.4'] * 24)}]", "cost.utilisation"),
    ],
)
def test_a_contradiction_is_named_where_it_stands(text: str, path: str) -> None:
    assert [found.path for found in problems(text)] == [path]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("pue: 0.9", "from 1 to 3"),
        ("pue: 13", "from 1 to 3"),
        ("months: 0", "months from 1 to 120"),
        ("months: 480", "months from 1 to 120"),
        ("interest: 15", '"15%" or 0.15'),
        ("capex: 0", "above 0"),
        ("capex: 1e30", "up to 1e+12"),
        ("node_power: 10200", "10200kW or 10200W"),
        ("node_power: 10.2hp", "kW"),
        ("data_may_leave: maybe", "true or false"),
        ("needs: [speed]", "customisation"),
        ("api: {peak_hours: [24]}", "from 0 to 23"),
        ("volume_per_month: -1", "count of tokens"),
        ("utilisation_by_hour: 0.5", "a list"),
    ],
)
def test_an_absurd_value_gets_the_wanted_one(text: str, word: str) -> None:
    (found,) = problems(text)
    assert word in f"{found.wanted} {found.hint}"


def test_the_section_of_the_guide_reads() -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "buy-or-build.md").read_text(encoding="utf-8")
    section = guide.partition("```yaml\n")[2].partition("```")[0]
    assert section.startswith("cost:")
    _, found = check_text(f"model: {{config: tiny}}\n{section}", source="x.yaml")
    assert not found


def test_leaving_out_what_the_hint_says_mends_it() -> None:
    assert problems("fixed_per_month: 57000, capex: 1450000")
    assert not problems("fixed_per_month: 57000")
    assert not problems("capex: 1450000")
