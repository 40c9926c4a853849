"""The few lines of an engine's ``/metrics`` that routing reads.

The page has some 100 KiB, of which six lines matter. They are found by searching for their names: a regular expression
over all of it takes six times as long.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LABEL = re.compile(rb'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """What one look at the metrics told; zeros and None where it said nothing.

    Data-parallel ranks have a line each: requests and tokens add up, of usage the highest counts, one rank asleep is an
    engine asleep.

    Args:
        loaded: whether there was any of vLLM's load gauges at all.
        kv_tokens: tokens that the KV pools have blocks for, 0 where prefix caching is off, since then none is found
            again. Of a hybrid model this is one group's view, an upper bound.
        block_tokens: of one block; 0 when the engine does not say.
        kv_blocks: of the pools, less the one of each that is a placeholder; None when the engine does not say.
        started_s: when its process started, seconds since 1970 on its clock; it tells one process from the next.
    """

    running: int = 0
    waiting: int = 0
    kv_usage_ratio: float = 0.0
    loaded: bool = False
    kv_tokens: int | None = None
    block_tokens: int = 0
    kv_blocks: int | None = None
    asleep: bool = False
    started_s: float | None = None


def read_metrics(page: bytes) -> Scrape:
    """The lines that matter, out of whatever the page is."""
    running = [int(value) for _, value in _samples(page, b"vllm:num_requests_running")]
    waiting = [int(value) for _, value in _samples(page, b"vllm:num_requests_waiting")]
    usage = [min(1.0, value) for _, value in _samples(page, b"vllm:kv_cache_usage_perc")]
    asleep = [value for labels, value in _samples(page, b"vllm:engine_sleep_state") if b'"awake"' in labels]
    kv_tokens, block_tokens, kv_blocks = _kv_pool(page)
    started_s = [value for _, value in _samples(page, b"process_start_time_seconds", most=1e12)]
    return Scrape(
        running=sum(running),
        waiting=sum(waiting),
        kv_usage_ratio=max(usage, default=0.0),
        loaded=bool(running or waiting or usage),
        kv_tokens=kv_tokens,
        block_tokens=block_tokens,
        kv_blocks=kv_blocks,
        asleep=any(value == 0 for value in asleep),
        started_s=started_s[0] if started_s else None,
    )


def _kv_pool(page: bytes) -> tuple[int | None, int, int | None]:
    """Tokens of the pools (blocks times their tokens, less the one that is a placeholder) and of a block, and the
    blocks; None, 0 and None when the engine does not say."""
    total, block_tokens, blocks, caching = 0, 0, 0, True
    for labels, _ in _samples(page, b"vllm:cache_config_info"):
        named = dict(_LABEL.findall(labels))
        try:
            block_tokens = int(named[b"block_size"])
            blocks += int(named[b"num_gpu_blocks"]) - 1
            total += (int(named[b"num_gpu_blocks"]) - 1) * block_tokens
        except (KeyError, ValueError):
            return None, block_tokens, None
        caching = caching and named.get(b"enable_prefix_caching") != b"False"
    if total <= 0:
        return None, block_tokens, None
    return (total if caching else 0), block_tokens, blocks


def _samples(page: bytes, name: bytes, *, most: float = 1e9) -> Iterator[tuple[bytes, float]]:
    """Labels and value of each sample called ``name``, values that cannot be (NaN, negative, huge) left out."""
    at = 0 if page.startswith(name) else page.find(b"\n" + name) + 1
    while at > 0 or page.startswith(name, at):
        end = page.find(b"\n", at)
        line = page[at:end] if end >= 0 else page[at:]
        labels, _, text = line[len(name) :].rpartition(b" ")
        if not labels or (labels[:1] == b"{" and labels[-1:] == b"}"):  # else another name that begins alike
            try:
                value = float(text)
            except ValueError:
                value = -1.0
            if 0 <= value < most:
                yield labels, value
        at = page.find(b"\n" + name, at + len(name)) + 1
        if at == 0:
            return
