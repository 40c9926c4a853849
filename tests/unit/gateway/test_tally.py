"""What is counted of requests, and how it is written out."""

from __future__ import annotations

import msgspec
import pytest

from roadworthy.gateway import metrics
from roadworthy.gateway.data.record import RequestRecord
from roadworthy.gateway.tally import FOLD_AT, RECENT, RecentRate, Tally

RECORD = RequestRecord(
    tenant_id="t", operation="chat", model="m", endpoint="http://a", ending="ok", status=200, attempts=1,
    output_tokens=4, duration_s=0.5, ttft_s=0.2,
)  # fmt: skip


def record(**fields: object) -> RequestRecord:
    return msgspec.structs.replace(RECORD, **fields)


def text_of(tally: Tally, worker: str | None = None) -> str:
    gauges = {name: {"http://a": 1.0} for name in metrics.ENGINE_GAUGES}
    taken = metrics.snapshot(tally, engine_gauges=gauges, gauges={}, counters={})
    return metrics.render(taken, worker=worker).decode()


def test_tenants_are_counted_by_how_their_requests_ended() -> None:
    tally = Tally(str)
    for ending, estimated in (
        ("ok", False), ("ok", True), ("refused", True), ("engine_error", True), ("client_left", True),
    ):  # fmt: skip
        tally.record(record(ending=ending, tokens_estimated=estimated))
    (status,) = tally.tenants(["t"], lambda _: 3)
    assert (status.requests, status.refused, status.failed, status.in_flight) == (5, 1, 1, 3)
    assert (status.output_tokens, status.output_tokens_estimated) == (20, 16)


def test_a_tenant_without_requests_has_zeros() -> None:
    (status,) = Tally(str).tenants(["new"], lambda _: 0)
    assert (status.id, status.requests, status.output_tokens) == ("new", 0, 0)


def test_histograms_add_up_and_their_buckets_are_cumulative() -> None:
    tally = Tally(str)
    for duration_s in (0.01, 0.2, 0.2, 1e9):
        tally.record(record(duration_s=duration_s))
    lines = text_of(tally).splitlines()
    buckets = [float(line.rpartition(" ")[2]) for line in lines if "request_duration_seconds_bucket" in line]
    assert buckets == sorted(buckets)
    assert buckets[0] == 1.0, "a bound belongs to its bucket"
    assert buckets[-1] == 4.0
    (total,) = [line for line in lines if "request_duration_seconds_sum" in line]
    assert float(total.rpartition(" ")[2]) == pytest.approx(1e9 + 0.41)


def test_a_worker_labels_every_line_and_the_only_process_none() -> None:
    tally = Tally(str)
    tally.record(RECORD)
    samples = [line for line in text_of(tally, worker="2").splitlines() if not line.startswith("#")]
    assert samples
    assert all('worker="2"' in line for line in samples)
    assert "worker=" not in text_of(tally)


def test_sinks_get_every_record_once_and_in_order() -> None:
    seen: list[RequestRecord] = []
    tally = Tally(str, [seen.extend])
    sent = [record(request_id=f"{at}") for at in range(FOLD_AT + 3)]
    for one in sent:
        tally.record(one)
    tally.fold()
    tally.fold()
    assert seen == sent
    assert list(tally.recent) == sent[-RECENT:]


def test_a_rate_is_of_the_last_seconds_alone() -> None:
    rate = RecentRate()
    assert rate.per_s() == 0.0
    for second in range(20):
        rate.sample(float(second), 1000 if second >= 10 else 0)
    assert rate.per_s() == 0.0
    rate.sample(20.0, 1500)
    assert rate.per_s() == pytest.approx(100.0)
