"""Rendered files word for word. `UPDATE_GOLDEN=1 pytest tests/golden` rewrites them after a change.

The layout and the settings that the planner chooses are fixed here, so that a better plan does not change these files.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.rendering import render_input, rendered

GOLDEN = Path(__file__).resolve().parent / "render"
FIXED = """\
engine:
  version: 0.33.0
  settings: {gpu_memory_utilization: 0.92, max_num_batched_tokens: 4096, max_num_seqs: 64}
"""
CASES = {
    "deepseek-v4-pro-32xh100": (
        "TP8 DP4 EP32",
        ("lws", "kuberay", "envoy", "prometheus", "gateway-api", "grafana", "check"),
    ),
    "llama-3.1-70b-8xa100": (None, ("lws",)),
}
KEPT = {
    "lws": ("leaderworkerset.yaml", "gateway.yaml", "model-cache.yaml", "network-policy.yaml", "README.md"),
    "kuberay": ("raycluster.yaml", "rayservice.yaml", "ray.Dockerfile"),
    "envoy": ("envoy.yaml", "envoy-engines.yaml"),
    "prometheus": ("prometheus.yml", "rules.yml", "podmonitor.yaml"),
    "gateway-api": ("gateway.yaml", "httproute.yaml"),
    "grafana": ("dashboards/roadworthy.json",),
    "check": ("README.md",),
}


@pytest.mark.parametrize(
    ("name", "layout", "target"),
    [(name, layout, target) for name, (layout, targets) in CASES.items() for target in targets],
)
def test_the_files_are_as_recorded(name: str, layout: str | None, target: str, examples: Path) -> None:
    files = rendered(target, render_input(fixed((examples / f"{name}.yaml").read_text(), name), layout))
    for path in KEPT[target]:
        file = GOLDEN / name / target / path
        if os.environ.get("UPDATE_GOLDEN"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(files[path].text, encoding="utf-8")
        assert files[path].text == file.read_text(encoding="utf-8"), path


def fixed(document: str, name: str) -> str:
    """The example under its own name, with the planner's choices fixed."""
    kept, skipping = [f"name: {name}"], False
    for line in document.splitlines():
        if line[:1].strip() and not line.startswith("#"):
            skipping = line.startswith("engine:")
        if not skipping:
            kept.append(line)
    return "\n".join(kept) + "\n" + FIXED
