"""Request records for tests: one with sensible values, and a steady run of many."""

from __future__ import annotations

from roadworthy.core.records import RequestRecord


def record(
    t_sched_s: float = 0.0,
    *,
    lag_s: float = 0.0,
    ttft_s: float = 0.1,
    tpot_s: float = 0.02,
    n_out: int = 50,
    n_in: int = 200,
    ok: bool = True,
    error: str = "",
    tenant: str = "",
) -> RequestRecord:
    """A request that kept to these latencies; a failed one got no token."""
    t_send_s = t_sched_s + lag_s
    t_first_s = t_send_s + ttft_s
    gaps = n_out - 1
    return RequestRecord(
        t_sched_s=t_sched_s,
        t_send_s=t_send_s,
        t_first_s=t_first_s if ok else None,
        t_last_s=t_first_s + tpot_s * gaps if ok else t_first_s,
        n_in=n_in,
        n_out=n_out if ok else 0,
        ok=ok,
        itl_s=(tpot_s,) * gaps if ok else (),
        tenant=tenant,
        error=error or ("" if ok else "HTTP 503: full"),
    )


def steady(count: int, *, rate_per_s: float = 16.0, **more: object) -> list[RequestRecord]:
    """``count`` requests, evenly spaced, all alike."""
    return [record(index / rate_per_s, **more) for index in range(count)]
