"""Which metrics a PromQL expression reads."""

from __future__ import annotations

import re

_STRINGS = re.compile(r'"(?:\\.|[^"\\])*"')
_MATCHERS = re.compile(r"\{[^}]*\}")
_RANGES = re.compile(r"\[[^\]]*\]")
_LABELS = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)")
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_WORDS = frozenset({"and", "or", "unless", "bool", "offset"})


def metric_names(expr: str) -> set[str]:
    """Names of series in ``expr``: identifiers that are neither functions, labels nor operators."""
    bare = expr
    for pattern in (_STRINGS, _MATCHERS, _RANGES, _LABELS):
        bare = pattern.sub(" ", bare)
    found = set()
    for match in _NAME.finditer(bare):
        before = bare[: match.start()]
        called = bare[match.end() :].lstrip().startswith("(")
        if not called and match.group() not in _WORDS and not re.search(r"[0-9.]$", before):
            found.add(match.group())
    return found
