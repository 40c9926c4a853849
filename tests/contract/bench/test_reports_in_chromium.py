"""The HTML reports in a real browser: nothing is cut off, nothing is loaded, at the width of a desk and of a phone."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roadworthy.advise.breakdown import by_prompt_length, by_tenant
from roadworthy.advise.verdict import judge
from roadworthy.bench.compare import Measured, compare
from roadworthy.bench.compare_html import comparison_page
from roadworthy.bench.probes.cases import KINDS, ProbeCase
from roadworthy.bench.probes.report import ProbeView, probe_page, verdict_of
from roadworthy.bench.probes.score import ProbeAnswer, report_of
from roadworthy.bench.report_html import render_html
from roadworthy.bench.sections import Levels, RunSection, TableSection
from roadworthy.bench.sweep_report import SweepRow, SweepView, sweep_page
from roadworthy.spec.values import Sla
from support.records import record

if TYPE_CHECKING:
    from roadworthy.core.records import RequestRecord

SLA = Sla(ttft_p99_s=0.25, tpot_p99_s=0.04, success_ratio=1.0)

WATCHER = """
<!DOCTYPE html><meta charset="utf-8"><body>%s<pre id="found"></pre><script>
window.onload = () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, cut = [];
    for (const plot of page.querySelectorAll("svg")) {
      const box = plot.viewBox.baseVal;
      for (const word of plot.querySelectorAll("text")) {
        const at = word.getBBox();
        if (at.x < -1 || at.y < -1 || at.x + at.width > box.width + 1 || at.y + at.height > box.height + 1)
          cut.push(plot.getAttribute("aria-label") + ": " + word.textContent);
      }
    }
    found[frame.id] = {
      cut, wide: page.documentElement.scrollWidth - frame.clientWidth, plots: page.querySelectorAll("svg").length,
      text: page.body.innerText.length, loaded: frame.contentWindow.performance.getEntriesByType("resource").length,
    };
  }
  document.getElementById("found").textContent = JSON.stringify(found);
};
</script>
"""


def records(seed: int, *, slower: float = 1.0) -> list[RequestRecord]:
    rng = random.Random(seed)
    return [
        record(
            at / 16, lag_s=rng.uniform(0, 0.002), ttft_s=slower * rng.lognormvariate(-2, 0.5),
            tpot_s=rng.lognormvariate(-4, 0.3), n_out=rng.randrange(1, 60), n_in=rng.randrange(30, 90_000),
            ok=rng.random() > 0.02, tenant=rng.choice(["legal", "a-tenant-with-quite-a-long-name-indeed"]),
        )
        for at in range(1500)
    ]  # fmt: skip


def run_page() -> str:
    measured = records(1)
    report = judge(measured, SLA, asked_rate_per_s=16.0)
    groups = (("tenant", by_tenant(measured, SLA)), ("prompt length", by_prompt_length(measured, SLA)))
    section = RunSection(
        title="Measured run", report=report, records=tuple(measured), groups=groups, notes=("A note. " * 20,),
        facts=(("target", "http://a-rather-long-host-name.region.internal.example.org:8000/prefix/of/the/path"),),
    )  # fmt: skip
    return render_html("DeepSeek-V4-Pro at http://a-rather-long-host-name.region.internal.example.org:8000", (section,))


def simulated_page() -> str:
    """What a simulation adds: levels over time, and a wide table of tenants."""
    measured = records(5)
    levels = Levels(
        name="Running and waiting",
        lines=tuple(
            (name, tuple((at * 400.0, at * 7000.0 + shift) for at in range(60)))
            for shift, name in enumerate(("running", "waiting in engines", "in the gateway's queue"))
        ),
    )
    shares = Levels(name="Utilisation", lines=(("busy", ((0.0, 0.0), (1.0, 1.0))), ("pool", ())), as_ratio=True)
    columns = ("tenant", "requests", "admitted", "refused", "queued", "wait P99", "borrowed", "tokens served", "weight",
               "work", "SLA misses", "USD")  # fmt: skip
    row = ("a-tenant-with-quite-a-long-name-indeed", "1,234,567", "1,234,000", "567 concurrency_limited, 3 queue_full",
           "12,345", "12.3 s", "1,000,000", "12,345,678,901", "12.5%", "99.9%", "1,234,567", "12,345.67")  # fmt: skip
    table = TableSection(title="Governance", columns=columns, rows=(row, row), note="A note. " * 20)
    section = RunSection(
        title="Virtual time", report=judge(measured, SLA), records=tuple(measured), simulated=True,
        levels=(levels, shares), tables=(table,),
    )  # fmt: skip
    return render_html("A simulated run", (section,))


def sweep() -> str:
    rows = [
        SweepRow(level=rate, outcome="met" if rate < 20 else "missed", why="TTFT P99: 3 of 400 requests over the limit",
                 report=judge(records(2, slower=rate / 10), SLA, asked_rate_per_s=rate), requests=1500)
        for rate in (2.5, 5.0, 10.0, 20.0, 40.0)
    ]  # fmt: skip
    return sweep_page(
        SweepView(title="m at x", by="rate", rows=tuple(rows), sla=SLA, conclusion="met at 10/s", met=True)
    )


def comparison() -> str:
    def measured(name: str, found: list[RequestRecord]) -> Measured:
        return Measured.of_columns(
            name, model="m", start_s=[one.t_send_s for one in found], input_tokens=[one.n_in for one in found],
            output_tokens=[one.n_out for one in found], ttft_s=[one.ttft_s or 0.0 for one in found],
            e2e_s=[one.e2e_s for one in found], errors=[one.error for one in found],
        )  # fmt: skip

    a, b = measured("before.json", records(3)), measured("after.json", records(4, slower=1.4))
    return comparison_page(compare(a, b), a, b)


def probes() -> str:
    case = ProbeCase(kind="needle", length_tokens=1, depth_ratio=0, repeat=0, text="", question="", right=("1",))
    answers = [
        ProbeAnswer(
            case=replace(case, kind=kind, length_tokens=length, depth_ratio=depth), reply="", score=1.0 - depth / 2
        )
        for kind in KINDS
        for length in (2048, 8192, 32_768, 131_072, 1_048_576)
        for depth in ((0.5,) if kind == "many" else (0.0, 0.25, 0.5, 0.75, 1.0))
    ]
    kinds = report_of(answers)
    verdict, reason = verdict_of(kinds, 0.9, partial=False)
    return probe_page(ProbeView(title="m at x", kinds=kinds, verdict=verdict, reason=reason, floor_ratio=0.9))


def test_every_report_is_whole_at_both_widths_and_loads_nothing(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium here: reports are not looked at in a browser")
    pages = {
        "run": run_page(),
        "simulated": simulated_page(),
        "sweep": sweep(),
        "compare": comparison(),
        "probe": probes(),
    }
    frames = []
    for name, page in pages.items():
        (tmp_path / f"{name}.html").write_text(page, encoding="utf-8")
        frames += [f'<iframe id="{name}-{width}" src="{name}.html" width="{width}" height="900"></iframe>'
                   for width in (1100, 390)]  # fmt: skip
    watcher = tmp_path / "watcher.html"
    watcher.write_text(WATCHER % "".join(frames), encoding="utf-8")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
         "--disable-web-security", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", watcher.as_uri()],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    told = re.search(r'<pre id="found">(.+?)</pre>', done.stdout)
    assert told is not None, done.stderr[-2000:]
    found = json.loads(unescape(told[1]))
    assert len(found) == 2 * len(pages)
    for name, one in found.items():
        assert one["cut"] == [], name
        assert one["wide"] <= 0, f"{name} scrolls sideways by {one['wide']} px"
        assert one["loaded"] == 0, name
        assert one["plots"] >= 3, name
        assert one["text"] > 300, name
