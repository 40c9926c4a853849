"""Words for lexical search: single characters and pairs for Chinese, stems for English. No dictionary."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

PIECE = re.compile(r"[\u3400-\u9fff]+|[a-z0-9]+(?:['’][a-z]+)?")
STOP_TEXT = """
a an and are as at be been but by can could did do does for from had has have how i if in into is it its may must my no
not of on or our shall should so such than that the their them then there these they this those to under was we were
what when where which who whom whose why will with would you your any all about
"""
STOP = frozenset(STOP_TEXT.split())


def words(text: str) -> Iterator[str]:
    """Terms of ``text`` in order."""
    for piece in PIECE.findall(unicodedata.normalize("NFKC", text).lower()):
        if piece[0] >= "\u3400":
            yield from piece
            yield from (piece[at : at + 2] for at in range(len(piece) - 1))
        elif piece not in STOP:
            yield stem(piece.split("'")[0].split("’")[0])


VOWEL = re.compile(r"[aeiouy]")


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """A light English stem: plurals, -ing, -ed, -ly, -ation. Both sides use it, so it need not be a word."""
    if len(word) <= 3 or word.isdigit():
        return word
    for ending, instead in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and VOWEL.search(word[: -len(ending)]):
            word = word[: -len(ending)] + instead
            break
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


ENDINGS = (
    ("ations", "at"), ("ation", "at"), ("ments", "ment"), ("ingly", ""), ("edly", ""), ("fulness", ""),
    ("ousness", "ous"), ("sses", "ss"), ("ies", "y"), ("ied", "y"), ("ings", ""), ("ing", ""), ("ed", ""),
    ("ers", "er"), ("ly", ""), ("es", ""), ("s", ""),
)  # fmt: skip
