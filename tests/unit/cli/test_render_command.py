"""`roadworthy render` as a command: what it writes, prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from roadworthy.cli.render import command
from roadworthy.core.errors import Infeasible, SpecError, Unsupported
from roadworthy.render.targets import TARGETS
from support.rendering import TINY, V4_ON_32_H100


def render(*arguments: object) -> Result:
    runner = CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1"})
    result = runner.invoke(command, [str(one) for one in arguments], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    return file


def test_every_target_of_the_big_example_is_written_with_its_manifest(examples: Path, tmp_path: Path) -> None:
    result = render(examples / "deepseek-v4-pro-32xh100.yaml", "--target", "all", "--out", tmp_path)
    assert result.return_value == 0
    assert {place.name for place in tmp_path.iterdir()} == set(TARGETS)
    for name in TARGETS:
        entries = json.loads((tmp_path / name / "manifest.json").read_text())
        written = {str(file.relative_to(tmp_path / name)) for file in (tmp_path / name).rglob("*") if file.is_file()}
        assert {entry["path"] for entry in entries} | {"manifest.json"} == written
        assert all(set(entry) == {"path", "sha256", "node"} for entry in entries)
    assert "2 x TP8 PP2" in result.stderr
    assert not result.stdout


def test_a_second_rendering_has_no_difference_and_a_changed_document_has_one(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert render(tiny, "--target", "vllm", "--target", "systemd", "--out", out).return_value == 0
    same = render(tiny, "--target", "vllm,systemd", "--out", out, "--diff")
    assert (same.return_value, same.stdout) == (0, "")
    tiny.write_text(TINY.replace("0.32.0", "0.32.0, settings: {max_num_seqs: 3}"))
    changed = render(tiny, "--target", "vllm", "--out", out, "--diff")
    assert changed.return_value == 1
    assert "+  --max-num-seqs 3\n" in changed.stdout
    assert "--max-num-seqs 3\n" not in (out / "vllm/node-0.sh").read_text()


def test_explain_prints_every_setting_with_reason_and_source(tiny: Path) -> None:
    result = render(tiny, "--target", "vllm", "--explain")
    assert result.return_value == 0
    assert "--fail-on-environ-validation" in result.stdout
    assert "a misspelt VLLM_ variable" in result.stdout
    assert "env.timeouts" in result.stdout


def test_json_is_one_document_with_settings_and_files(tiny: Path, tmp_path: Path) -> None:
    result = render(tiny, "--target", "vllm", "--out", tmp_path / "out", "--json")
    told: dict[str, Any] = json.loads(result.stdout)
    assert told["layout"] == "TP1"
    assert {file["path"] for file in told["targets"]["vllm"]["files"]} == {"node-0.sh", "README.md"}
    settings = {one["name"]: one for one in told["targets"]["vllm"]["settings"]}
    assert settings["--max-model-len"]["value"] == 4096
    assert settings["--max-model-len"]["files"] == ["node-0.sh"]
    assert all(one["why"] for one in settings.values())


def test_the_layout_asked_for_is_the_one_rendered(tmp_path: Path) -> None:
    document = tmp_path / "v4.yaml"
    document.write_text(V4_ON_32_H100)
    result = render(document, "--target", "vllm", "--out", tmp_path / "out", "--layout", "tp8 dp4 ep32")
    assert "TP8 DP4 EP32, as --layout asks" in result.stderr
    assert "--data-parallel-size 4" in (tmp_path / "out/vllm/node-3.sh").read_text()


def test_a_layout_that_does_not_fit_is_refused_with_its_reason(tmp_path: Path) -> None:
    document = tmp_path / "v4.yaml"
    document.write_text(V4_ON_32_H100)
    with pytest.raises(Infeasible, match=r"TP32: tp 32 exceeds o_groups 16"):
        render(document, "--target", "vllm", "--out", tmp_path / "out", "--layout", "TP32")
    assert not (tmp_path / "out").exists()


def test_a_plan_without_a_layout_is_refused_and_writes_nothing(examples: Path, tmp_path: Path) -> None:
    with pytest.raises(Infeasible, match="no layout fits"):
        render(examples / "kimi-k3-fp8-32xh100.yaml", "--target", "vllm", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_plan_whose_first_layout_divides_hosts_unevenly_gives_the_next_that_does_not(tmp_path: Path) -> None:
    document = tmp_path / "three.yaml"
    document.write_text(
        "model: {config: meta-llama/Llama-3.1-70B, max_model_len: 8K}\n"
        "cluster: {nodes: 3, gpus_per_node: 8, gpu: H100-80GB, nics: [{count: 8, rate: 400Gb/s}]}\n"
    )
    result = render(document, "--target", "vllm", "--out", tmp_path / "out")
    assert result.return_value == 0
    assert (tmp_path / "out/vllm/node-2.sh").exists()


def test_a_target_that_is_not_there_is_told_with_the_nearest(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(Unsupported) as refused:
        render(tiny, "--target", "systmd", "--out", tmp_path)
    assert refused.value.hint == "did you mean systemd?"


def test_a_target_without_a_name_is_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--target"):
        render(tiny, "--target", ",", "--out", tmp_path)


def test_a_folder_is_wanted_unless_only_explaining(tiny: Path) -> None:
    for arguments in (["--target", "vllm"], ["--target", "vllm", "--explain", "--diff"]):
        with pytest.raises(SpecError, match="--out"):
            render(tiny, *arguments)


def test_an_engine_version_without_known_flags_is_refused(tiny: Path, tmp_path: Path) -> None:
    tiny.write_text(TINY.replace("0.32.0", "0.26.0"))
    with pytest.raises(Unsupported, match=r"0\.26\.0"):
        render(tiny, "--target", "vllm", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
