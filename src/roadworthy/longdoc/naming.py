"""Which document a question speaks of, by its file's name, its title, or the title's initials."""

from __future__ import annotations

import re

NAMED_FIT = 2
"""From here on the question names the document."""

_INITIALS = re.compile(r"\b[A-Z]{2,7}\b")
_CAPITALISED = re.compile(r"\b[A-Z][A-Za-z]*")
_TITLE = re.compile(r"[\u3400-\u9fff]{3,}")
_WORDS = re.compile(r"[a-z]+|\d+")
_SAYS_LITTLE = {"the", "and", "for", "text", "doc", "document", "final", "copy", "new", "page", "pages"}
FEWEST_OF_TITLE = 3
"""Characters of a Chinese title's end that name it: of 中华人民共和国民法典 people say 民法典."""


def is_chinese(text: str) -> bool:
    """Whether ``text`` has Chinese characters in earnest: a name in an English sentence does not make it Chinese."""
    found = sum("\u3400" <= letter <= "\u9fff" for letter in text)
    return 10 * found > sum(letter.isalpha() for letter in text)


def document_fit(question: str, name: str, about: str, text: str) -> float:
    """How well a document fits what ``question`` calls it: from :data:`NAMED_FIT` on it is named, below that it has at
    most the question's language.

    Args:
        name: of the file.
        about: how its text begins.
        text: of one of its units.
    """
    language = 1.0 if is_chinese(question) == is_chinese(text[:200]) else 0.0
    named = _file_named(question, name)
    if _titled(question, about):
        named = 1.0
    return language + (NAMED_FIT - 0.5 + named if named else 0.0)


def _file_named(question: str, name: str) -> float:
    """Share of the words of the file's name that the question holds; 0 where only one of several does."""
    stem = name.rsplit("/", 1)[-1].rsplit(".", 1)[0].lower()
    lowered = question.lower()
    pieces = [re.escape(piece) for piece in re.findall(r"[^\W\d_]+|\d+", stem)]
    if len(stem) > 2 and re.search(r"(?<![a-z0-9])" + r"[\W_]?".join(pieces) + r"(?![a-z0-9])", lowered):
        return 1.0
    parts = [part for part in re.split(r"[\W_]+", stem) if len(part) > 2 and part not in _SAYS_LITTLE]
    if not parts:
        return 0.0
    asked = set(_WORDS.findall(lowered)) if stem.isascii() else {part for part in parts if part in lowered}
    held = sum(part in asked for part in parts)
    return held / len(parts) if 2 * held > len(parts) or (held and len(parts) == 1) else 0.0


def _titled(question: str, about: str) -> bool:
    for title in _TITLE.findall(about[:120])[:1]:
        if any(title[at:] in question for at in range(len(title) - FEWEST_OF_TITLE + 1)):
            return True
    initials = "".join(word[0] for word in _CAPITALISED.findall(about) if not word.isupper() or len(word) == 1)
    return any(one in initials for one in _INITIALS.findall(question) if len(one) > 2)
