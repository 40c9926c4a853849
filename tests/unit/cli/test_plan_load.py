"""`roadworthy plan` with queueing, its HTML report and two plans side by side."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from roadworthy.advise.ranking import distinct, name_of
from roadworthy.cli.plan import command
from roadworthy.cli.plan_section import plan_section
from roadworthy.cli.wiring import load_planned, with_queueing
from roadworthy.core.errors import SpecError

FLASH = "deepseek-v4-flash-2xh200.yaml"


def run(*arguments: str, columns: int = 80) -> Result:
    env = {"COLUMNS": str(columns), "NO_COLOR": "1"}
    return CliRunner(env=env).invoke(command, list(arguments), standalone_mode=False)


def document(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exception is None
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


@pytest.fixture(scope="module")
def flash() -> dict[str, Any]:
    return document(str(Path(__file__).resolve().parents[3] / "examples" / FLASH))


def test_simulated_numbers_stand_beside_the_analytic_ones(flash: dict[str, Any]) -> None:
    assert flash["ranked_by"] == "simulation"
    best = flash["layouts"][0]["predicted"]
    assert {"ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s"} <= best.keys() & best["simulated"].keys()
    assert best["simulated"]["requests"] >= 1000
    assert best["simulated"]["verdict"] in ("met", "missed", "undecided")
    assert best["ttft_p99_s"] != best["simulated"]["ttft_p99_s"]


def test_what_meets_the_sla_in_simulation_stands_before_what_does_not(flash: dict[str, Any]) -> None:
    results = [layout["predicted"]["simulated"] for layout in flash["layouts"] if layout["predicted"]]
    verdicts = [result["verdict"] for result in results if result]
    order = {"met": 0, "undecided": 1, "missed": 2}
    assert verdicts == sorted(verdicts, key=order.__getitem__)


def test_without_queueing_nothing_is_simulated(examples: Path) -> None:
    plain = document(str(examples / FLASH), "--no-queueing")
    assert plain["ranked_by"] == "analytic"
    assert all(not layout["predicted"] or layout["predicted"]["simulated"] is None for layout in plain["layouts"])


@pytest.mark.parametrize("columns", [80, 120])
def test_the_tables_of_load_keep_to_the_width_and_cut_nothing(examples: Path, columns: int) -> None:
    text = run(str(examples / FLASH), "--all", columns=columns).stdout
    assert max(map(len, text.splitlines())) <= columns
    assert "…" not in text
    for word in ("simulated", "analytic", "Latency against throughput", "ordered by simulation"):
        assert word in text


class Page(HTMLParser):
    """Every tag with its attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def self_contained(text: str) -> Page:
    page = Page(text)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert not any(name in attributes for _, attributes in page.tags for name in ("src", "href", "onclick"))
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert "url(" not in text
    return page


def test_the_page_holds_every_part_and_nothing_from_outside(examples: Path, tmp_path: Path) -> None:
    target = tmp_path / "plan.html"
    result = run(str(examples / FLASH), "--html", str(target))
    assert result.return_value == 0
    assert f"wrote {target}" in result.stderr
    page = self_contained(target.read_text(encoding="utf-8"))
    headings = (
        "Memory of every distinct rank", "KV capacity against context length", "At the asked rate",
        "Latency against throughput", "Settings, and why", "Break-even", "Every layout, best first", "Assumptions",
    )  # fmt: skip
    assert all(heading in page.text for heading in headings)
    bars = [attributes for tag, attributes in page.tags if tag == "rect" and attributes.get("class") == "frame"]
    assert len(bars) == len(document(str(examples / FLASH))["layouts"][0]["ranks"])


def test_the_page_draws_own_cost_against_the_apis(examples: Path, tmp_path: Path) -> None:
    target = tmp_path / "plan.html"
    run(str(examples / "deepseek-v4-pro-32xh100.yaml"), "--no-queueing", "--html", str(target))
    page = self_contained(target.read_text(encoding="utf-8"))
    curves = {attributes.get("class") for tag, attributes in page.tags if tag in ("path", "polyline")}
    assert {"own", "api"} <= curves
    assert "per million tokens at the planned throughput" in page.text


def test_a_page_of_a_plan_where_nothing_fits_says_what_would_be_needed(examples: Path, tmp_path: Path) -> None:
    target = tmp_path / "plan.html"
    assert run(str(examples / "kimi-k3-fp8-32xh100.yaml"), "--html", str(target)).return_value == 1
    page = self_contained(target.read_text(encoding="utf-8"))
    assert "Nothing fits" in page.text
    assert "38 x H100-80GB" in page.text


def test_a_page_that_cannot_be_written_is_refused_before_the_work(examples: Path, tmp_path: Path) -> None:
    result = run(str(examples / FLASH), "--html", str(tmp_path / "missing" / "plan.html"))
    assert isinstance(result.exception, SpecError)
    assert result.stdout == ""


def test_a_page_takes_the_place_of_no_pipe_or_device(examples: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = run(str(examples / FLASH), "--no-queueing", "--html", str(pipe))
    assert isinstance(result.exception, SpecError)
    assert pipe.is_fifo()


def test_two_plans_stand_side_by_side_in_words(examples: Path, tmp_path: Path) -> None:
    target = tmp_path / "compare.html"
    one, other = str(examples / "kimi-k3-32xh100.yaml"), str(examples / "kimi-k3-32xh200.yaml")
    result = run(one, "--no-queueing", "--compare", other, "--html", str(target))
    assert result.return_value == 0
    text = " ".join(result.stdout.split())
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "GPU: A H100-80GB, B H200-141GB" in text
    assert "the workload differs" in text
    assert "times and tokens/s are analytic, before queueing" in text
    page = self_contained(target.read_text(encoding="utf-8"))
    assert "A: kimi-k3-32xh100" in page.text
    assert "B: kimi-k3-32xh200" in page.text


def test_a_document_against_itself_differs_in_nothing(examples: Path) -> None:
    spec = str(examples / FLASH)
    found = document(spec, "--no-queueing", "--compare", spec)
    assert len(found["differences"]) == 1
    assert found["differences"][0].startswith("both run as")
    assert found["a"] == found["b"]


def test_the_comparison_ends_with_findings_when_one_does_not_fit(examples: Path) -> None:
    one, other = str(examples / "kimi-k3-32xh100.yaml"), str(examples / "kimi-k3-fp8-32xh100.yaml")
    result = run(one, "--no-queueing", "--compare", other)
    assert result.return_value == 1
    assert "B does not fit" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--compare", "b.yaml", "--layout", "TP8"), "--layout together with --compare"),
        (("--compare", "b.yaml", "--all"), "--all together with --compare"),
    ],
)
def test_what_makes_no_sense_with_two_documents_is_refused(arguments: tuple[str, ...], message: str) -> None:
    result = run("a.yaml", *arguments)
    assert isinstance(result.exception, SpecError)
    assert message in str(result.exception)


def test_standard_input_is_one_document_at_most() -> None:
    assert isinstance(run("-", "--compare", "-").exception, SpecError)


def test_the_plan_in_a_report_tells_why_groups_and_writes_sentences(examples: Path) -> None:
    planned = with_queueing(load_planned(str(examples / "deepseek-v4-pro-32xh100.yaml")))
    section = plan_section(planned)
    assert all(row[-1] for row in section.rows)
    names = [row[0] for row in section.rows]
    assert len(names) == len(set(names))
    # 2 x TP16 is refused with and without expert parallelism, for one reason
    assert any("EP or not" in name_of(group) for group in distinct(planned.plan.layouts))
    assert all(
        one[:1].isupper() or one[:1].isdigit() for one in re.split(r"(?<=\.)\s", section.note) if one[:1].isalpha()
    )
    assert section.rows[0][5].endswith("*")
    assert "with * are simulated" in section.note
