"""The bench against real vLLM: its counts are the server's, its lengths are as planned, its gaps are its events."""

from __future__ import annotations

from statistics import median

import pytest

from roadworthy.adapters.load_run import BenchRequest, run_bench
from roadworthy.advise.gates import CLIENT_GATE, MAX_CLIENT_LAG_P99_S
from roadworthy.spec.values import Quantiles, RequestProfile, Sessions, Sla

pytestmark = pytest.mark.engine


def test_a_multi_turn_load_on_real_vllm_is_measured_whole(vllm_engine) -> None:
    workload = RequestProfile(
        prompt_tokens=Quantiles(p50=120, p90=200, p99=300),
        output_tokens=Quantiles(p50=12, p90=20, p99=30),
        rate_per_s=8.0,
        shared_prefix_ratio=0.3,
        sessions=Sessions(turns=2, think_time_s=0.1),
    )
    run = run_bench(
        BenchRequest(url=vllm_engine.url, workload=workload, sla=Sla(success_ratio=1.0), seed=5, requests=40)
    )
    report, records = run.report, run.drive.records
    assert (report.requests, report.failed, report.partial) == (40, 0, False), report.errors
    assert run.model.id == vllm_engine.model
    assert not run.simulated
    assert run.drive.uncounted == 0
    assert any(record.turn > 0 for record in records)
    for record in records:
        assert record.t_sched_s <= record.t_send_s <= record.t_first_s <= record.t_last_s
        assert len(record.itl_s) + 1 <= record.n_out
    # one event a token, except that the server lets tokens share an event when it could not send for a moment
    assert median((len(record.itl_s) + 1) / record.n_out for record in records) >= 0.5
    # whether this machine lets the client send in time is the report's to say
    (client,) = [gate for gate in report.gates if gate.name == CLIENT_GATE]
    assert not client.passed or report.client_queue_s.p99 <= MAX_CLIENT_LAG_P99_S
    assert client.passed or report.verdict == "undecided", report.reason


def test_prompts_have_the_planned_length_by_vllms_own_count(vllm_engine) -> None:
    workload = RequestProfile(
        prompt_tokens=Quantiles(p50=400, p90=400, p99=400),
        output_tokens=Quantiles(p50=2, p90=2, p99=2),
        rate_per_s=10.0,
    )
    run = run_bench(BenchRequest(url=vllm_engine.url, workload=workload, seed=1, requests=20))
    assert {record.n_out for record in run.drive.records} == {2}
    for record in run.drive.records:
        assert record.n_in == pytest.approx(400, rel=0.1)
