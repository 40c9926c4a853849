"""Prometheus' own tool on what we render: it takes the files, and every alert fires on its fault and only then."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from roadworthy.render.services.prometheus import all_alerts
from support.rendering import LLAMA_ON_8_H100, V4_ON_32_H100, render_input, rendered, write

WITH_SLA = LLAMA_ON_8_H100 + "sla: {ttft_p99: 900ms, tpot_p99: 200ms, success: 99%}\n"
DOCUMENTS = {
    "v4 without promises": V4_ON_32_H100,
    "promises": WITH_SLA,
    "every request": LLAMA_ON_8_H100 + "sla: {success: 100%, ttft_p99: 250ms, tpot_p99: 40ms}\n",
}


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        if platform.system() == "Linux":
            pytest.fail("no promtool: run scripts/install-system-tools (Debian package prometheus)")
        pytest.skip(f"no promtool on {platform.system()}")
    return found


def run(promtool: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("case", DOCUMENTS)
def test_promtool_takes_the_files_and_every_alert_passes_its_test(promtool: str, case: str, tmp_path: Path) -> None:
    write(tmp_path, rendered("prometheus", render_input(DOCUMENTS[case])))
    for arguments in (
        ("check", "config", "prometheus.yml"), ("check", "rules", "--lint-fatal", "rules.yml"),
        ("test", "rules", "rules_test.yml"),
    ):  # fmt: skip
        done = run(promtool, tmp_path, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_test_that_an_alert_that_never_fires_fails(promtool: str, tmp_path: Path) -> None:
    inputs = render_input(WITH_SLA)
    for alert in all_alerts(inputs):
        _break(rendered("prometheus", inputs), alert.name, "vector(0) > 1", tmp_path)
        told = run(promtool, tmp_path, "test", "rules", "rules_test.yml")
        assert told.returncode != 0, f"{alert.name} never fires and no test says so"
        assert alert.name in told.stderr


def test_each_alert_has_a_test_that_an_alert_that_always_fires_fails(promtool: str, tmp_path: Path) -> None:
    inputs = render_input(WITH_SLA)
    for alert in all_alerts(inputs):
        _break(rendered("prometheus", inputs), alert.name, "vector(1)", tmp_path)
        told = run(promtool, tmp_path, "test", "rules", "rules_test.yml")
        assert told.returncode != 0, f"{alert.name} always fires and no test says so"
        assert alert.name in told.stderr


def _break(files, name: str, expr: str, folder: Path) -> None:
    """Write the rules with the expression of alert ``name`` replaced, and only the tests of that alert."""
    rules = yaml.safe_load(files["rules.yml"].text)
    for rule in rules["groups"][-1]["rules"]:
        if rule["alert"] == name:
            rule["expr"] = expr
    tests = yaml.safe_load(files["rules_test.yml"].text)
    tests["tests"] = [test for test in tests["tests"] if test["name"].split()[0] == name]
    assert len(tests["tests"]) == 2
    (folder / "rules.yml").write_text(yaml.safe_dump(rules))
    (folder / "rules_test.yml").write_text(yaml.safe_dump(tests))
