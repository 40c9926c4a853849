"""What every HTML report is made of: the page around it, tables and notes. Text from outside is escaped here.

A page has no script and no address in it, and its own policy forbids loading anything, so that it can be mailed around
and opens offline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from roadworthy.bench.report_style import STYLE


def page(title: str, body: Iterable[str], *, subtitle: str = "", generator: str = "roadworthy", style: str = "") -> str:
    """The whole document. ``body`` is HTML; ``style`` is added to the common style sheet."""
    parts = [
        f"<header><h1>{escape(title)}</h1>{paragraph(subtitle, 'subtitle')}</header>",
        *body,
        f"<footer>{escape(generator)}</footer>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>"
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        '<meta name="color-scheme" content="light dark"/>'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head>\n<body><main>\n"
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A plain table; a column whose every cell starts like a number is aligned as one."""
    rows = [tuple(row) for row in rows]
    width = max([len(columns), *(len(row) for row in rows)], default=0)
    numeric = [bool(rows) and all(_is_number(row[at]) for row in rows if at < len(row)) for at in range(width)]
    head = "".join(_cell("th", name, numeric[at]) for at, name in enumerate(columns))
    body = "".join(f"<tr>{''.join(_cell('td', cell, numeric[at]) for at, cell in enumerate(row))}</tr>" for row in rows)
    return scroll(f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>")


def _is_number(text: str) -> bool:
    return text in ("", "–") or (text.lstrip("-+~≈<>")[:1].isdigit() and len(text) < 20)


def _cell(tag: str, text: str, numeric: bool) -> str:
    kind = ' class="number"' if numeric else ""
    return f"<{tag}{kind}>{escape(text)}</{tag}>"


def scroll(content: str) -> str:
    """``content`` in a box of its own that scrolls sideways where the page is narrow."""
    return f'<div class="scroll">{content}</div>'


def paragraph(text: str, kind: str) -> str:
    """A paragraph of the given class, or nothing."""
    return f'<p class="{kind}">{escape(text)}</p>' if text else ""


def notes(lines: Iterable[str]) -> str:
    """A list of remarks, or nothing."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="notes">{items}</ul>' if items else ""


def sentence(text: str) -> str:
    """``text`` with a capital and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
