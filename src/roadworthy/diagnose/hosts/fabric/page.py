"""The matrices as one page that opens offline: a heat map for each, findings below, no script."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.core.finding import Finding
    from roadworthy.diagnose.hosts.fabric.picture import Cell, Matrix

STYLE = """\
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}
table{border-collapse:collapse;margin:.5rem 0 1.5rem}
th{font-weight:500;text-align:right;padding:.25rem .5rem;white-space:nowrap}
td{padding:.25rem .5rem;text-align:right;font-variant-numeric:tabular-nums;color:#111;border:1px solid #8884}
td.slow{outline:2px solid #b00020;outline-offset:-2px;font-weight:600}
td.failed{background:#555;color:#fff}
td.partly{box-shadow:inset 0 0 0 2px #555}
td.none{background:none}
.scroll{overflow-x:auto}
section.finding{border-left:4px solid #b00020;padding:.1rem 1rem;margin:1rem 0}
code{overflow-wrap:anywhere}"""


def fabric_page(
    tables: Sequence[Matrix], findings: Sequence[Finding], could_not_look: Sequence[tuple[str, str]]
) -> str:
    """The whole page. Everything that came from a host is escaped."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Fabric</title>',
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<style>{STYLE}</style></head><body><h1>Fabric</h1>",
        "<p>Rows send, columns receive. Outlined: slow against its peers or its link (marked !). "
        "Grey: failed (x); framed in grey: some of its rails failed.</p>",
        *(_table(one) for one in tables),
        f"<h2>Findings</h2>{''.join(_finding(one) for one in findings) or '<p>None among what could be measured.</p>'}",
    ]
    if could_not_look:
        rows = "".join(f"<li>{escape(what)} <small>({escape(why)})</small></li>" for what, why in could_not_look)
        parts.append(f"<h2>Could not look</h2><ul>{rows}</ul>")
    return "\n".join([*parts, "</body></html>", ""])


def _table(matrix: Matrix) -> str:
    values = [cell.value for cell in matrix.cells.values() if cell.value is not None]
    best = (max if matrix.kind == "bandwidth" else min)(values, default=0.0)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in matrix.columns)
    rows = []
    for row in matrix.rows:
        cells = "".join(_cell(matrix, matrix.cells.get((row, column)), best) for column in matrix.columns)
        rows.append(f'<tr><th scope="row">{escape(row)}</th>{cells}</tr>')
    title = f"{matrix.title}, {matrix.unit}"
    return f'<h2>{escape(title)}</h2><div class="scroll"><table><tr><th></th>{head}</tr>{"".join(rows)}</table></div>'


def _cell(matrix: Matrix, cell: Cell | None, best: float) -> str:
    if cell is None:
        return '<td class="none"></td>'
    if cell.value is None:
        return f'<td class="failed" title="{escape(cell.about)}">x</td>'
    share = cell.value / best if matrix.kind == "bandwidth" else best / cell.value if cell.value else 1.0
    hue = round(120 * max(0.0, min(1.0, (share - 0.3) / 0.7)))  # red at 30 % of the best and below, green at the best
    digits = 1 if cell.value >= 10 else 3
    mark, kind = ("!", ' class="slow"') if cell.slow else ("x", ' class="partly"') if cell.failed else ("", "")
    shown = f"{cell.value:.{digits}f}{mark}"
    return f'<td{kind} style="background:hsl({hue} 65% 72%)" title="{escape(cell.about)}">{shown}</td>'


def _finding(one: Finding) -> str:
    quoted = "".join(
        f"<li><code>{escape(evidence.file)}:{evidence.line}: {escape(evidence.text[:200])}</code></li>"
        for evidence in one.evidence[:4]
    )
    return (
        f'<section class="finding"><h3>{escape(one.code)}: {escape(one.subject)}</h3>'
        f"<p>{escape(one.diagnosis)}</p><ul>{quoted}</ul><p>Remedy: {escape(one.remedy)}</p></section>"
    )
