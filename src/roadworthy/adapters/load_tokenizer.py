"""The model's own tokenizer, where its file and the library that reads it are at hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from roadworthy.core.errors import SpecError, Unsupported

TOKENIZER_FILE = "tokenizer.json"


def token_counter(place: Path) -> Callable[[str], int]:
    """A function that counts the tokens of a text, special ones left out.

    Args:
        place: ``tokenizer.json``, or the folder of a checkpoint with one.

    Raises:
        SpecError: there is no such file, or it is no tokenizer.
        Unsupported: the library is not installed.
    """
    file = place / TOKENIZER_FILE if place.is_dir() else place
    if not file.is_file():
        raise SpecError(f"{file}: no such file, wanted the model's {TOKENIZER_FILE}", hint="leave --tokenizer out to "
                        "size prompts by the target's own count")  # fmt: skip
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise Unsupported(
            "--tokenizer needs the package tokenizers, not installed here",
            hint="pip install tokenizers, or leave --tokenizer out to size prompts by the target's own count",
        ) from None
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises its base class
        raise SpecError(f"{file}: not a tokenizer: {error}", hint="name the model's tokenizer.json") from error

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count
