"""The client against the C engine of tools/loadlab, whose pace is exact: nothing is stamped before it was sent.

How near the numbers come to a C client's is measured by scripts/bench-driver, on a machine that does nothing else.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from gatewaylab.lab import build, engines

from roadworthy.adapters import load_run
from roadworthy.adapters.load_run import BenchRequest, Target, run_bench
from roadworthy.adapters.ports import free_ports
from roadworthy.spec.values import Quantiles, RequestProfile

FIRST_S, GAP_S, TOKENS = 0.1, 0.01, 30
LOAD = RequestProfile(
    prompt_tokens=Quantiles(p50=80, p90=80, p99=80),
    output_tokens=Quantiles(p50=TOKENS, p90=TOKENS, p99=TOKENS),
    rate_per_s=60.0,
)


def test_a_stream_of_exact_pace_is_seen_whole_and_never_too_early(tmp_path: Path) -> None:
    build()
    port, control = free_ports("127.0.0.1", 2)
    with engines([port], control, core=None, log=tmp_path / "engine.log") as lab:
        lab.set(first_ms=FIRST_S * 1000, rate=1 / GAP_S)
        run = run_bench(BenchRequest(url=f"http://127.0.0.1:{port}", workload=LOAD, seed=4, requests=120))
    assert (run.report.completed, run.report.failed) == (120, 0), run.report.errors
    assert run.drive.uncounted == 0
    for record in run.drive.records:
        assert record.n_out == TOKENS
        assert len(record.itl_s) == TOKENS - 1, "one stamp for each event, however they were read"
        assert record.ttft_s is not None
        assert record.ttft_s >= FIRST_S * 0.995
        assert record.e2e_s >= (FIRST_S + (TOKENS - 1) * GAP_S) * 0.995


@pytest.mark.parametrize(
    ("fault", "error"),
    [("500", "HTTP 500"), ("503", "HTTP 503"), ("refused_stream", "error event 503"), ("die", "connection"),
     ("garbage", "not HTTP"), ("early_close", "connection")],
)  # fmt: skip
def test_every_fault_under_load_is_a_failure_with_its_name(
    fault: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine answers the questions before the load, and has its fault when the load begins."""
    build()
    port, control = free_ports("127.0.0.1", 2)
    with engines([port], control, core=None, log=tmp_path / "engine.log") as lab:
        lab.set(first_ms=0, rate=2000, die_after=3)
        ask_target = load_run.ask_target

        async def asked_then_broken(request: BenchRequest) -> Target:
            target = await ask_target(request)
            await asyncio.to_thread(lab.set, fault=fault)
            return target

        monkeypatch.setattr(load_run, "ask_target", asked_then_broken)
        run = run_bench(BenchRequest(url=f"http://127.0.0.1:{port}", workload=LOAD, seed=4, requests=30))
    assert (run.report.completed, run.report.failed) == (0, 30)
    assert all(error in words for words, _ in run.report.errors), run.report.errors
