"""The model catalog: names, shapes equal to the published config.json, and requantised weights."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roadworthy.adapters.tiny_model import CONFIG
from roadworthy.catalog.models import known_models, model_by_id, model_from_config
from roadworthy.core.errors import Unsupported

if TYPE_CHECKING:
    from roadworthy.spec.model import ModelSpec

MEMORY: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[2] / "data" / "model_memory.json").read_text(encoding="utf-8")
)


def _shape(model: ModelSpec) -> ModelSpec:
    return replace(model, id="", source="")


@pytest.mark.parametrize("name", MEMORY["models"])
def test_the_catalog_states_what_the_published_config_says(name: str, test_data: Path) -> None:
    row = MEMORY["models"][name]
    text = (test_data / "facts" / row["config"]).read_bytes()
    assert hashlib.sha256(text).hexdigest() == row["config_sha256"]
    assert _shape(model_from_config(json.loads(text), model_id=name)) == _shape(model_by_id(name))


def test_tiny_is_the_model_that_up_builds() -> None:
    assert _shape(model_from_config(CONFIG, model_id="tiny")) == _shape(model_by_id("tiny"))


def test_every_entry_of_the_index_loads_and_has_a_source() -> None:
    for known in known_models():
        model = model_by_id(known.id)
        assert model.id == known.id
        assert model.source
        assert sum(count for count, _ in model.groups) == model.num_layers


def test_no_name_stands_for_two_models() -> None:
    names = [name.lower() for known in known_models() for name in {known.id, known.repository, *known.aliases}]
    lowered = {
        (known.id, name.lower()) for known in known_models() for name in (known.id, known.repository, *known.aliases)
    }
    assert len({name for _, name in lowered}) == len(lowered)
    assert names


@pytest.mark.parametrize(
    "name",
    ["deepseek-v4-pro", "DEEPSEEK-V4-PRO", "v4-pro", "deepseek-ai/DeepSeek-V4-Pro", "deepseek-ai/deepseek-v4-pro"],
)
def test_a_model_answers_to_id_alias_and_repository_in_any_case(name: str) -> None:
    assert model_by_id(name).id == "DeepSeek-V4-Pro"


def test_a_mistyped_id_is_refused_with_a_suggestion_that_works() -> None:
    with pytest.raises(Unsupported, match="known: DeepSeek-V4-Pro") as caught:
        model_by_id("deepseek-v4-por")
    suggestion = caught.value.hint.removeprefix("did you mean ").removesuffix("?")
    assert model_by_id(suggestion).id == "DeepSeek-V4-Pro"


def test_requantised_weights_change_formats_and_nothing_else() -> None:
    native = model_by_id("Kimi-K3")
    fp8 = model_by_id("Kimi-K3", weights="fp8")
    assert (fp8.linear_format, fp8.expert_format) == ("fp8_channel", "fp8_channel")
    assert replace(fp8, linear_format=native.linear_format, expert_format=native.expert_format) == native
    assert model_by_id("DeepSeek-V3", weights="fp8") == model_by_id("DeepSeek-V3")
    assert model_by_id("DeepSeek-V4-Pro", weights="bf16").expert_format == "bf16"
    assert model_by_id("DeepSeek-V4-Pro", weights="fp8").expert_format == "fp8_block128_e8m0"


@pytest.mark.parametrize("name", ["Flash", "Pro"])
def test_nvfp4_experts_are_refused_by_name(name: str, test_data: Path) -> None:
    config = json.loads((test_data / "facts/configs" / f"nvidia--DeepSeek-V4-{name}-NVFP4_config.json").read_text())
    with pytest.raises(Unsupported, match="NVFP4"):
        model_from_config(config, model_id=f"DeepSeek-V4-{name}-NVFP4")
