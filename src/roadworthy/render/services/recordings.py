"""What is recorded from the metrics of engines and gateways. Rules and boards read these names, so a quantile has one
definition; what each word means is said in docs/concepts and follows the engine's own histograms.
"""

from __future__ import annotations

from dataclasses import dataclass

ENGINE_LABELS = "instance, engine, model_name"
"""One data-parallel rank: a quantile over all engines would hide one bad one."""
MIN_QUERIED_TOKENS_PER_S = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """``name`` becomes the value of ``expr`` at every evaluation."""

    name: str
    expr: str
    why: str


def _quantile(ratio: float, histogram: str, labels: str = ENGINE_LABELS, where: str = "") -> str:
    return f"histogram_quantile({ratio}, sum by (le, {labels}) (rate({histogram}_bucket{where}[5m])))"


def _rate(counter: str, labels: str = ENGINE_LABELS, where: str = "") -> str:
    return f"sum by ({labels}) (rate({counter}{where}[5m]))"


ENGINE_RECORDINGS = (
    Recording(
        name="engine:kv_pool_used:ratio",
        expr=f"max by ({ENGINE_LABELS}) (vllm:kv_cache_usage_perc)",
        why="blocks in use of the pool; blocks are interchangeable, so it cannot be fragmented",
    ),
    Recording(
        name="engine:preemptions:rate5m",
        expr=_rate("vllm:num_preemptions_total"),
        why="requests a second that lost their blocks and must be computed again",
    ),
    Recording(
        name="engine:prefix_cache_hits:ratio5m",
        expr=f"{_rate('vllm:prefix_cache_hits_total')} / "
        f"({_rate('vllm:prefix_cache_queries_total')} > {MIN_QUERIED_TOKENS_PER_S})",
        why="tokens found of tokens asked for; nothing while fewer than 100 a second are asked for",
    ),
    Recording(
        name="engine:itl_seconds:p99_5m",
        expr=_quantile(0.99, "vllm:inter_token_latency_seconds"),
        why="gap between two outputs of one request",
    ),
    Recording(
        name="engine:tpot_seconds:p99_5m",
        expr=_quantile(0.99, "vllm:request_time_per_output_token_seconds"),
        why="mean gap of each request, over requests",
    ),
    Recording(
        name="engine:ttft_seconds:p99_5m",
        expr=_quantile(0.99, "vllm:time_to_first_token_seconds"),
        why="arrival at the engine to its first token: tokenising and the engine's queue are in it",
    ),
    Recording(
        name="engine:queue_seconds:p99_5m",
        expr=_quantile(0.99, "vllm:request_queue_time_seconds"),
        why="arrival in the scheduler to first scheduled; the smallest bound of its histogram is 0.3 s",
    ),
    Recording(
        name="engine:output_tokens:rate5m",
        expr=_rate("vllm:generation_tokens_total"),
        why="tokens a second that the engine gives out",
    ),
    Recording(
        name="engine:prompt_tokens:rate5m",
        expr=_rate("vllm:prompt_tokens_total"),
        why="tokens a second that come in, cached ones included",
    ),
    Recording(
        name="engine:steps:rate2m",
        expr=f"sum by ({ENGINE_LABELS}) (rate(vllm:iteration_tokens_total_count[2m]))",
        why="scheduler steps a second; none while requests run means that the engine hangs",
    ),
)

ENGINE_FAULTS = 'outcome=~"engine_error|engine_timeout|no_engine|shutdown"'
"""Endings of a request that are our fault: not the client's, not a limit that was agreed on."""
NOT_COUNTED = 'outcome!~"client_left|client_stalled|refused|rejected"'
"""What is left out of the success ratio altogether."""


def _failed(window: str) -> str:
    return (
        f"sum(rate(roadworthy_gateway_requests_total{{{ENGINE_FAULTS}}}[{window}])) / "
        f"(sum(rate(roadworthy_gateway_requests_total{{{NOT_COUNTED}}}[{window}])) > 0)"
    )


GENERATING = '{outcome="ok", operation=~"chat|text_completion|responses|messages"}'
"""Requests that went well and generate tokens; embeddings and the like have no first token to wait for."""

GATEWAY_RECORDINGS = (
    Recording(
        name="gateway:ttft_seconds:p99_5m",
        expr=_quantile(0.99, "roadworthy_gateway_ttft_seconds", "model", GENERATING),
        why="whole request read to first event relayed: what the client waits for",
    ),
    Recording(
        name="gateway:tpot_seconds:p99_5m",
        expr=_quantile(0.99, "roadworthy_gateway_time_per_output_token_seconds", "model", GENERATING),
        why="first event to the end over the tokens after the first, as clients see it",
    ),
    Recording(
        name="gateway:duration_seconds:p99_5m",
        expr=_quantile(0.99, "roadworthy_gateway_request_duration_seconds", "model", GENERATING),
        why="whole request read to its end",
    ),
    *(
        Recording(
            name=f"gateway:failed:ratio{window}",
            expr=_failed(window),
            why="requests that failed through us; clients that left and agreed limits are not counted",
        )
        for window in ("5m", "30m", "1h", "6h")
    ),
)
