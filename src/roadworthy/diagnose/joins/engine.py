"""What an engine's own log says over time: leaks, starvation, stalls, slow loads, bursts of a stream."""

from __future__ import annotations

import re
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

from roadworthy.diagnose.probes.tables import number_of, tables
from roadworthy.diagnose.values import derived

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from roadworthy.diagnose.probes.tables import Table
    from roadworthy.diagnose.values import Clue, ClueBook, Line

EVENTS_OF_A_BURST = 8


def statistics(book: ClueBook) -> Iterator[Clue]:
    """The engine's own log lines over time, file by file."""
    for some in _by_file(book.all("engine.stats")).values():
        last = some[-1]
        usage = last.number("kv_percent")
        yield from _pool(some, usage / 100, usage=f"{usage:g} %")
        hits = [clue.number("hit_percent") for clue in some if clue.value("hit_percent")]
        busy = [clue.number("prompt_per_s") for clue in some]
        if hits and hits[-1] < 2.0 and max(busy, default=0) > 1000:
            yield derived(last, "cache.few-hits-in-log", share=f"{hits[-1]:g} %")
        prefilling = [one for one in some if one.number("prompt_per_s") > 500 and one.number("output_per_s") < 3]
        decoding = [one for one in some if one.number("prompt_per_s") < 50 and one.number("output_per_s") > 10]
        if prefilling and decoding and int(prefilling[0].number("running")) >= 2 and usage < 90:
            yield derived(
                prefilling[0], "decode.starved-by-prefill", decoding[0],
                during=f"{prefilling[0].value('output_per_s')} tokens/s",
                without=f"{decoding[0].value('output_per_s')} tokens/s",
            )  # fmt: skip
        yield from _starved(some)
        stalled = [
            clue
            for clue in some
            if int(clue.number("running")) > 0
            and clue.number("output_per_s", 1.0) < 1.0
            and clue.number("prompt_per_s", 1.0) < 1.0
        ]
        if len(stalled) >= 2:
            yield derived(stalled[0], "engine.stalled")


STARVED_TO = 1 / 3
STOPPED_TO = 1 / 8
"""In an engine's own lines, where a wave of ordinary prompts also takes most of the steps for a while."""

PREFILL_PER_S = 1000.0
"""Prompt tokens a second from which a step's budget is mostly prompt."""


def _starved(some: list[Clue]) -> Iterator[Clue]:
    """The same requests decode before, hardly while a long prompt is read, and again after it."""
    for at, during in enumerate(some):
        slow, read, usage = during.number("output_per_s"), during.number("prompt_per_s"), during.number("kv_percent")
        if read < PREFILL_PER_S or usage >= 90:
            continue
        running = during.number("running")
        before = [
            one for one in some[:at]
            if one.number("running") >= max(2.0, running / 1.5) and one.number("output_per_s") * STOPPED_TO > slow
            and one.number("prompt_per_s") < read / 4
        ]  # fmt: skip
        after = [one for one in some[at + 1 :] if one.number("output_per_s") * STOPPED_TO > slow]
        if before and after:
            yield derived(
                during, "decode.starved-by-prefill", before[-1], during=f"{slow:g} tokens/s",
                without=f"{before[-1].number('output_per_s'):g} tokens/s",
            )  # fmt: skip
            return


def _by_file(clues: Iterable[Clue]) -> dict[str, list[Clue]]:
    found: dict[str, list[Clue]] = defaultdict(list)
    for clue in clues:
        found[clue.lines[0].file].append(clue)
    return found


def _pool(some: list[Clue], share: float, **values: str) -> Iterator[Clue]:
    """What the last of a log's lines says of the blocks, ``share`` of which are taken."""
    last = some[-1]
    if share >= 0.8 and last.number("running") <= 1:
        yield derived(last, "kv.full-while-idle", *some[-3:-1], **values)
    elif share >= 0.95 and last.number("waiting") > 0:
        yield derived(last, "kv.full-and-waiting", **values)
    elif share < 0.8:
        yield derived(last, "kv.has-room", **values)


def batches(book: ClueBook) -> Iterator[Clue]:
    """The same of SGLang's decode lines, and how many requests any engine's log says were aborted."""
    prefills = _by_file(book.all("sglang.prefill"))
    for file, some in _by_file(book.all("sglang.stats")).items():
        usage, running, waiting = (some[-1].number(key) for key in ("usage", "running", "waiting"))
        yield from _pool(some, usage, usage=f"{usage:.0%}", running=f"{running:g}", waiting=f"{waiting:g}")
        yield from _between_decodes(prefills.get(file, []), some)
    aborted = book.all("engine.request-aborted")
    if len(aborted) >= MANY_ABORTS:
        yield derived(aborted[0], "requests.aborted", *aborted[1:3], count=max(aborted[0].count, len(aborted)))


PREFILLS_IN_A_ROW = 3
EACH_AT_LEAST_PER_S = 0.5
"""Tokens a second of one stream; below it readers wait for every word."""


def _between_decodes(prefills: list[Clue], decodes: list[Clue]) -> Iterator[Clue]:
    """Several prefill batches before every decode batch, and hardly a token a second for each running request."""
    for at, decode in enumerate(decodes):
        since = decodes[at - 1].lines[0].number if at else 0
        between = [one for one in prefills if since < one.lines[0].number < decode.lines[0].number]
        running = decode.number("running")
        if (
            decode.value("output_per_s") and running >= 4 and len(between) >= PREFILLS_IN_A_ROW
            and decode.number("output_per_s") < EACH_AT_LEAST_PER_S * running and decode.number("usage") < 0.9
        ):  # fmt: skip
            yield derived(
                decode, "decode.starved-by-prefill", *between[:2],
                during=f"{decode.value('output_per_s')} tokens/s for {running:g} requests", without="their usual rate",
            )  # fmt: skip
            return


MANY_ABORTS = 3

LONG_PROMPT_TOKENS = 8_192
TIMES_THE_OTHERS = 8.0


def starved_streams(book: ClueBook) -> Iterator[Clue]:
    """``decode.starved-by-prefill`` from two tables: what streams got over time, and which prompts came when."""
    found = [(document, table) for document in book.documents for table in tables(document)]
    prompts = [one for document, table in found for one in _prompts(table)]
    if not prompts:
        return
    longest = max(prompts, key=lambda one: one[2])
    rest = [size for _, name, size, _ in prompts if name != longest[1]]
    if longest[2] < LONG_PROMPT_TOKENS or (rest and longest[2] < TIMES_THE_OTHERS * median(rest)):
        return
    for document, table in found:
        at, speed = (
            table.column(r"^t(?:ime)?(?:_?m?s)?$|^ts$|time|second"),
            table.column(r"tok\w*(?:_per_s|/s|_s)|rate|itl|tpot|gap|inter"),
        )
        if at is None or speed is None or table.column(r"prompt") is not None:
            continue
        who = table.column(r"stream|request|session|^id$|victim|client")
        gaps = bool(re.search(r"itl|tpot|gap|inter|_ms", table.columns[speed], re.IGNORECASE))
        points = [
            (moment, (1.0 / value if gaps and value else value), line)
            for row, value, line in zip(table.rows, table.numbers(speed), table.lines, strict=True)
            if value is not None and (moment := moment_of(row[at])) is not None
            and (who is None or row[who] != longest[1])
        ]  # fmt: skip
        before = [speed for moment, speed, _ in points if moment <= longest[0]]
        later = [(speed, line) for moment, speed, line in points if moment > longest[0]]
        if not before or len(later) < 2:
            continue
        worst, line = min(later, key=lambda one: one[0])
        if worst < STARVED_TO * median(before) and later[-1][0] > 0.5 * median(before):
            yield document.clue(
                "decode.starved-by-prefill", line, longest[3], during=f"{1 / worst if gaps and worst else worst:g}",
                without=f"{1 / median(before) if gaps else median(before):g}",
            )  # fmt: skip
            return


def _prompts(table: Table) -> Iterator[tuple[float, str, float, Line]]:
    """(moment, name, tokens, line) of every request of a table that has a time and a prompt's length."""
    at, size = (
        table.column(r"^t(?:ime)?(?:_?m?s)?$|^ts$|arriv|time|second"),
        table.column(r"prompt\w*(?:tok|len)|input_tok|^isl$"),
    )
    name = table.column(r"^id$|request|stream|session|name")
    if at is None or size is None or at == size:
        return
    for row, tokens, line in zip(table.rows, table.numbers(size), table.lines, strict=True):
        if tokens is not None and (moment := moment_of(row[at])) is not None:
            yield moment, row[name] if name is not None else "", tokens, line


def moment_of(text: str) -> float | None:
    """Seconds of ``12.5`` or of ``10:00:05``."""
    if found := re.match(r"^\s*(\d{1,2}):(\d\d)(?::(\d\d(?:\.\d+)?))?\s*$", text):
        hours, minutes, seconds = found.groups()
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds or 0)
    return number_of(text)


def streams(book: ClueBook) -> Iterator[Clue]:
    """``stream.burst`` where many events come in one read, ``stream.steady`` where they come one by one."""
    for clue in book.all("stream.read"):
        many = clue.value("all") or int(clue.number("events")) >= EVENTS_OF_A_BURST
        yield derived(clue, "stream.burst" if many else "stream.steady", events=clue.value("events") or "all")


def compiling(book: ClueBook) -> Iterator[Clue]:
    """``jit.stalled``: kernels are built and something waited for too long; building alone is every first start."""
    built = book.first("jit.build", "jit.empty-cache")
    waited = book.first(
        "warmup.timeout", "startup.timeout", "engine.hang-detector", "engine.execute-timeout",
        "collective.watchdog-*", "k8s.liveness-*", "engine.stalled", "request.first-slow",
    )  # fmt: skip
    if built is not None and waited is not None:
        yield derived(built, "jit.stalled", waited)


PASSING = re.compile(r"retry|thrown while requesting HEAD|WARNING|No platform detected")
"""Complaints that a start goes on after."""


def starts(book: ClueBook) -> Iterator[Clue]:
    """``hub.did-without``, ``platform.did-without``: what was complained of did not keep the engine from starting."""
    started = book.first("engine.started", "engine.served")
    if started is None:
        return
    for complaint, name in (("hub", "hub.did-without"), ("cuda.no-device", "platform.did-without")):
        said = book.all("hub.unreachable", "hub.denied") if complaint == "hub" else book.all(complaint)
        if said and all(PASSING.search(clue.lines[0].text) for clue in said):
            yield derived(started, name, said[-1])


def weights(book: ClueBook) -> Iterator[Clue]:
    """Loading that is far slower than a disk, and a load that took long."""
    for clue in reversed(book.all("weights.loading")):
        if clue.value("unit") == "s/it" and re.fullmatch(r"[\d.]+", clue.value("rate")) and clue.number("rate") > 8:
            yield derived(clue, "weights.slow-shards", rate=clue.value("rate"))
            break
    for clue in book.all("weights.took"):
        seconds = float(clue.value("seconds") or clue.value("seconds2") or 0)
        if seconds > 900:
            yield derived(clue, "weights.took-long", seconds=f"{seconds:g}")
    waits = book.all("engine.shm-broadcast-wait")
    loaded = [clue for clue in book.all("weights.loading") if clue.value("percent") == "100"]
    if waits and loaded and (waits[0].count >= 2 or len(waits) >= 2):
        yield derived(waits[-1], "weights.stall-after-load", loaded[0])


JOINS = (streams, statistics, batches, starved_streams, compiling, starts, weights)
