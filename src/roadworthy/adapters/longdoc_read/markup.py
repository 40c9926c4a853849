"""HTML: headings, paragraphs, lists and tables as text; scripts, styles and navigation are left out."""

from __future__ import annotations

from typing import Any

from roadworthy.adapters.longdoc_read.values import ReadDocument, UnreadableError

_LEFT_OUT = {"script", "style", "noscript", "template", "nav", "head", "svg", "iframe", "button", "form"}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = {
    "p", "div", "section", "article", "li", "tr", "table", "ul", "ol", "dl", "dt", "dd", "blockquote", "pre", "main",
    "header", "footer", "aside", "figure", "figcaption", "address", "hr", "br",
}  # fmt: skip


def read_html(data: bytes) -> ReadDocument:
    """Raises UnreadableError where nothing is in it."""
    from lxml import html

    try:
        root = html.document_fromstring(data, parser=html.HTMLParser(huge_tree=True, encoding=_encoding(data)))
    except Exception as error:
        raise UnreadableError(f"not readable HTML: {error}") from error
    parts: list[str] = []
    _walk(root, parts)
    text = "".join(parts)
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return ReadDocument(kind="html", text="\n\n".join(line for line in lines if line))


def _encoding(data: bytes) -> str | None:
    """UTF-8 where it is; else what the page says, or the parser guesses."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return "utf-8"


def _walk(root: Any, parts: list[str]) -> None:
    """Text of ``root`` in order, without recursion: pages are nested as deep as somebody likes."""
    waiting: list[tuple[Any, bool]] = [(root, True)]
    while waiting:
        node, entering = waiting.pop()
        tag = node.tag if isinstance(node.tag, str) else ""
        if not entering:
            parts.append("\n" if tag in _BLOCKS or tag in _HEADINGS else " " if tag in ("td", "th") else "")
            parts.append((node.tail or "").replace("\n", " "))
            continue
        if not tag or tag in _LEFT_OUT:
            parts.append((node.tail or "").replace("\n", " "))
            continue
        if tag in _HEADINGS:
            parts.append("\n" + "#" * _HEADINGS[tag] + " ")
        elif tag in _BLOCKS:
            parts.append("\n")
        elif tag in ("td", "th"):
            parts.append("| ")
        parts.append((node.text or "").replace("\n", " "))
        waiting.append((node, False))
        waiting += [(child, True) for child in reversed(node)]
