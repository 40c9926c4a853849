"""What engines say of themselves over time: KV pool, preemptions, leaks, cache hits, queues, stalls, slow engines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from roadworthy.diagnose.metrics.series import lasting, middle, overlap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.metrics.series import Family, Series, Span
    from roadworthy.diagnose.values import Clue

FULL_RATIO, CROWDED_RATIO, ROOMY_RATIO = 0.9, 0.95, 0.8
LASTING_S = 60.0
STUCK_RATIO = 0.02
STUCK_WITH_TRANSFER_S = 600.0
"""A prefill engine keeps blocks for its decode peer, up to the abort time-out of 480 s."""

PREEMPTIONS_PER_S = 0.01
"""Preemptions a second while the pool is full; below, it is pressure and no storm."""

MIN_QUERIED_TOKENS = 1_000
"""Fewer looked-up tokens say nothing about a hit rate."""

STALL_S = 120.0
SLOW_TIMES = 1.4
EXPERT_TIMES = 1.8
QUEUE_LEAST = 10
USAGE = ("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage")
RUNNING = ("num_requests_running", "num_running_reqs")
WAITING = ("num_requests_waiting", "num_queue_reqs")
EXPERTS = re.compile(r"expert.*(?:load|token|count)|tokens_per_(?:expert|rank)|rank.*tokens|eplb")


def engine_of(one: Series) -> tuple[str, ...]:
    """Which engine a series is of: where it runs and its data-parallel rank."""
    return (
        one.label("namespace"),
        one.label("pod", "instance", "node"),
        one.label("engine", "dp_rank", "engine_index"),
    )


def _first(found: dict[tuple[str, ...], list[Series]], key: tuple[str, ...]) -> Series | None:
    return found[key][0] if found.get(key) else None


def share_of(value: float) -> float:
    """Usage as a share: some engines' versions write per cent under the same name."""
    return value / 100 if value > 1.5 else value


def pools(family: Family) -> Iterator[Clue]:
    """``kv.full-and-preempting``, ``.full-and-waiting``, ``.full-while-idle``; ``kv.has-room`` where none is full."""
    usage, running = family.by(engine_of, *USAGE), family.by(engine_of, *RUNNING)
    waiting, preempted = family.by(engine_of, *WAITING), family.by(engine_of, "num_preemptions")
    moves_blocks = any(re.search(r"nixl|mooncake|kv_fetch|kv_transfer", name) for name, _ in family)
    told, roomy = False, []
    for key, some in usage.items():
        use = some[0]
        _, highest = use.peak()
        idle = _idle(use, _first(running, key), _first(waiting, key), moves_blocks=moves_blocks)
        full = list(_full(use, _first(preempted, key), _first(waiting, key)))
        yield from (*idle, *full)
        told = told or bool(idle or full)
        if share_of(highest) < ROOMY_RATIO:
            roomy.append(use.clue("kv.has-room", time_s=use.peak()[0], usage=f"{share_of(highest):.0%} at most"))
    if roomy and not told and len(roomy) == len(usage):
        yield from roomy


def _full(use: Series, preempted: Series | None, waiting: Series | None) -> Iterator[Clue]:
    high = use.when(lambda value: share_of(value) >= FULL_RATIO)
    _, peak = use.peak()
    if preempted is not None and high:
        # Points between scrapes are unknown: a preemption may be counted one step after the pool was seen full.
        span = (high[0][0] - LASTING_S, high[-1][1] + LASTING_S)
        count = preempted.increase(span)
        worst = _worst_rate(preempted, span)
        if count > 0 and worst >= PREEMPTIONS_PER_S:
            began = high[0][0]
            yield use.clue(
                "kv.full-and-preempting",
                preempted.quoted(f"{count:.0f} more while the pool was full, {worst:.2g}/s at worst", (began,)),
                time_s=began, usage=f"{share_of(peak):.0%}", preemptions=f"{count:.0f}",
            )  # fmt: skip
            return
    if waiting is not None:
        crowded = use.when(lambda value: share_of(value) >= CROWDED_RATIO)
        both = lasting(overlap(crowded, waiting.when(lambda value: value > 0)), LASTING_S)
        if both:
            most = max(waiting.within(both[0]), default=0.0)
            yield use.clue(
                "kv.full-and-waiting", waiting.quoted(at=(both[0][0],)), time_s=both[0][0],
                usage=f"{share_of(peak):.0%}", waiting=f"{most:.0f}",
            )  # fmt: skip


def _worst_rate(counter: Series, span: Span, window_s: float = 300.0) -> float:
    """The highest rate of ``counter`` over ``window_s`` within ``span``."""
    start, end = span
    worst, at = 0.0, start
    while at < end:
        upto = min(end, at + window_s)
        worst = max(worst, counter.increase((at, upto)) / window_s)
        at += window_s / 2
    return worst


def _idle(use: Series, running: Series | None, waiting: Series | None, *, moves_blocks: bool) -> list[Clue]:
    """``kv.full-while-idle``: blocks stay taken with nothing running, waiting or moving."""
    if running is None:
        return []
    taken = use.when(lambda value: share_of(value) >= STUCK_RATIO)
    quiet = overlap(taken, running.when(lambda value: value == 0))
    if waiting is not None:
        quiet = overlap(quiet, waiting.when(lambda value: value == 0))
    found = lasting(quiet, STUCK_WITH_TRANSFER_S if moves_blocks else LASTING_S)
    if not found:
        return []
    start, end = max(found, key=lambda span: span[1] - span[0])
    share = share_of(use.at(end) or 0.0)
    clue = use.clue(
        "kv.full-while-idle", running.quoted(f"nothing ran for {end - start:.0f} s", (start, end)), time_s=start,
        usage=f"{share:.0%}", running="0 requests", waiting="0", seconds=f"{end - start:.0f}",
    )  # fmt: skip
    return [clue]


def aborted(family: Family) -> Iterator[Clue]:
    """``requests.aborted``: ten or more ended by their clients."""
    for one in family.all("request_success"):
        if one.label("finished_reason") == "abort" and (count := one.increase()) >= 10:
            yield one.clue("requests.aborted", count=f"{count:.0f}")


def cache(family: Family) -> Iterator[Clue]:
    """``cache.zero-hits``, ``.few-hits``, ``.good-hits`` of the latest third; ``.collapsed`` where it had been good."""
    queries = family.by(engine_of, "prefix_cache_queries", "gpu_prefix_cache_queries")
    hits = family.by(engine_of, "prefix_cache_hits", "gpu_prefix_cache_hits")
    for key, some in queries.items():
        asked, hit = some[0], _first(hits, key)
        if hit is None:
            continue
        start, end = asked.times[0], asked.times[-1]
        late = (end - (end - start) / 3, end)
        early = (start, late[0])
        if asked.increase(late) < MIN_QUERIED_TOKENS:
            late, early = (start, end), (start, start)
        queried, found = asked.increase(late), hit.increase(late)
        if queried < MIN_QUERIED_TOKENS:
            continue
        share = found / queried
        before = hit.increase(early) / asked.increase(early) if asked.increase(early) >= MIN_QUERIED_TOKENS else None
        said: dict[str, Any] = {"queries": f"{queried:.0f}", "hits": f"{found:.0f}", "share": f"{share:.1%}"}
        if found == 0 and not hit.increase():
            yield hit.clue("cache.zero-hits", asked.quoted(), **said)
        elif share < 0.05:
            yield hit.clue("cache.few-hits", asked.quoted(at=(late[0],)), time_s=late[0], **said)
        elif share > 0.3:
            yield hit.clue("cache.good-hits", **said)
        if before is not None and before > 0.3 and share < before / 3:
            yield hit.clue(
                "cache.collapsed", asked.quoted(at=(late[0],)), time_s=late[0], before=f"{before:.0%}",
                share=f"{share:.1%}",
            )  # fmt: skip


def progress(family: Family) -> Iterator[Clue]:
    """``engine.stalled``: requests run and no token comes; ``queue.growing``; ``engine.restarted``."""
    running, waiting = family.by(engine_of, *RUNNING), family.by(engine_of, *WAITING)
    made, read = family.by(engine_of, "generation_tokens"), family.by(engine_of, "prompt_tokens")
    for key, some in made.items():
        tokens, busy, prompts = some[0], _first(running, key), _first(read, key)
        for at in tokens.resets():
            yield tokens.clue("engine.restarted", time_s=at, note="fell back to zero: the engine started anew")
        if busy is None:
            continue
        still = overlap(_standing(tokens), busy.when(lambda value: value > 0))
        if prompts is not None:
            still = overlap(still, _standing(prompts))
        if found := lasting(still, STALL_S):
            start, end = found[0]
            yield busy.clue(
                "engine.stalled", tokens.quoted(f"not one token for {end - start:.0f} s", (start, end)), time_s=start,
                seconds=f"{end - start:.0f}",
            )  # fmt: skip
    for some in waiting.values():
        yield from _growing(some[0])


def _standing(counter: Series) -> list[Span]:
    """Spans in which a counter stood still."""
    pairs = zip(counter.times, counter.values, strict=True)
    spans: list[Span] = []
    start, last_s, last = None, 0.0, None
    for time_s, value in pairs:
        if last is not None and value == last:
            start = last_s if start is None else start
        elif start is not None:
            spans.append((start, last_s))
            start = None
        last_s, last = time_s, value
    return [*spans, (start, last_s)] if start is not None else spans


def _growing(waiting: Series) -> Iterator[Clue]:
    start, end = waiting.times[0], waiting.times[-1]
    third = (end - start) / 3
    if third <= 0:
        return
    early, late = middle(waiting.within((start, start + third))), middle(waiting.within((end - third, end)))
    if late >= QUEUE_LEAST and late > 3 * early:
        yield waiting.clue("queue.growing", time_s=start + third, early=f"{early:.0f}", late=f"{late:.0f}")


def slow_engines(family: Family) -> Iterator[Clue]:
    """``rank.slow``: one of at least three engines whose tokens take longer than its peers' at no more load."""
    sums, counts = (
        family.by(engine_of, f"inter_token_latency_seconds_{part}", f"time_per_output_token_seconds_{part}")
        for part in ("sum", "count")
    )
    running = family.by(engine_of, *RUNNING)
    means = {
        key: sums[key][0].increase() / counts[key][0].increase()
        for key in sums
        if counts.get(key) and counts[key][0].increase() >= 100
    }
    for key, mean_s in means.items():
        peers = [one for other, one in means.items() if other != key]
        load = middle(running[key][0].values) if running.get(key) else 0.0
        usual_load = middle(middle(running[other][0].values) for other in means if other != key and running.get(other))
        if len(peers) >= 2 and mean_s > SLOW_TIMES * middle(peers) and load <= 1.3 * usual_load + 1:
            yield sums[key][0].clue(
                "rank.slow", counts[key][0].quoted(), of_rank=int(key[2]) if key[2].isdigit() else None,
                rank=key[2] or key[1], value=f"{mean_s * 1e3:.0f} ms a token", usual=f"{middle(peers) * 1e3:.0f} ms",
            )  # fmt: skip


def experts(family: Family) -> Iterator[Clue]:
    """``moe.rank-overloaded``: one rank or expert of a layer's got far more tokens than the others."""
    for name, some in family:
        if not EXPERTS.search(name) or len(some) < 3:
            continue
        grew = [(one.increase() if one.metric.endswith("_total") else middle(one.values), one) for one in some]
        top, most = max(grew, key=lambda pair: pair[0])
        usual = middle(value for value, one in grew if one is not most)
        if usual > 0 and top > EXPERT_TIMES * usual:
            yield most.clue(
                "moe.rank-overloaded", tokens=f"{top:.0f}", usual=f"{usual:.0f}", times=f"{top / usual:.1f}",
                rank=most.label("rank", "expert", "gpu", "engine"),
            )  # fmt: skip


READERS = (pools, aborted, cache, progress, slow_engines, experts)
