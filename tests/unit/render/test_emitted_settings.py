"""Every setting that start files carry is one that somebody reads, and says why it is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from roadworthy.catalog.environment import environment_catalog
from roadworthy.catalog.flags import flag_catalog
from roadworthy.catalog.truth import truth_rows
from roadworthy.cli.lint import command as lint
from support.rendering import K3_ON_32_H200, LLAMA_ON_8_H100, TINY, V4_ON_32_H100, render_input, rendered, write

HOSTS = "hosts: [{address: 10.0.0.1}, {address: 10.0.0.2}, {address: 10.0.0.3}, {address: 10.0.0.4}]"
FULL = V4_ON_32_H100.replace(
    "nics:",
    f"{HOSTS}, interface: ens3, hcas: [mlx5_0, mlx5_1], fabric: ethernet, roce_dscp: 26, "
    "gpu_numa_nodes: [0, 0, 0, 0, 1, 1, 1, 1], nics:",
)
CASES = [
    (FULL, "TP8 DP4 EP32"),
    (FULL, "2 x TP8 PP2"),
    (FULL, "TP8 PP2 DP2 EP16"),
    (V4_ON_32_H100, "TP8 PP4"),
    (K3_ON_32_H200, "TP8 DP4 EP32"),
    (K3_ON_32_H200, "TP8 PP4"),
    (LLAMA_ON_8_H100, "4 x TP2"),
    (TINY, None),
]
START = ("vllm", "ray", "systemd", "host-prep")


@pytest.mark.parametrize(("document", "layout"), CASES)
def test_flags_and_variables_are_real_for_the_version(document: str, layout: str | None) -> None:
    inputs = render_input(document, layout)
    version = inputs.deployment.engine.version
    flags, environment = flag_catalog(version), environment_catalog(version)
    seen = 0
    for target in START:
        for artifact in rendered(target, inputs).values():
            for setting in artifact.settings:
                assert setting.why, setting
                assert not setting.why.endswith("."), setting
                if setting.kind == "flag":
                    assert flags.explain(setting.name).status in {"real", "context_dependent"}, setting
                    seen += 1
                elif setting.kind == "variable":
                    answer = environment.explain(setting.name)
                    assert answer.accepted, (setting, answer)
                    assert answer.status in {"real", "context_dependent"}, (setting, answer)
                    seen += 1
    assert seen > 20


@pytest.mark.parametrize("target", START)
def test_a_source_that_looks_like_a_row_of_the_truth_table_is_one(target: str) -> None:
    for document, layout in CASES:
        for artifact in rendered(target, render_input(document, layout)).values():
            for setting in artifact.settings:
                part = setting.source.partition(".")[0]
                if part in {"vllm", "env", "nccl", "host", "ray", "k8s", "roce"} and " " not in setting.source:
                    assert setting.source in truth_rows(), setting


@pytest.mark.parametrize(("document", "layout"), CASES)
def test_our_own_lint_has_nothing_to_say(document: str, layout: str | None, tmp_path: Path) -> None:
    files = []
    for target in START:
        made = rendered(target, render_input(document, layout))
        write(tmp_path / target, made)
        files += [str(tmp_path / target / path) for path in made if path.endswith((".sh", ".service", ".env"))]
    result = CliRunner().invoke(lint, files, standalone_mode=False)
    assert result.return_value == 0, result.output
