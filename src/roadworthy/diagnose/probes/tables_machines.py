"""What tables of GPUs, links and node pairs say, judged by what their columns mean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.diagnose.probes.tables import number_of, reasons_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roadworthy.diagnose.probes.tables import Table
    from roadworthy.diagnose.values import Clue, Document


def clocks_table(document: Document, table: Table) -> Iterator[Clue]:
    """Clocks and event reasons: ``clocks.fell`` over time or against peers, with the reason that is active."""
    clock = table.column(r"sm_?mhz|clocks?\.?(?:current\.)?sm|sm[_ ]clock|clock_mhz|mhz")
    if clock is None:
        return
    reasons = table.column(r"reasons?")
    named = [
        index
        for index, name in enumerate(table.columns)
        if re.search(r"power_cap|slowdown|thermal|power_brake", name, re.IGNORECASE)
    ]
    values = [
        (value, row, line)
        for value, row, line in zip(table.numbers(clock), table.rows, table.lines, strict=True)
        if value
    ]
    if len(values) < 2:
        return
    high = max(value for value, *_ in values)
    power, limit = table.column(r"power"), table.column(r"limit")
    low = [item for item in values if item[0] < 0.94 * high]
    active = [(name, row, line) for _, row, line in values for name in _reasons(table, row, reasons, named)]
    for name in {name for name, *_ in active} - {"sw-power-cap", "idle"}:
        line = next(line for other, _, line in active if other == name)
        yield document.clue(f"clocks.{name}", line, gpu="", reason=name.replace("-", " "))
    capped = [line for name, _, line in active if name == "sw-power-cap"]
    if capped and low:
        yield document.clue(
            "clocks.power-capped-and-low", *capped[:2], mhz=f"{min(v for v, *_ in values):g}", high=f"{high:g}"
        )
    elif capped:
        yield document.clue("clocks.power-capped-evenly", capped[0])
    if low and not capped:
        value, row, line = min(low, key=lambda item: item[0])
        yield document.clue(
            "clocks.fell",
            line,
            mhz=f"{value:g}",
            high=f"{high:g}",
            who=row[0],
            power=row[power] if power is not None else "",
            limit=row[limit] if limit is not None else "",
        )
    if not low and not any(name not in ("idle", "sw-power-cap") for name, *_ in active):
        yield document.clue("clocks.equal", values[0][2])


def _reasons(table: Table, row: Sequence[str], reasons: int | None, named: Sequence[int]) -> list[str]:
    found: list[str] = []
    if reasons is not None and (mask := re.search(r"0x[0-9a-fA-F]+", row[reasons])):
        found += reasons_of(int(mask.group(), 16))
    for index in named:
        if row[index].strip().lower() in ("active", "1", "true", "yes"):
            name = table.columns[index].lower().rpartition(".")[2]
            name = re.sub(r"[_ ]slowdown$", "", name).replace("_", "-")
            found.append({"hw-slowdown": "hw"}.get(name, name))
    return found


def pcie_links(document: Document, table: Table) -> Iterator[Clue]:
    """``pcie.link`` of each GPU in a query of nvidia-smi."""
    names = {
        "gen": r"link\.gen\.(?:gpu)?current", "gen_max": r"link\.gen\.(?:gpu)?max", "width": r"link\.width\.current",
        "width_max": r"link\.width\.max", "utilisation": r"utilization\.gpu", "gpu": r"^index$",
    }  # fmt: skip
    columns = {key: table.column(pattern) for key, pattern in names.items()}
    if columns["gen"] is None and columns["width"] is None:
        return
    for row, line in zip(table.rows, table.lines, strict=True):
        values = {key: "" if at is None else f"{number_of(row[at]) or 0:.0f}" for key, at in columns.items()}
        yield document.clue("pcie.link", line, **values, pstate="")


def compute_processes(document: Document, table: Table) -> Iterator[Clue]:
    """``gpu.process`` of a query of compute apps, whatever the order of its columns."""
    pid, memory, name = table.column(r"^pid"), table.column(r"used.*memory"), table.column(r"process_name|name")
    if pid is None or memory is None:
        return
    for row, line in zip(table.rows, table.lines, strict=True):
        used = number_of(row[memory])
        if row[pid].isdigit() and used is not None:
            who = row[name] if name is not None else ""
            yield document.clue("gpu.process", line, gpu="", pid=row[pid], name=who, mib=f"{used:.0f}")


def memory_health(document: Document, table: Table) -> Iterator[Clue]:
    """Row remapping and ECC counts of a query: ``ecc.pending``, ``ecc.remap-failed``, ``ecc.uncorrectable``."""
    columns = {
        "ecc.pending": table.column(r"remapped_rows\.pending"), "ecc.remap-failed": table.column(r"remapped_rows\.failure"),
        "ecc.remapped-rows": table.column(r"remapped_rows\.uncorrectable"),
        "ecc.uncorrectable": table.column(r"ecc\.errors\.uncorrected\.volatile\.(?:total|device_memory|dram)"),
    }  # fmt: skip
    for name, at in columns.items():
        for row, line in zip(table.rows, table.lines, strict=True):
            if at is not None and (row[at].lower() == "yes" or (number_of(row[at]) or 0) > 0):
                yield document.clue(name, line, gpu=row[0], count=row[at])


def uplinks(document: Document, table: Table) -> Iterator[Clue]:
    """``fabric.uplinks-uneven``: some links between switches are full while their neighbours idle."""
    port, rate = (
        table.column(r"uplink|spine|isl|trunk|port|interface|link"),
        table.column(r"gbps|gbit|gb/s|util|tx|rate"),
    )
    if port is None or rate is None or port == rate:
        return
    if not re.search(r"uplink|leaf|spine|\bISL\b|ECMP|trunk", document.file + document.text[:4000], re.IGNORECASE):
        return
    values = [(one, line) for one, line in zip(table.numbers(rate), table.lines, strict=True) if one]
    if len(values) < 3:
        return
    top, low = max(values, key=lambda one: one[0]), min(values, key=lambda one: one[0])
    if low[0] < 0.25 * top[0] and sum(one > 0.85 * top[0] for one, _ in values) < len(values) - 1:
        yield document.clue("fabric.uplinks-uneven", top[1], low[1], most=f"{top[0]:g}", least=f"{low[0]:g}")


def pairs(document: Document, table: Table) -> Iterator[Clue]:
    """``matrix.slow-pair`` of a table of node pairs and what each moved."""
    one, two = (
        table.column(r"^src$|source|from|client|node_?a|^a$|node1"),
        table.column(r"^dst$|dest|^to$|server|node_?b|^b$|node2|peer"),
    )
    rate = table.column(r"gbps|gbit|gb/s|gb_?per_?s|busbw|bandwidth|^bw")
    if one is None or two is None or rate is None or len({one, two, rate}) < 3:
        return
    cells = [
        (value, row[one], row[two], line)
        for row, value, line in zip(table.rows, table.numbers(rate), table.lines, strict=True) if value is not None
    ]  # fmt: skip
    good = sorted(value for value, *_ in cells)[-max(1, len(cells) // 3)] if len(cells) >= 4 else 0.0
    slow = [cell for cell in cells if cell[0] < 0.7 * good]
    if slow and len(slow) <= 0.6 * len(cells):
        for value, first, second, line in slow[:4]:
            yield document.clue("matrix.slow-pair", line, value=f"{value:g}", one=first, two=second, usual=f"{good:g}")


READERS = (pairs, uplinks, compute_processes, memory_health, pcie_links, clocks_table)
