"""Prometheus' own tool on what we render: it takes the files, and every alert fires on its fault and only then."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from roadworthy.render.services.prometheus import all_alerts
from support.rendering import LLAMA_ON_8_H100, V4_ON_32_H100, render_input, rendered, write

pytestmark = pytest.mark.timeout(300)
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
    return subprocess.run([promtool, *arguments], cwd=folder, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.parametrize("case", DOCUMENTS)
def test_promtool_takes_the_files_and_every_alert_passes_its_test(promtool: str, case: str, tmp_path: Path) -> None:
    write(tmp_path, rendered("prometheus", render_input(DOCUMENTS[case])))
    for arguments in (
        ("check", "config", "prometheus.yml"), ("check", "rules", "--lint-fatal", "rules.yml"),
        ("test", "rules", "rules_test.yml"),
    ):  # fmt: skip
        done = run(promtool, tmp_path, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("expr", "case"), [("vector(0) > 1", "never fires"), ("vector(1)", "always fires")], ids=["never", "always"]
)
def test_each_alert_has_a_test_that_catches_one_that(promtool: str, expr: str, case: str, tmp_path: Path) -> None:
    """With every alert broken the same way, the test of each must fail."""
    inputs = render_input(WITH_SLA)
    files = rendered("prometheus", inputs)
    rules = yaml.safe_load(files["rules.yml"].text)
    for rule in rules["groups"][-1]["rules"]:
        rule["expr"] = expr
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    (tmp_path / "rules_test.yml").write_text(files["rules_test.yml"].text)
    done = run(promtool, tmp_path, "test", "rules", "rules_test.yml")
    assert done.returncode != 0
    failed = set(re.findall(r'alertname=\\?"(\w+)\\?"', done.stdout + done.stderr))
    assert failed == {alert.name for alert in all_alerts(inputs)}, f"an alert that {case} passes its test"
