"""Text in and out of a model that has no tokenizer: pseudo-tokens of about four characters, and filler.

A pseudo-token is an optional space and up to four characters that are not; English comes to just under four
characters a token. Splitting depends on nothing but the text, so an answer that comes back in the next turn's prompt
has the same tokens, and the twin's prefix cache sees it.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

_TOKEN = re.compile(r"\s?\S{1,4}|\s")
_OPENING = "(simulated)"
_WORDS = (
    "road", "test", "load", "wheel", "brake", "light", "mirror", "engine", "plate", "hill", "mile", "sign", "lane",
    "fuel", "gear", "horn", "belt", "tyre", "bridge", "turn", "dust", "rain", "night", "map", "stop", "go", "slow",
    "fast", "left", "right", "north", "south",
)  # fmt: skip


def tokens_of(text: str) -> list[str]:
    """The pseudo-tokens of ``text``; joined they are the text again."""
    return _TOKEN.findall(text)


def chat_tokens(messages: list[dict[str, Any]]) -> list[str]:
    """A conversation as the model reads it: a mark before and after each message, then the mark to answer.

    Raises:
        ValueError: a message is no object with a role, or its content is neither text nor a list of parts.
    """
    tokens: list[str] = []
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str):
            raise ValueError(f"each message needs a role, got {str(message)[:80]!r}")
        tokens.append(f"<{role}>")
        tokens += tokens_of(_content_text(message.get("content")))
        tokens.append("<end>")
    tokens.append("<assistant>")
    return tokens


def filler(prompt_tokens: list[str], count: int) -> list[str]:
    """``count`` tokens of an answer: the same prompt gets the same text, and it opens by saying what it is."""
    digest = int.from_bytes(
        blake2b("".join(prompt_tokens).encode(errors="surrogatepass"), digest_size=8).digest(), "big"
    )
    start, stride = digest % len(_WORDS), (digest >> 8) % len(_WORDS) | 1
    # every word makes at least one token, so as many words as tokens are enough
    words = [_WORDS[(start + index * stride) % len(_WORDS)] for index in range(count)]
    return tokens_of(" ".join([_OPENING, *words]))[:count]


def contents(tokens: list[str], unit_tokens: int, salt: str) -> tuple[bytes, ...]:
    """What each full unit of ``tokens`` holds, as a digest; ``salt`` keeps apart what may not share a cache."""
    key = blake2b(salt.encode(errors="surrogatepass"), digest_size=16).digest()
    full = len(tokens) - len(tokens) % unit_tokens
    return tuple(
        blake2b(
            "\0".join(tokens[start : start + unit_tokens]).encode(errors="surrogatepass"), digest_size=8, key=key
        ).digest()
        for start in range(0, full, unit_tokens)
    )


def _content_text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content)
    raise ValueError(f"content must be text or a list of parts, got {type(content).__name__}")
