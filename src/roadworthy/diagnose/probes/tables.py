"""Tables with a header (CSV, TSV) and metrics (Prometheus text): judged by what the columns mean, not by their names."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roadworthy.diagnose.values import Clue, Document, Line


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


def table_clues(document: Document) -> Iterator[Clue]:
    """What the tables of a document say, by every reader that knows their columns."""
    for table in tables(document):
        for reader in READERS:
            for clue in reader(document, table):  # a row means nothing without the names of its columns
                yield replace(clue, lines=(clue.lines[0], table.header, *clue.lines[1:]))
    for table in records(document):
        yield from sessions(document, table)


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


def sessions(document: Document, table: Table) -> Iterator[Clue]:
    """Turns of a session: ``session.moved`` and not cached, or ``session.same-worker-uncached``."""
    session = table.column(r"session|conv|chat|user")
    worker = table.column(r"worker|replica|endpoint|engine|backend|instance|pod|upstream")
    cached = table.column(r"cached|hit")
    prompt = table.column(r"prompt|input")
    if session is None or cached is None or worker is None:
        return
    last: dict[str, str] = {}
    moved: list[Line] = []
    stayed: list[Line] = []
    hits = 0
    for row, line in zip(table.rows, table.lines, strict=True):
        share = _share(row[cached], row[prompt] if prompt is not None else "")
        before = last.get(row[session])
        if before is not None:
            if share > 0.3:
                hits += 1
            elif before == row[worker]:
                stayed.append(line)
            else:
                moved.append(line)
        last[row[session]] = row[worker]
    if len(moved) >= 2 and len(moved) > 2 * len(stayed):
        yield document.clue("session.moved", *moved[:3], turns=len(moved))
    elif stayed and len(stayed) > len(moved):
        yield document.clue("session.same-worker-uncached", *stayed[:3], turns=len(stayed), hits=hits)


def _share(cached: str, prompt: str) -> float:
    value, whole = number_of(cached) or 0.0, number_of(prompt)
    if whole:
        return value / whole
    return value if value <= 1 else value / 100


def imbalance(document: Document, table: Table) -> Iterator[Clue]:
    """One rank, GPU or expert with far more tokens than the rest: ``moe.rank-overloaded``; slow without more tokens:
    ``rank.slow``."""
    rank = table.column(r"^rank$|rank", r"^gpu|device", r"expert")
    tokens = table.column(r"token|routed|received|load|recv|count")
    busy = table.column(r"gemm|busy|compute|kernel|step|forward|time|_ms$|latency")
    if rank is None:
        return
    if tokens is not None and re.search(r"rank|gpu|device|expert", table.columns[rank], re.IGNORECASE):
        sums: dict[str, float] = {}
        where: dict[str, Line] = {}
        for row, line in zip(table.rows, table.lines, strict=True):
            sums[row[rank]] = sums.get(row[rank], 0.0) + (number_of(row[tokens]) or 0.0)
            where.setdefault(row[rank], line)
        top = max(sums, key=lambda name: sums[name])
        rest = [value for name, value in sums.items() if name != top]
        if rest and median(rest) > 0 and sums[top] > 1.8 * median(rest):
            yield document.clue(
                "moe.rank-overloaded", where[top], rank=top, tokens=f"{sums[top]:g}", usual=f"{median(rest):g}",
                times=f"{sums[top] / median(rest):.1f}",
            )  # fmt: skip
        elif rest and median(rest) > 0 and sums[top] < 1.2 * median(rest):
            yield document.clue("moe.balanced", where[top])
    if busy is not None:
        yield from _slow_rank(document, table, rank, busy)


def _slow_rank(document: Document, table: Table, rank: int, busy: int) -> Iterator[Clue]:
    values = [(number_of(row[busy]), row[rank], line) for row, line in zip(table.rows, table.lines, strict=True)]
    known = [(value, name, line) for value, name, line in values if value is not None]
    if len(known) < 3:
        return
    top, name, line = max(known, key=lambda item: item[0])
    usual = median(value for value, other, _ in known if other != name) if any(o != name for _, o, _ in known) else top
    if usual > 0 and top > 1.4 * usual:
        yield document.clue("rank.slow", line, rank=name, value=f"{top:g}", usual=f"{usual:g}")


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


REASON_BITS = (
    (0x1, "idle"), (0x4, "sw-power-cap"), (0x8, "hw"), (0x20, "sw-thermal"), (0x40, "hw-thermal"), (0x80, "hw-power-brake"),
)  # fmt: skip


def reasons_of(mask: int) -> list[str]:
    """Names of the bits of ``clocks_event_reasons.active`` (NVML, nvmlClocksEventReasons)."""
    return [name for bit, name in REASON_BITS if mask & bit]


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


def starvation(document: Document, table: Table) -> Iterator[Clue]:
    """Decode speed of a victim that falls while a long prefill runs, and comes back: ``decode.starved-by-prefill``."""
    victim = table.column(
        r"victim",
        r"stall|freez|frozen|blocked",
        r"decode.*tok|tok.*decode|output_tok|gen.*tok|^tok_s|itl|inter_token|tpot",
    )
    prefill = table.column(r"prefill", r"prompt.*(?:tok|len)|prompt_tok")
    if victim is None or prefill is None or victim == prefill:
        return
    slower_is_more = bool(
        re.search(
            r"itl|latency|tpot|_ms|inter_token|gap|stall|freez|frozen|blocked", table.columns[victim], re.IGNORECASE
        )
    )
    pairs = [
        (one, other, line)
        for one, other, line in zip(table.numbers(victim), table.numbers(prefill), table.lines, strict=True)
        if one is not None and other is not None
    ]
    if len(pairs) < 3:
        return
    top = max(other for _, other, _ in pairs)
    during = [one for one, other, _ in pairs if top > 0 and other > 0.5 * top]
    without = [one for one, other, _ in pairs if other < 0.1 * top]
    if not during or not without:
        return
    worse = median(during) > 3 * median(without) if slower_is_more else median(during) < 0.33 * median(without)
    if worse:
        line = next(line for _, other, line in pairs if other > 0.5 * top)
        yield document.clue(
            "decode.starved-by-prefill", line, during=f"{median(during):g}", without=f"{median(without):g}"
        )


def stalls(document: Document, table: Table) -> Iterator[Clue]:
    """Tokens of running streams that wait while another request's long prompt is read, event by event:
    ``decode.starved-by-prefill``."""
    event, gap = table.column(r"^event|^kind|^what"), table.column(r"inter_token|itl|gap|tpot")
    request, prompt = table.column(r"^req|request|stream|^id$"), table.column(r"prompt")
    if event is None or gap is None or request is None or prompt is None:
        return
    gaps = [value for value in table.numbers(gap) if value is not None]
    usual = median(gaps) if gaps else 0.0
    reading: dict[str, Line] = {}
    starved: list[tuple[float, Line]] = []
    slow = 0
    for row, value, line in zip(table.rows, table.numbers(gap), table.lines, strict=True):
        if re.search(r"arriv|submit|start", row[event], re.IGNORECASE) and (number_of(row[prompt]) or 0) >= 4_096:
            reading[row[request]] = line
        elif value is not None and usual > 0 and value > 10 * usual:
            slow += 1
            if others := [arrival for name, arrival in reading.items() if name != row[request]]:
                starved.append((value, others[-1]))
        if re.search(r"first", row[event], re.IGNORECASE):
            reading.pop(row[request], None)
    if len(starved) >= 2 and len(starved) == slow:
        worst, arrival = max(starved, key=lambda item: item[0])
        where = next(line for value, line in zip(table.numbers(gap), table.lines, strict=True) if value == worst)
        yield document.clue(
            "decode.starved-by-prefill", where, arrival, during=f"{worst:g} ms a token", without=f"{usual:g}"
        )


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


FIRST_SLOW_S, TIMES_SLOWER = 20.0, 20.0


def first_request(document: Document, table: Table) -> Iterator[Clue]:
    """``request.first-slow``: the first of several requests takes many times what the others take."""
    at = table.column(r"ttft.*_s$|latency_s$|duration_s$|ttft_?s$|first_token_s")
    if at is None:
        return
    values = [value for value in table.numbers(at) if value is not None]
    if len(values) >= 3 and values[0] >= FIRST_SLOW_S and values[0] > TIMES_SLOWER * median(values[1:]):
        yield document.clue(
            "request.first-slow",
            table.lines[0],
            table.lines[1],
            first=f"{values[0]:g}",
            later=f"{median(values[1:]):g}",
        )


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


def streams(document: Document, table: Table) -> Iterator[Clue]:
    """The same stream direct and through something: first token late and the rest at once is ``stream.burst``."""
    yield from _event_times(document, table)
    ttft, itl = table.column(r"ttft|first"), table.column(r"mean_itl|itl|inter|tpot")
    if ttft is None or itl is None:
        return
    direct = next(
        (number for number, row in enumerate(table.rows) if re.search(r"direct|engine|none", row[0], re.IGNORECASE)),
        None,
    )
    if direct is None:
        return
    late, gap = number_of(table.rows[direct][ttft]), number_of(table.rows[direct][itl])
    for row, line in zip(table.rows, table.lines, strict=True):
        other, other_gap = number_of(row[ttft]), number_of(row[itl])
        if late and gap and other is not None and other_gap is not None and other > 3 * late and other_gap < 0.5 * gap:
            yield document.clue("stream.burst", line, events="all")
            yield document.clue("stream.steady", table.lines[direct])


def _event_times(document: Document, table: Table) -> Iterator[Clue]:
    """When each event of a stream arrived, direct and through a proxy: all at the end there is ``stream.burst``."""
    path, event = table.column(r"path|route|via|hop|client"), table.column(r"event|chunk|token")
    when = table.column(r"arriv|_ms|_s$|time|after")
    if path is None or event is None or when is None or when in (path, event):
        return
    arrivals: dict[str, list[tuple[float, Line]]] = {}
    for row, value, line in zip(table.rows, table.numbers(when), table.lines, strict=True):
        if value is not None:
            arrivals.setdefault(row[path], []).append((value, line))
    spread = {name: (max(some)[0] - min(some)[0], max(some)[0]) for name, some in arrivals.items() if len(some) >= 2}
    steady = [name for name, (width, end) in spread.items() if end > 0 and width > 0.3 * end]
    for name, (width, end) in spread.items():
        if steady and name not in steady and width < 0.05 * end:
            yield document.clue("stream.burst", *(line for _, line in arrivals[name][:2]), events="all")
            yield document.clue("stream.steady", arrivals[steady[0]][0][1])


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


SINGLE = re.compile(r"single|pinned|sticky|one replica|direct", re.IGNORECASE)


def replica_hits(document: Document, table: Table) -> Iterator[Clue]:
    """``session.hits-fall-with-replicas``: a hit rate that only one replica, or pinned sessions, reach."""
    rate, replicas = (
        table.column(r"hit.*rate|hit_ratio|cache.*hit|hits?%"),
        table.column(r"^replicas?$|^pods$|^backends$|n_?replicas|workers$|instances$"),
    )
    if rate is None or (replicas is None and not any(SINGLE.search(" ".join(row)) for row in table.rows)):
        return
    alone: list[tuple[float, Line]] = []
    spread: list[tuple[float, Line]] = []
    for row, value, line in zip(table.rows, table.numbers(rate), table.lines, strict=True):
        if value is None:
            continue
        single = SINGLE.search(" ".join(row)) or (replicas is not None and number_of(row[replicas]) == 1)
        (alone if single else spread).append((value, line))
    if alone and spread:
        best, worst = max(alone, key=lambda one: one[0]), min(spread, key=lambda one: one[0])
        if worst[0] < 0.5 * best[0]:
            yield document.clue(
                "session.hits-fall-with-replicas", worst[1], best[1], alone=f"{best[0]:g}", spread=f"{worst[0]:g}"
            )


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


BENCHMARKS = r"gsm8k|mmlu|humaneval|mbpp|aime|gpqa|ifeval|hellaswag|math|bleu|rouge|^f1"


def cache_scores(document: Document, table: Table) -> Iterator[Clue]:
    """Runs with and without prefix caching: ``eval.worse-with-cache`` where hits cost accuracy."""
    yield from _right_by_hit(document, table)
    score = table.column(r"accuracy|exact|score|pass@|acc$", BENCHMARKS)
    caching = table.column(r"prefix.*cach|cach.*(?:on|enabled|mode)|^cach\w*$|prefix")
    if score is None or caching is None:
        return
    on: list[tuple[float, Line]] = []
    off: list[tuple[float, Line]] = []
    for row, value, line in zip(table.rows, table.numbers(score), table.lines, strict=True):
        if value is not None:
            (off if re.match(r"off|false|no|0|disabled", row[caching], re.IGNORECASE) else on).append((value, line))
    if on and off and min(value for value, _ in on) < 0.85 * max(value for value, _ in off):
        worst, best = min(on, key=lambda item: item[0]), max(off, key=lambda item: item[0])
        yield document.clue("eval.worse-with-cache", worst[1], best[1], on=f"{worst[0]:g}", off=f"{best[0]:g}")


def _right_by_hit(document: Document, table: Table) -> Iterator[Clue]:
    """Right answers counted beside the tokens that came from the cache."""
    cached, right = table.column(r"^cached|cached_tokens|hit_tokens"), table.column(r"correct|right|passed")
    asked = table.column(r"^prompts$|asked|total|questions|^n$|runs")
    if cached is None or right is None or asked is None:
        return
    shares = [
        ((number_of(row[right]) or 0.0) / (number_of(row[asked]) or 1.0), (number_of(row[cached]) or 0.0) > 0, line)
        for row, line in zip(table.rows, table.lines, strict=True)
    ]
    cold = [(share, line) for share, hit, line in shares if not hit]
    warm = [(share, line) for share, hit, line in shares if hit]
    if cold and warm and min(share for share, _ in warm) < 0.85 * min(share for share, _ in cold):
        worst, best = min(warm, key=lambda item: item[0]), min(cold, key=lambda item: item[0])
        yield document.clue("eval.worse-with-cache", worst[1], best[1], on=f"{worst[0]:g}", off=f"{best[0]:g}")


READERS = (
    streams,
    pairs,
    replica_hits,
    uplinks,
    cache_scores,
    compute_processes,
    memory_health,
    first_request,
    pcie_links,
    sessions,
    imbalance,
    clocks_table,
    starvation,
    stalls,
)

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


PROBES = (table_clues,)
