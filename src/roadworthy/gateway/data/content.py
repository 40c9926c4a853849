"""What a body may hold beyond its fields' types: media by URL, long lists, large grammars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from roadworthy.core.units import KIB
from roadworthy.gateway.data.errors import BadRequest

if TYPE_CHECKING:
    from msgspec import Raw

MOST_GRAMMAR_BYTES = 256 * KIB
"""All of one field: schemas, tools."""
MOST_GRAMMAR_DEPTH = 64
"""Levels of objects and lists: a compiler of grammars walks them recursively."""
MOST_PATTERN_CHARS = 1024
"""Of one regular expression, which an engine compiles into an automaton."""
MOST_ALTERNATIVES = 1024
"""Of ``enum`` and ``choice``."""

_decode = msgspec.json.decode


def check_parts(raw: Raw, param: str, *, remote_media: bool) -> None:
    """Refuse media that the engine would fetch from a URL, and tensors in place of text."""
    pending: list[Any] = [_decode(raw)]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            if str(value.get("type", "")).endswith("_embeds"):
                raise BadRequest("embeddings are not taken in place of text", code="invalid_value", param=param)
            for key, inner in value.items():
                if key.endswith("url") and isinstance(inner, str) and not remote_media and not _is_data(inner):
                    raise BadRequest(
                        "media at a URL is not fetched",
                        code="remote_media_refused",
                        param=param,
                        hint="send it inline, as a data: URL",
                    )
                if key.endswith("_embeds"):
                    raise BadRequest("embeddings are not taken in place of text", code="invalid_value", param=param)
                if isinstance(inner, dict | list):
                    pending.append(inner)


def _is_data(url: str) -> bool:
    return url[:5].lower() == "data:"


def check_length(raw: Raw, param: str, most: int) -> None:
    """Refuse a list of more than ``most`` texts. A list of numbers is one text, as token ids."""
    value = _decode(raw)
    if isinstance(value, list) and len(value) > most and not all(isinstance(one, int) for one in value):
        raise BadRequest(
            f"{param} may hold {most} entries, not {len(value)}", code="invalid_value", param=param, hint="send fewer"
        )


def check_grammar(raw: Raw, param: str) -> None:
    """Refuse schemas and patterns whose compilation could keep an engine from everybody else's work."""
    size_bytes = memoryview(raw).nbytes
    if size_bytes > MOST_GRAMMAR_BYTES:
        raise BadRequest(
            f"{param} may take {MOST_GRAMMAR_BYTES} bytes, not {size_bytes}", code="invalid_value", param=param
        )
    pending: list[tuple[str, Any, int]] = [("", _decode(raw), 1)]
    while pending:
        key, value, depth = pending.pop()
        if depth > MOST_GRAMMAR_DEPTH:
            raise BadRequest(f"{param} may be nested {MOST_GRAMMAR_DEPTH} deep", code="invalid_value", param=param)
        if isinstance(value, dict):
            pending += [(name, inner, depth + 1) for name, inner in value.items()]
        elif isinstance(value, list):
            if key in ("enum", "choice") and len(value) > MOST_ALTERNATIVES:
                raise BadRequest(
                    f"{param}: {key} may hold {MOST_ALTERNATIVES} entries", code="invalid_value", param=param
                )
            pending += [(key, inner, depth + 1) for inner in value]
        elif key in ("pattern", "regex") and isinstance(value, str) and len(value) > MOST_PATTERN_CHARS:
            raise BadRequest(
                f"{param}: a pattern may take {MOST_PATTERN_CHARS} characters", code="invalid_value", param=param
            )
