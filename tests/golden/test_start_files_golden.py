"""Start files of whole deployments, byte for byte. `UPDATE_GOLDEN=1 pytest tests/golden` rewrites them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from roadworthy.cli.render import render, render_input

GOLDEN = Path(__file__).resolve().parent / "start_files"
CASES = {
    "deepseek-v4-pro-32xh100": (None, ("vllm", "ray", "systemd", "host-prep")),
    "kimi-k3-64xh100": ("TP8 DP8 EP64", ("vllm",)),
    "kimi-k3-32xh200": ("TP8 DP4 EP32", ("vllm", "ray")),
    "laptop": (None, ("vllm", "systemd")),
    "llama-3.1-70b-8xa100": (None, ("vllm",)),
    "seven-tenants": (None, ("vllm",)),
}
ONE_OF_EACH = 2
"""Of hosts that differ in their rank alone, the first two are recorded."""


@pytest.mark.parametrize("name", CASES)
def test_the_files_are_as_recorded(name: str, examples: Path) -> None:
    layout, targets = CASES[name]
    inputs, _ = render_input(str(examples / f"{name}.yaml"), layout)
    ours = {
        f"{target}/{artifact.path}": artifact.text
        for target, artifacts in render(inputs, targets).items()
        for artifact in artifacts
        if artifact.node is None or artifact.node < ONE_OF_EACH
    }
    folder = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        shutil.rmtree(folder, ignore_errors=True)
        for path, text in ours.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    recorded = {
        str(file.relative_to(folder)): file.read_text(encoding="utf-8") for file in folder.rglob("*") if file.is_file()
    }
    assert ours.keys() == recorded.keys()
    for path, text in ours.items():
        assert text == recorded[path], path
