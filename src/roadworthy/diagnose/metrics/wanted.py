"""Which series the rules understand, and how a range query asks for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

POINTS = 240
"""Points asked of each series: a phase of a minute shows in two hours, and a fleet's answers stay small."""

STEPS_S = (15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)
PEAKS_FROM_STEP_S = 60
"""From here on a step hides what lasts a minute, so gauges are asked for by their worst within the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One exporter's series. ``highest`` and ``lowest``: gauges whose worst within a step is what counts."""

    family: str
    names: re.Pattern[str]
    highest: frozenset[str] = frozenset()
    lowest: frozenset[str] = frozenset()


def _wanted(family: str, *names: str, highest: Sequence[str] = (), lowest: Sequence[str] = ()) -> Wanted:
    pattern = re.compile("|".join(names))
    return Wanted(family=family, names=pattern, highest=frozenset(highest), lowest=frozenset(lowest))


WANTED = (
    _wanted(
        "engines",
        r"(?:vllm|sglang):(?:(?:gpu_|kv_)?cache_usage_perc|token_usage|num_requests_(?:running|waiting)|"
        r"num_(?:running|queue)_reqs|num_preemptions_total|request_success_total|"
        r"(?:gpu_)?prefix_cache_(?:queries|hits)(?:_total)?|(?:prompt|generation)_tokens_total|"
        r"(?:inter_token_latency|time_per_output_token)_seconds_(?:sum|count)|.*expert.*|num_requests_kv_fetch_by_stage|"
        r"nixl_\w*(?:fail|error)\w*)",
        r"\w*tokens_per_(?:expert|rank)\w*", r"\w*eplb\w*",
        highest=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "vllm:num_requests_waiting"),
    ),
    _wanted(
        "GPUs",
        r"DCGM_FI_DEV_(?:SM_CLOCK|GPU_UTIL|CLOCKS?_(?:EVENT|THROTTLE)_REASONS|(?:THERMAL|RELIABILITY|BOARD_LIMIT)_VIOLATION|"
        r"XID_ERRORS|ECC_DBE_VOL_TOTAL|UNCORRECTABLE_REMAPPED_ROWS|ROW_REMAP_(?:FAILURE|PENDING)|NVLINK_\w*ERROR_COUNT\w*)",
        r"DCGM_EXP_XID_ERRORS_COUNT", lowest=("DCGM_FI_DEV_SM_CLOCK",),
    ),
    _wanted(
        "hosts",
        r"node_(?:vmstat_oom_kill|memory_Mem(?:Available|Total)_bytes|filesystem_(?:avail|size)_bytes|"
        r"timex_(?:offset_seconds|sync_status)|network_carrier)",
        lowest=("node_memory_MemAvailable_bytes", "node_filesystem_avail_bytes", "node_network_carrier"),
    ),
    _wanted(
        "fabric",
        r"node_infiniband_(?:state_id|rate_bytes_per_second|\w*(?:error|downed|discard|recovery|sequence|timeout|nak|cnp|"
        r"roce|retrans|buffer)\w*)",
        r"node_ethtool_\w*(?:pause|discard|out_of_buffer)\w*",
        lowest=("node_infiniband_state_id",),
    ),
    _wanted(
        "Kubernetes",
        r"container_(?:oom_events_total|cpu_cfs_(?:throttled_)?periods_total)",
        r"kube_pod_container_status_(?:restarts_total|last_terminated_reason)",
    ),
    _wanted(
        "gateway", r"roadworthy_gateway_(?:engine_up|requests_total)", lowest=("roadworthy_gateway_engine_up",)
    ),
)  # fmt: skip

TARGETS = ("up", "process_start_time_seconds")
"""Of every target of a Prometheus: asked for the engines' jobs alone."""


def step_s(span_s: float) -> int:
    """Seconds between points: about POINTS of them, in steps that people use."""
    return next((step for step in STEPS_S if span_s / step <= POINTS), STEPS_S[-1])


def wanted_of(names: Iterable[str]) -> dict[str, list[str]]:
    """Those of ``names`` that a rule understands, by family; families without any are there and empty."""
    known = sorted(set(names))
    return {one.family: [name for name in known if one.names.fullmatch(name)] for one in WANTED}


MATCHER = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\\n]|\\.)*")\s*')


def matchers_of(selector: str) -> tuple[str, ...] | None:
    """The label matchers of ``{job="vllm",zone!="x"}``; None for what is no such selector."""
    text = selector.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    found: list[str] = []
    at = 0
    while at < len(text):
        match = MATCHER.match(text, at)
        if match is None or match[1] == "__name__":
            return None
        found.append("".join(match.groups()))
        at = match.end()
        if at < len(text):
            if text[at] != ",":
                return None
            at += 1
    return tuple(found) or None


def query_of(name: str, selectors: Sequence[tuple[str, ...]], step: int) -> str:
    """PromQL for the series of ``name`` that any of ``selectors`` takes (all of them without any)."""
    how = _worst(name) if step > PEAKS_FROM_STEP_S else None
    parts = []
    for matchers in selectors or ((),):
        series = "{" + ",".join((f'__name__="{name}"', *matchers)) + "}"
        parts.append(f"{how}({series}[{step}s])" if how else series)
    query = " or ".join(parts)
    return f'label_replace({query}, "__name__", "{name}", "", "")' if how else query


def _worst(name: str) -> str | None:
    for one in WANTED:
        if name in one.highest:
            return "max_over_time"
        if name in one.lowest:
            return "min_over_time"
    return None
