"""What is asked of the other estimator, and what is told when it is missing or has no answer."""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from roadworthy.adapters import second_opinion
from roadworthy.adapters.second_opinion import PACKAGE, VERSION, SecondOpinion, require_second_opinion
from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.cli.plan import command
from roadworthy.core.errors import SpecError, Unsupported
from roadworthy.plan.layouts import stage_split
from roadworthy.plan.values import Layout
from support.scripts import load_script

DATA = Path(__file__).resolve().parents[2] / "data" / "second_opinion.json"


class PerfDataNotAvailableError(Exception):
    """As the package names it."""


def layout(model: str, *, tp: int = 8, pp: int = 1, dp: int = 1, ep: int = 1) -> Layout:
    return Layout(tp=tp, pp=pp, dp=dp, ep=ep, stage_layers=stage_split(model_by_id(model).num_layers, pp))


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """A package of that name whose backend notes what it is asked; ``raises`` makes it fail."""
    seen = SimpleNamespace(config=None, runtime=None, ctx_tokens=None, system=None, raises=None)
    configs = tmp_path / "model_configs"
    configs.mkdir()
    for name in ("deepseek-ai--DeepSeek-V4-Pro", "deepseek-ai--DeepSeek-V3", "meta-llama--Meta-Llama-3.1-8B"):
        (configs / f"{name}_config.json").write_text("{}")

    class Named(dict[str, str]):
        def __missing__(self, key: str) -> str:
            return key

    def run_agg(model: Any, database: Any, runtime: Any, *, ctx_tokens: int) -> Any:
        print("noise that must not reach our output")
        if seen.raises is not None:
            raise seen.raises
        seen.runtime, seen.ctx_tokens = runtime, ctx_tokens
        frame = SimpleNamespace(iloc=[{"tpot": 12.5}])
        return SimpleNamespace(get_summary_df=lambda: frame)

    def get_model(repository: str, config: Any, backend: str) -> str:
        seen.config = config
        return repository

    def get_database(system: str, backend: str, version: str) -> str:
        seen.system = (system, backend, version)
        return system

    parts: dict[str, dict[str, Any]] = {
        "": {}, ".sdk": {},
        ".sdk.config": {"ModelConfig": SimpleNamespace, "RuntimeConfig": SimpleNamespace},
        ".sdk.common": {"GEMMQuantMode": Named(), "MoEQuantMode": Named()},
        ".sdk.models": {"get_model": get_model}, ".sdk.perf_database": {"get_database": get_database},
        ".sdk.backends": {}, ".sdk.backends.factory": {"get_backend": lambda name: SimpleNamespace(run_agg=run_agg)},
    }  # fmt: skip
    for suffix, names in parts.items():
        module = ModuleType(PACKAGE + suffix)
        module.__path__ = [str(tmp_path)]  # a package, for those below it
        module.__dict__.update(names)
        monkeypatch.setitem(sys.modules, PACKAGE + suffix, module)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name.startswith(PACKAGE) else find(name))
    monkeypatch.setattr(second_opinion, "require_second_opinion", lambda: None)
    return seen


def opinion(model: str, at: Layout, gpu: str = "H200", **more: Any) -> second_opinion.Opinion:
    weights = more.get("weights", "native")
    asked = SecondOpinion(model_by_id(model, weights=weights), gpu_by_name(gpu), weights=weights)
    return asked.tpot(at, sequences=16, prompt_tokens=1000, output_tokens=200, batched_tokens=8192, cached_tokens=300)


def test_missing_it_is_named_with_what_installs_it(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unsupported) as caught:
        require_second_opinion()
    assert caught.value.hint == "pip install 'roadworthy[perf]'"
    arguments = [str(examples / "laptop.yaml"), "--second-opinion"]
    assert isinstance(CliRunner().invoke(command, arguments, standalone_mode=False).exception, Unsupported)


def test_with_two_documents_it_is_refused(examples: Path) -> None:
    arguments = [str(examples / "laptop.yaml"), "--compare", "other.yaml", "--second-opinion"]
    assert isinstance(CliRunner().invoke(command, arguments, standalone_mode=False).exception, SpecError)


def test_the_question_holds_layout_load_and_what_is_cached(
    package: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    found = opinion("DeepSeek-V3", layout("DeepSeek-V3", tp=2, dp=4, ep=8))
    assert found.tpot_s == pytest.approx(0.0125)
    assert vars(package.runtime) == {"batch_size": 16, "isl": 1000, "osl": 200, "prefix": 300}
    assert (package.config.tp_size, package.config.attention_dp_size) == (2, 4)
    assert (package.config.moe_ep_size, package.config.moe_tp_size) == (8, 1)
    assert package.config.gemm_quant_mode is None  # as the checkpoint stores them
    assert package.system == ("h200_sxm", "vllm", "0.24.0")
    assert package.ctx_tokens == 8192
    assert capsys.readouterr().out == ""


def test_requantised_weights_are_asked_for_by_name(package: SimpleNamespace) -> None:
    opinion("DeepSeek-V3", layout("DeepSeek-V3"), weights="fp8")
    assert (package.config.gemm_quant_mode, package.config.moe_quant_mode) == ("fp8_block", "fp8_block")
    opinion("Llama-3.1-8B", layout("Llama-3.1-8B", tp=1))
    assert not hasattr(package.config, "moe_ep_size")


def test_pipelines_and_what_it_does_not_know_are_not_asked(package: SimpleNamespace) -> None:
    assert "pipelines" in opinion("DeepSeek-V3", layout("DeepSeek-V3", pp=2)).refused
    assert "tables" in opinion("DeepSeek-V3", layout("DeepSeek-V3"), gpu="A100-80GB").refused
    assert "does not know Kimi-K3" in opinion("Kimi-K3", layout("Kimi-K3")).refused
    assert package.runtime is None


def test_native_fp4_on_hopper_is_refused_in_plain_words(package: SimpleNamespace) -> None:
    package.raises = PerfDataNotAvailableError("perf database error: MoE data missing for MoeKey")
    refused = opinion("DeepSeek-V4-Pro", layout("DeepSeek-V4-Pro")).refused
    assert "refuses DeepSeek-V4-Pro with native FP4 experts on H200-141GB" in refused
    assert "fp8" in refused
    package.raises = ValueError("first line\nsecond")
    assert opinion("DeepSeek-V3", layout("DeepSeek-V3")).refused == "it fails: ValueError: first line"


def test_the_kept_answers_agree_with_ours_within_the_bands_that_the_plan_prints() -> None:
    """37 answers of the real package: the median within 15 %, nine in ten within a factor of 1.6."""
    script, data = load_script("second_opinion"), json.loads(DATA.read_text())
    assert VERSION in data["source"]
    ratios = [row["tpot_s"] / script.ours_s(row) for row in data["tpot"] if row["tpot_s"] is not None]
    assert statistics.median(ratios) == pytest.approx(1, abs=0.15)
    assert sum(1 / 1.6 <= ratio <= 1.6 for ratio in ratios) >= 0.9 * len(ratios)
    assert [row["model"] for row in data["tpot"] if "native FP4" in row["refused"]] == ["DeepSeek-V4-Pro"] * 2


def test_one_gpus_share_of_experts_read_is_that_of_the_measured_kernels() -> None:
    script, data = load_script("second_opinion"), json.loads(DATA.read_text())
    off = [
        abs(script.experts_s(row, 0.5) / row["skewed_s"] - 1)
        for row in data["experts"]
        if row["ranks"] == 1 and row["tokens"] >= 16
    ]
    assert statistics.median(off) < 0.20
    assert max(off) < 0.40
