"""What the gateway writes as its access log is a trace that `bench` replays."""

from __future__ import annotations

from pathlib import Path

from roadworthy.advise.trace_reader import read_trace
from roadworthy.advise.traces import TraceSchedule
from roadworthy.gateway.access_log import AccessLog
from roadworthy.gateway.data.record import RequestRecord
from roadworthy.spec.values import RequestProfile, Tenant


def test_the_lines_of_the_log_become_requests_of_their_tenant_length_and_time(tmp_path: Path) -> None:
    log = AccessLog(str(tmp_path / "access.jsonl"))
    common = {"model": "m", "endpoint": "e", "status": 200, "operation": "chat"}
    log.write([
        RequestRecord(tenant_id="legal", ending="ok", started_s=5.0, prompt_tokens=700, output_tokens=20, **common),
        RequestRecord(tenant_id="-", ending="refused", started_s=6.0, **{**common, "status": 401}),
        RequestRecord(tenant_id="shop", ending="ok", started_s=7.5, prompt_tokens=30, output_tokens=4, **common),
    ])  # fmt: skip
    log.close()
    trace = read_trace((tmp_path / "access.jsonl").read_text(), source="access.jsonl")
    assert (trace.format, trace.left_out) == ("access log", 1)
    tenants = (Tenant(id="legal"), Tenant(id="shop"))
    first, second = TraceSchedule(trace, RequestProfile(), seed=1, tenants=tenants).first_turns()
    assert (first.tenant, first.prompt_tokens, first.output_tokens, first.t_sched_s) == ("legal", 700, 20, 0.0)
    assert (second.tenant, second.prompt_tokens, second.output_tokens) == ("shop", 30, 4)
    assert abs(second.t_sched_s - 2.5) < 0.002, "the log has milliseconds"
