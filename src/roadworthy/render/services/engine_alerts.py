"""Alerts on engines: reachable, KV pool, progress, latency.

Thresholds come from the document's SLA where it has one; the others are stated beside the rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.services.alerts import ENGINE, ENGINES_JOB, Alert, engine_series, histogram_series, number_text
from roadworthy.render.services.recordings import ENGINE_LABELS

if TYPE_CHECKING:
    from roadworthy.render.values import RenderInput

ITL, TPOT = "vllm:inter_token_latency_seconds", "vllm:request_time_per_output_token_seconds"
ITL_LIMIT_S = 0.15
"""Where the document promises no time per token. It is a bound of the engine's histogram, so the alert is exact."""


def engine_alerts(inputs: RenderInput) -> tuple[Alert, ...]:
    """Every alert that the engines' own metrics can raise."""
    return (*_reachable(), *_kv_pool(), *_progress(), *_latency(inputs))


def _reachable() -> tuple[Alert, ...]:
    return (
        Alert(
            name="EngineDown",
            expr=f'up{{job="{ENGINES_JOB}"}} == 0',
            for_="1m",
            severity="critical",
            why="an engine that cannot be scraped serves nobody either; a load takes tens of minutes",
            summary="engine {{ $labels.instance }} does not answer",
            runbook="Is the process there (pod, unit)? Its log's last lines, then `roadworthy diagnose LOG`. During a "
            "load this is expected: the startup probe allows an hour.",
            fires=((f'up{{job="{ENGINES_JOB}",instance="e0:8000"}}', "1x5 0x20"),),
            quiet=((f'up{{job="{ENGINES_JOB}",instance="e0:8000"}}', "1x30"),),
        ),
        Alert(
            name="NoEngineScraped",
            expr=f'absent(up{{job="{ENGINES_JOB}"}})',
            for_="5m",
            severity="critical",
            why="without targets no other rule can fire",
            summary="Prometheus has no engine to scrape",
            runbook="Prometheus, status, targets: is the job there, do its names resolve, does the PodMonitor select?",
            fires=(("unrelated", "1x30"),),
            quiet=((f'up{{job="{ENGINES_JOB}",instance="e0:8000"}}', "1x30"),),
        ),
    )


def _kv_pool() -> tuple[Alert, ...]:
    stuck = (
        "vllm:kv_cache_usage_perc > 0\n"
        f"and on ({ENGINE_LABELS}) vllm:num_requests_running == 0\n"
        f"and on ({ENGINE_LABELS}) vllm:num_requests_waiting == 0"
    )
    return (
        Alert(
            name="KvPoolHigh",
            expr="engine:kv_pool_used:ratio > 0.9",
            for_="1m",
            severity="warning",
            why="the next long prompts wait or preempt",
            summary="KV pool of {{ $labels.instance }} rank {{ $labels.engine }} is above 90 %",
            runbook="Which tenant holds the blocks (gateway, tokens by tenant)? Lower its concurrency, or add a "
            "replica: `roadworthy plan` says what one more holds.",
            fires=(engine_series("kv_cache_usage_perc", "0.93x30"),),
            quiet=(engine_series("kv_cache_usage_perc", "0.88x30"),),
        ),
        Alert(
            name="KvPoolFull",
            expr="engine:kv_pool_used:ratio > 0.98",
            for_="1m",
            severity="critical",
            why="requests are preempted, which computes them twice",
            summary="KV pool of {{ $labels.instance }} rank {{ $labels.engine }} is full",
            runbook="Lower the concurrency of the largest tenant now; then more replicas or a shorter --max-model-len.",
            fires=(engine_series("kv_cache_usage_perc", "0.99x30"),),
            quiet=(engine_series("kv_cache_usage_perc", "0.97x30"),),
        ),
        Alert(
            name="Preempting",
            expr="engine:preemptions:rate5m > 0.001",
            for_="5m",
            severity="warning",
            why="a healthy pool preempts nobody",
            summary="{{ $labels.instance }} rank {{ $labels.engine }} preempts requests",
            runbook="The pool is too small for --max-num-seqs at these lengths: lower it, or enlarge the pool.",
            fires=(engine_series("num_preemptions_total", "0+1x30"),),
            quiet=(engine_series("num_preemptions_total", "7x30"),),
        ),
        Alert(
            name="PreemptionStorm",
            expr="engine:preemptions:rate5m > 1",
            for_="1m",
            severity="critical",
            why="the engine spends its time computing the same prompts again",
            summary="{{ $labels.instance }} rank {{ $labels.engine }} preempts more than one request a second",
            runbook="Take load off this engine (gateway concurrency); once running has fallen, lower --max-num-seqs.",
            fires=(engine_series("num_preemptions_total", "0+120x30"),),
            quiet=(engine_series("num_preemptions_total", "0+30x30"),),
        ),
        Alert(
            name="KvStuck",
            expr=stuck,
            for_="1m",
            severity="critical",
            why="blocks in use with nobody running or waiting (a KV load counts as waiting): a leak",
            summary="{{ $labels.instance }} rank {{ $labels.engine }} holds KV blocks for nobody",
            runbook="Drain it at the gateway, keep its log, restart it. With a KV connector, pending sends first.",
            fires=(
                engine_series("kv_cache_usage_perc", "0.2x30"),
                engine_series("num_requests_running", "0x30"),
                engine_series("num_requests_waiting", "0x30"),
            ),
            quiet=(
                engine_series("kv_cache_usage_perc", "0.2x30"),
                engine_series("num_requests_running", "0x30"),
                engine_series("num_requests_waiting", "1x30"),
            ),
        ),
    )


def _progress() -> tuple[Alert, ...]:
    return (
        Alert(
            name="EngineHangs",
            expr=f"vllm:num_requests_running > 0\nand on ({ENGINE_LABELS}) engine:steps:rate2m == 0",
            for_="2m",
            severity="critical",
            why="requests run and no step is made: a collective waits for a rank that is gone, or the engine is paused",
            summary="{{ $labels.instance }} rank {{ $labels.engine }} makes no step while requests run",
            runbook="Paused on purpose (/is_paused)? Else capture before restarting: py-spy of each rank, NCCL's log, "
            "Xid errors in dmesg; then restart the whole group.",
            fires=(
                engine_series("num_requests_running", "3x30"),
                engine_series("iteration_tokens_total_count", "0+600x5 3000x25"),
            ),
            quiet=(
                engine_series("num_requests_running", "3x30"),
                engine_series("iteration_tokens_total_count", "0+600x30"),
            ),
        ),
        Alert(
            name="EngineQueue",
            expr="min_over_time(vllm:num_requests_waiting[5m]) > 0",
            for_="5m",
            severity="warning",
            why="a queue that never empties for ten minutes is load above capacity, not a burst",
            summary="requests wait at {{ $labels.instance }} rank {{ $labels.engine }} all the time",
            runbook="Others idle: routing. All busy: capacity; `roadworthy simulate` with the measured rate.",
            fires=(engine_series("num_requests_waiting", "4x30"),),
            quiet=(engine_series("num_requests_waiting", "4x3 0 4x3 0 4x3 0 4x3 0 4x3 0 4x3 0"),),
        ),
    )


def _latency(inputs: RenderInput) -> tuple[Alert, ...]:
    sla = inputs.deployment.sla
    gap_s = sla.tpot_p99_s if sla.tpot_p99_s is not None else ITL_LIMIT_S
    promised = "sla.tpot_p99" if sla.tpot_p99_s is not None else "150 ms, a default"
    return (
        Alert(
            name="ItlHigh",
            expr=f"max by ({ENGINE_LABELS}) (engine:itl_seconds:p99_5m) > {number_text(max(gap_s, ITL_LIMIT_S))}",
            for_="5m",
            severity="warning",
            why="p99 of single gaps, engine by engine; one gap may be longer than the mean that is promised",
            summary="gaps between tokens at {{ $labels.instance }} rank {{ $labels.engine }} are long",
            runbook="One engine only: its GPU clocks, NIC counters, a neighbour. All: batch size or long prefills "
            "between decodes; look at running and prompt tokens, lower --max-num-batched-tokens.",
            fires=histogram_series(
                ITL,
                ENGINE,
                below=("0.001", number_text(max(gap_s, ITL_LIMIT_S))),
                at_most="80.0",
            ),
            quiet=histogram_series(ITL, ENGINE, below=(), at_most="0.001"),
        ),
        Alert(
            name="TpotMissed",
            expr=f"engine:tpot_seconds:p99_5m > {number_text(gap_s)}",
            for_="5m",
            severity="critical" if sla.tpot_p99_s is not None else "warning",
            why=f"time per output token of requests above {promised}",
            summary="time per output token at {{ $labels.instance }} rank {{ $labels.engine }} is above the objective",
            runbook="Too many requests in a batch (running), preemptions, or a slow link. `roadworthy bench` against "
            "one engine at the planned concurrency tells load from fault.",
            fires=histogram_series(
                "vllm:request_time_per_output_token_seconds",
                ENGINE,
                below=("0.001", number_text(gap_s)),
                at_most="80.0",
            ),
            quiet=histogram_series("vllm:request_time_per_output_token_seconds", ENGINE, below=(), at_most="0.001"),
        ),
    )
