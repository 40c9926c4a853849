"""Names of vLLM's metrics in alerts, dashboards, scalers and scripts."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from roadworthy.catalog.engine_metrics import VLLM_METRICS
from roadworthy.lint.values import Edit

if TYPE_CHECKING:
    from roadworthy.lint.rules.judge import Judge

_OLD: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "metric.hit-rate",
        re.compile(r"\bvllm[:_](?:kv_cache|prefix_cache|gpu_prefix_cache|cpu_prefix_cache)_hit_(?:rate|ratio)\b"),
    ),
    (
        "metric.decode-p99",
        re.compile(
            r"\bvllm[:_](?:decode|prefill|request|e2e|ttft|tpot)_latency(?:_p\d+)?(?:_ms|_milliseconds)\b"
            r"|\bvllm[:_]\w+_p(?:50|90|95|99)(?:_ms|_seconds)?\b"
            r"|\bvllm[:_]time_per_output_token_seconds(?:_bucket|_sum|_count)?\b"
        ),
    ),
    ("metric.fragmentation", re.compile(r"\bvllm[:_]\w*fragmentation\w*")),
    (
        "metric.old-names",
        re.compile(
            r"\bvllm:(?:gpu_cache_usage_perc|cpu_cache_usage_perc|gpu_prefix_cache_\w+|cpu_prefix_cache_\w+"
            r"|num_requests_swapped|avg_\w+_throughput\w*)\b"
        ),
    ),
    ("metric.expert-histogram", re.compile(r"\bvllm[:_](?:moe_)?(?:expert|eplb)s?_\w+|\bvllm[:_]tokens_per_expert\w*")),
)
_RAY = re.compile(r"\bray_vllm[:_]\w+")
_ANY = re.compile(r"\bvllm:([a-z][a-z0-9_]*[a-z0-9])\b")

_FAMILIES = re.compile(
    r"(?:kv_offload|nixl|spec_decode|kv_block|kv_cache|estimated|mfu|flops|request|num_incoming|num_|router|lmcache)_?"
)
_SUFFIX = re.compile(r"(?:_(?:total|bucket|sum|count|created))+$")


def check_metrics(judge: Judge) -> None:
    taken: set[int] = set()
    for rule, pattern in _OLD:
        for match in judge.found(pattern):
            if match.start() in taken:
                continue
            taken.add(match.start())
            judge.report(rule, match.start(), match.group(), edits=_rename(match))
    _ray(judge)
    for match in judge.found(_ANY):
        name = _SUFFIX.sub("", match.group(1))
        known = name in VLLM_METRICS or match.group(1) in VLLM_METRICS
        if known or match.start() in taken:
            continue
        if judge.code[match.end() : match.end() + 1] in (":", "*", "/", "@", "-") or not _looks_like_metric(
            judge, match
        ):
            continue
        near = get_close_matches(name, VLLM_METRICS, n=1, cutoff=0.85)
        if near or not _FAMILIES.match(name):
            judge.report(
                "metric.default-exporter" if not near else "vllm.unknown-metric",
                match.start(),
                match.group(),
                status="never_existed",
                reason="vLLM 0.32 and 0.33 export no metric of this name.",
                replacement=f"did you mean vllm:{near[0]}?" if near else None,
            )


def _rename(match: re.Match[str]) -> tuple[Edit, ...]:
    text = match.group()
    if text == "vllm:gpu_cache_usage_perc":
        return (Edit(start=match.start(), end=match.end(), text="vllm:kv_cache_usage_perc"),)
    if text.startswith("vllm:gpu_prefix_cache_") and re.search(r"_(?:hits|queries)(?:_total)?$", text):
        return (Edit(start=match.start(), end=match.end(), text=text.replace("gpu_", "", 1)),)
    if text.startswith("vllm:time_per_output_token_seconds"):
        new = text.replace("time_per_output_token_seconds", "inter_token_latency_seconds")
        return (Edit(start=match.start(), end=match.end(), text=new),)
    return ()


def _looks_like_metric(judge: Judge, match: re.Match[str]) -> bool:
    """``vllm:latest`` is an image and ``vllm:serve`` a label; a metric has an underscore."""
    begin = judge.code.rfind("\n", 0, match.start()) + 1
    before = judge.code[begin : match.start()]
    return "_" in match.group(1) and not re.search(r"[/@]$|\b(?:image|FROM|docker|podman)\b", before)


def _ray(judge: Judge) -> None:
    if any(document.text("kind") == "RayService" for document in judge.reading.documents) or "ray.serve" in judge.code:
        return
    for match in judge.found(_RAY):
        judge.report(
            "metric.ray",
            match.start(),
            match.group(),
            reason="Ray exports vLLM's metrics for Ray Serve alone; a plain `vllm serve` has them at its own"
            " /metrics, without the prefix."
            " Which of the two this scrapes is not to be seen here.",
        )
