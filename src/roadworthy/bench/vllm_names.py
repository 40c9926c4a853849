"""A run under the names of ``vllm bench serve`` 0.32, so that what reads its results reads ours.

Latencies are milliseconds there and start at the send. Percentiles interpolate linearly, as numpy does by default; the
standard deviation is that of the population. ``request_rate`` is the text ``inf`` where the load asked for none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.advise.verdict import SlaReport
    from roadworthy.core.latency import LatencySummary
    from roadworthy.core.records import RequestRecord


def vllm_summary(report: SlaReport, counted: Sequence[RequestRecord]) -> dict[str, object]:
    """The totals and the latency statistics.

    Args:
        counted: the requests that ``report`` counts, warm-up left out.
    """
    done = [record for record in counted if record.ok]
    return {
        "duration": report.duration_s,
        "completed": report.completed,
        "failed": report.failed,
        "num_prompts": report.requests,
        "request_rate": "inf" if report.asked_rate_per_s is None else report.asked_rate_per_s,
        "total_input_tokens": report.input_tokens,
        "total_output_tokens": report.output_tokens,
        "request_throughput": report.request_rate_per_s,
        "request_goodput": report.goodput_rps,
        "output_throughput": report.output_tokens_per_s,
        "total_token_throughput": report.total_tokens_per_s,
        "max_concurrent_requests": _most_in_flight(done),
        **_statistics("ttft", report.ttft_s, [record.ttft_s for record in done]),
        **_statistics("tpot", report.tpot_s, [record.tpot_s for record in done]),
        **_statistics("itl", report.itl_s, [gap for record in done for gap in record.itl_s]),
        **_statistics("e2el", report.e2e_s, [record.e2e_s for record in done]),
    }


def vllm_details(records: Sequence[RequestRecord]) -> dict[str, object]:
    """Every request, as ``--save-detailed`` writes it, and beside it what it does not know: schedule, tenant, turn.

    Latencies of a failed request are 0 there, its error says why.
    """
    columns: Mapping[str, Callable[[RequestRecord], object]] = {
        "input_lens": lambda one: one.n_in,
        "output_lens": lambda one: one.n_out if one.ok else 0,
        "ttfts": lambda one: _micro(one.ttft_s or 0.0),
        "latencies": lambda one: _micro(one.e2e_s) if one.ok else 0.0,
        "start_times": lambda one: _micro(one.t_send_s),
        "queue_times": lambda one: _micro(one.client_queue_s),
        "errors": lambda one: one.error,
        "itls": lambda one: [_micro(gap) for gap in one.itl_s],
        "tenants_of": lambda one: one.tenant,
        "kinds_of": lambda one: one.kind,
        "sessions_of": lambda one: one.session,
        "turns_of": lambda one: one.turn,
    }
    return {name: [column(record) for record in records] for name, column in columns.items()}


def _statistics(name: str, summary: LatencySummary, values_s: Sequence[float | None]) -> dict[str, object]:
    present = [value for value in values_s if value is not None]
    spread = (
        math.sqrt(math.fsum((value - summary.mean) ** 2 for value in present) / len(present)) if present else math.nan
    )
    return {
        f"mean_{name}_ms": summary.mean * 1000,
        f"median_{name}_ms": summary.p50 * 1000,
        f"std_{name}_ms": spread * 1000,
        **{f"p{percent}_{name}_ms": getattr(summary, f"p{percent}") * 1000 for percent in (50, 90, 95, 99)},
    }


def _most_in_flight(done: Sequence[RequestRecord]) -> int:
    changes = sorted([(one.t_send_s, 1) for one in done] + [(one.t_last_s, -1) for one in done])
    return max(accumulate(change for _, change in changes), default=0)


def _micro(value_s: float) -> float:
    """Rounded to a microsecond: a file of a long run is a third as long, and no clock is better."""
    return round(value_s, 6)
