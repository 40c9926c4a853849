"""The document's model section: catalog ids, checkpoint folders, config.json files, and what is none of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roadworthy.adapters.model_files import resolve_model
from roadworthy.adapters.tiny_model import CONFIG
from roadworthy.core.errors import SpecError, Unsupported
from roadworthy.spec.values import ModelRef


def _write(place: Path, config: Any = CONFIG) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(config), encoding="utf-8")
    return place


def test_a_catalog_id_needs_no_file(tmp_path: Path) -> None:
    assert resolve_model(ModelRef(config="kimi-k3"), base=tmp_path).id == "Kimi-K3"
    assert resolve_model(ModelRef(config="deepseek-ai/DeepSeek-V3"), base=tmp_path).id == "DeepSeek-V3"


def test_a_checkpoint_folder_is_read_relative_to_the_document(tmp_path: Path) -> None:
    _write(tmp_path / "models/mine/config.json")
    model = resolve_model(ModelRef(config="models/mine"), base=tmp_path)
    assert model.id == "mine"
    assert model.num_layers == CONFIG["num_hidden_layers"]
    assert model.source.endswith("config.json")


def test_a_config_file_is_named_after_itself_or_its_folder(tmp_path: Path) -> None:
    _write(tmp_path / "mine/config.json")
    _write(tmp_path / "other.json")
    assert resolve_model(ModelRef(config="mine/config.json"), base=tmp_path).id == "mine"
    assert resolve_model(ModelRef(config="other.json"), base=tmp_path).id == "other"


def test_weights_are_requantised_as_the_document_says(tmp_path: Path) -> None:
    _write(tmp_path / "mine/config.json")
    assert resolve_model(ModelRef(config="mine", weights="fp8"), base=tmp_path).linear_format == "fp8_channel"


def test_a_folder_does_not_shadow_a_catalog_id(tmp_path: Path) -> None:
    _write(tmp_path / "tiny/config.json", {**CONFIG, "num_hidden_layers": 7})
    assert resolve_model(ModelRef(config="tiny"), base=tmp_path).num_layers == 2
    assert resolve_model(ModelRef(config="./tiny"), base=tmp_path).num_layers == 7


def test_a_path_that_is_not_there_names_the_key_and_the_ways_on(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_model(ModelRef(config="models/none"), base=tmp_path)
    (problem,) = caught.value.problems
    assert problem.path == "model.config"
    assert "roadworthy models" in problem.hint


def test_an_unknown_id_is_refused_with_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="DeepSeek-V4-Pro"):
        resolve_model(ModelRef(config="deepseek-v5"), base=tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "7", '["LlamaForCausalLM"]'])
def test_a_file_that_is_no_config_is_wrong_input(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.json").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"odd\.json"):
        resolve_model(ModelRef(config="odd.json"), base=tmp_path)


def test_a_folder_without_a_config_is_wrong_input(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecError, match=r"config\.json"):
        resolve_model(ModelRef(config="empty/"), base=tmp_path)


def test_a_field_that_is_there_twice_is_named_unless_it_says_the_same(tmp_path: Path) -> None:
    text = json.dumps(CONFIG)
    layers = f'"num_hidden_layers": {CONFIG["num_hidden_layers"]}'
    (tmp_path / "twice.json").write_text(text.replace(layers, f'{layers}, "num_hidden_layers": 99'))
    with pytest.raises(SpecError) as caught:
        resolve_model(ModelRef(config="twice.json"), base=tmp_path)
    assert [problem.path for problem in caught.value.problems] == ["num_hidden_layers"]
    (tmp_path / "same.json").write_text(text.replace(layers, f"{layers}, {layers}"))
    assert resolve_model(ModelRef(config="same.json"), base=tmp_path).num_layers == CONFIG["num_hidden_layers"]
