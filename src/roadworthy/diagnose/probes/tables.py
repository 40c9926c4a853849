"""Tables with a header (CSV, TSV, markdown), access logs and metrics (Prometheus text) as rows and columns."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.values import Document, Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A header and its rows; ``lines`` stand beside ``rows``."""

    header: Line
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[Line, ...]

    def column(self, *patterns: str) -> int | None:
        """Index of the first column whose name matches a pattern, patterns in order of preference."""
        for pattern in patterns:
            for index, name in enumerate(self.columns):
                if re.search(pattern, name, re.IGNORECASE):
                    return index
        return None

    def numbers(self, index: int) -> list[float | None]:
        return [number_of(row[index]) for row in self.rows]


def number_of(text: str) -> float | None:
    found = re.match(r"^\s*(-?\d+(?:\.\d+)?)", text)
    return float(found.group(1)) if found and not text.strip().startswith("0x") else None


def tables(document: Document) -> Iterator[Table]:
    """Every table of a document: a header of names and at least two rows (three of two cells) with as many cells."""
    lines = list(document.numbered())
    at = 0
    while at < len(lines):
        cells = _cells(lines[at].text)
        if len(cells) < 2 or not all(re.match(r"^[A-Za-z_][\w./ %()\[\]-]*$", cell) for cell in cells):
            at += 1
            continue
        rows, kept = [], []
        end = at + 1
        ruled = end < len(lines) and RULE.match(lines[end].text) is not None
        if "|" in lines[at].text and not ruled and any(" " in cell for cell in cells):  # nvidia-smi draws boxes too
            at += 1
            continue
        end += ruled
        while end < len(lines) and (values := _cells(lines[end].text)) and len(values) == len(cells):
            if any(number_of(value) is not None for value in values):
                rows.append(tuple(values))
                kept.append(lines[end])
            end += 1
        if len(rows) >= (2 if len(cells) > 2 else 3):
            yield Table(header=lines[at], columns=tuple(cells), rows=tuple(rows), lines=tuple(kept))
        at = max(end, at + 1)


RULE = re.compile(r"^\s*\|[\s:|-]+\|?\s*$")


def _cells(text: str) -> list[str]:
    if text.lstrip().startswith("|") and text.count("|") >= 3 and not RULE.match(text):
        return [cell.strip() for cell in text.strip().strip("|").split("|")]
    if "," in text:
        return [cell.strip() for cell in text.split(",")]
    if "\t" in text:
        return [cell.strip() for cell in text.split("\t") if cell.strip()]
    return []


PAIR = re.compile(r"(?P<key>[A-Za-z_][\w.-]*)=(?P<value>\S+)")

BACKEND = re.compile(r"(?:^|\s)(?P<name>[\w.-]+/[\w.-]+)(?=\s|$)")


def records(document: Document) -> Iterator[Table]:
    """Access logs as tables: runs of JSON lines, or of ``key=value`` lines, that all have the same keys. A word such
    as ``pool/server`` among the pairs, as load balancers write it, is the column ``backend``."""
    grouped: dict[tuple[str, ...], list[tuple[tuple[str, ...], Line]]] = {}
    for line in document.numbered():
        record = _record(line.text)
        if len(record) >= 3:
            grouped.setdefault(tuple(record), []).append((tuple(record.values()), line))
    for columns, found in grouped.items():
        if len(found) >= 3:
            yield Table(
                header=found[0][1],
                columns=columns,
                rows=tuple(row for row, _ in found),
                lines=tuple(line for _, line in found),
            )


def _record(text: str) -> dict[str, str]:
    if text.lstrip().startswith("{"):
        try:
            loaded = json.loads(text)
        except ValueError:
            return {}
        return {str(key): str(value) for key, value in loaded.items()} if isinstance(loaded, dict) else {}
    record = {found["key"]: found["value"] for found in PAIR.finditer(text)}
    if len(record) >= 3 and "backend" not in record and (found := BACKEND.search(PAIR.sub("", text))):
        record["backend"] = found["name"]
    return record


REASON_BITS = (
    (0x1, "idle"), (0x4, "sw-power-cap"), (0x8, "hw"), (0x20, "sw-thermal"), (0x40, "hw-thermal"), (0x80, "hw-power-brake"),
)  # fmt: skip


def reasons_of(mask: int) -> list[str]:
    """Names of the bits of ``clocks_event_reasons.active`` (NVML, nvmlClocksEventReasons)."""
    return [name for bit, name in REASON_BITS if mask & bit]


METRIC = re.compile(
    r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>[^}]*)\})?\s+(?P<value>[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|NaN|\+?Inf))(?:\s+\d+)?\s*$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line of a scrape."""

    name: str
    labels: str
    value: float
    line: Line


def samples(document: Document) -> list[Sample]:
    """Samples of a Prometheus text; names without ``vllm:`` and ``sglang:``, ``_total`` kept."""
    found = []
    for line in document.numbered():
        if match := METRIC.match(line.text):
            name = re.sub(r"^(?:vllm|sglang|engine):", "", match["name"])
            found.append(Sample(name=name, labels=match["labels"] or "", value=float(match["value"]), line=line))
    return found
