"""What tables of requests, sessions, ranks, streams and scores say, judged by what their columns mean."""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING

from roadworthy.diagnose.probes.tables import number_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.probes.tables import Table
    from roadworthy.diagnose.values import Clue, Document, Line


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


READERS = (streams, replica_hits, cache_scores, first_request, sessions, imbalance, starvation, stalls)
