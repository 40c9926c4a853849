"""How many tokens a text has: about, without anybody's vocabulary."""

from __future__ import annotations

BYTES_PER_TOKEN = {True: 3.0, False: 4.6}
"""UTF-8 bytes of a token, Chinese and other text: a size for splitting, not a count for a bill."""


def count_tokens(text: str) -> int:
    """About how many tokens ``text`` has."""
    data = text.encode("utf-8", "replace")
    return max(1, int(len(data) / BYTES_PER_TOKEN[len(data) > 1.8 * len(text)]))
