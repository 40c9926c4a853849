"""`/metrics` under vLLM's names, labels and bucket bounds (0.32: `vllm/v1/metrics/loggers.py`, `buckets.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from roadworthy.twin.config import TwinConfig
    from roadworthy.twin.requests import EngineStats, Finished, Output

_LABELS = ("model_name", "engine")
_PHASE_BUCKETS_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
_TTFT_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
_GAP_BUCKETS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_PREEMPTION_BUCKETS = (1, 2, 3, 4, 5, 10, 20)


class LatencyHistograms:
    """What vLLM observes at each token and at the end of each request."""

    def __init__(self, config: TwinConfig, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            family = Histogram(f"vllm:{name}", text, _LABELS, registry=registry, buckets=buckets)
            return family.labels(config.models[0], "0")

        tokens = tuple(_token_buckets(config.max_model_len))
        self._ttft = histogram("time_to_first_token_seconds", "Queued to first token.", _TTFT_BUCKETS_S)
        self._gap = histogram("inter_token_latency_seconds", "Between two tokens of a request.", _GAP_BUCKETS_S)
        self._tpot = histogram(
            "request_time_per_output_token_seconds", "Mean gap of a finished request.", _GAP_BUCKETS_S
        )
        self._e2e = histogram("e2e_request_latency_seconds", "Queued to last token.", _PHASE_BUCKETS_S)
        self._queue = histogram("request_queue_time_seconds", "Queued to first scheduled.", _PHASE_BUCKETS_S)
        self._inference = histogram("request_inference_time_seconds", "First scheduled to last.", _PHASE_BUCKETS_S)
        self._prefill = histogram("request_prefill_time_seconds", "First scheduled to first token.", _PHASE_BUCKETS_S)
        self._decode = histogram("request_decode_time_seconds", "First token to last token.", _PHASE_BUCKETS_S)
        self._preemptions = histogram("request_num_preemptions", "Preemptions of a request.", _PREEMPTION_BUCKETS)
        self._prompt = histogram("request_prompt_tokens", "Prompt tokens of a finished request.", tokens)
        self._generation = histogram("request_generation_tokens", "Output tokens of a finished request.", tokens)
        self._queued_s: dict[str, float] = {}
        self._last_s: dict[str, float] = {}

    def queued(self, request_id: str, at_s: float) -> None:
        """A request came in; its first token will be measured from here."""
        self._queued_s[request_id] = at_s

    def forget(self, request_id: str) -> None:
        """A request was aborted or refused."""
        self._queued_s.pop(request_id, None)
        self._last_s.pop(request_id, None)

    def token(self, output: Output) -> None:
        """Observe one token, and with the last one the request."""
        request_id, at_s, finished = output
        last_s = self._last_s.get(request_id)
        if last_s is None:
            self._ttft.observe(at_s - self._queued_s.pop(request_id, at_s))
        else:
            self._gap.observe(at_s - last_s)
        if finished is None:
            self._last_s[request_id] = at_s
        else:
            self._last_s.pop(request_id, None)
            self._request(finished)

    def _request(self, done: Finished) -> None:
        decode_s = done.last_token_s - done.first_token_s
        self._tpot.observe(decode_s / (done.output_tokens - 1) if done.output_tokens > 1 else 0.0)
        self._e2e.observe(done.last_token_s - done.queued_s)
        self._queue.observe(done.scheduled_s - done.queued_s)
        self._inference.observe(done.last_token_s - done.scheduled_s)
        self._prefill.observe(done.first_token_s - done.scheduled_s)
        self._decode.observe(decode_s)
        self._preemptions.observe(done.preemptions)
        self._prompt.observe(done.prompt_tokens)
        self._generation.observe(done.output_tokens)


class EngineCollector:
    """The engine's state and counters, read when they are scraped."""

    def __init__(self, config: TwinConfig, stats: Callable[[], EngineStats]) -> None:
        self._config = config
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats, labels = self._stats(), (self._config.models[0], "0")
        for name, text, value in (
            ("num_requests_running", "Requests in execution batches.", stats.running),
            ("num_requests_waiting", "Requests waiting to be processed.", stats.waiting),
            ("kv_cache_usage_perc", "Share of the KV blocks in use; 1 means all.", stats.kv_usage_ratio),
        ):
            gauge = GaugeMetricFamily(f"vllm:{name}", text, labels=_LABELS)
            gauge.add_metric(labels, value)
            yield gauge
        for name, text, count in (
            ("prompt_tokens", "Prompt tokens processed.", stats.prompt_tokens),
            ("generation_tokens", "Output tokens generated.", stats.generation_tokens),
            ("prefix_cache_queries", "Prompt tokens looked up.", stats.prefix_cache_query_tokens),
            ("prefix_cache_hits", "Prompt tokens found.", stats.prefix_cache_hit_tokens),
            ("num_preemptions", "Preemptions so far.", stats.preemptions),
        ):
            counter = CounterMetricFamily(f"vllm:{name}", text, labels=_LABELS)
            counter.add_metric(labels, count)
            yield counter
        yield from self._labelled(stats)
        yield self._info()

    def _labelled(self, stats: EngineStats) -> Iterator[Metric]:
        model, engine = self._config.models[0], "0"
        waiting = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason", "Waiting requests by reason.", labels=(*_LABELS, "reason")
        )
        waiting.add_metric((model, engine, "capacity"), stats.waiting)
        waiting.add_metric((model, engine, "deferred"), 0)
        yield waiting
        success = CounterMetricFamily(
            "vllm:request_success", "Finished requests by reason.", labels=(*_LABELS, "finished_reason")
        )
        for reason in ("stop", "length"):
            success.add_metric((model, engine, reason), stats.finished[reason])
        # vLLM does not count a request that its client left (seen on 0.32), so neither does the twin
        success.add_metric((model, engine, "abort"), 0)
        yield success
        refused = CounterMetricFamily(
            "vllm:admission_rejections", "Requests refused by a queue limit.", labels=("model_name", "reason")
        )
        refused.add_metric((model, "max_num_queued_reqs"), stats.refused)
        yield refused

    def _info(self) -> Metric:
        """The cache settings as labels; sizes as vLLM reports them at start-up."""
        config = self._config
        request_blocks = config.cache.admission_blocks(config.max_model_len, config.in_flight_tokens)
        concurrency = config.kv_blocks / request_blocks
        labels = {
            "block_size": str(config.cache.block_tokens),
            "enable_prefix_caching": str(config.enable_prefix_caching),
            "engine": "0",
            "kv_cache_max_concurrency": str(concurrency),
            "kv_cache_size_tokens": str(int(concurrency * config.max_model_len)),
            "num_gpu_blocks": str(config.kv_blocks),
        }
        info = GaugeMetricFamily("vllm:cache_config_info", "Settings of the KV cache.", labels=tuple(labels))
        info.add_metric(tuple(labels.values()), 1)
        return info


class TwinInfo:
    """Says on the page itself that these numbers are simulated."""

    def __init__(self, config: TwinConfig) -> None:
        self._config = config

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily(
            "roadworthy_twin_info", "These metrics are of a simulated engine.", labels=("label", "models")
        )
        info.add_metric((self._config.label, ",".join(self._config.models)), 1)
        yield info


def exposition(registry: CollectorRegistry) -> bytes:
    """The page, in the text format."""
    return generate_latest(registry)


def _token_buckets(max_model_len: int) -> Iterator[int]:
    """1, 2, 5, 10, … up to the context length."""
    scale = 1
    while True:
        for digit in (1, 2, 5):
            if digit * scale > max_model_len:
                return
            yield digit * scale
        scale *= 10
