from __future__ import annotations

import pytest

from roadworthy.core.records import RequestRecord


def record(**changes: object) -> RequestRecord:
    fields: dict[str, object] = {
        "t_sched_s": 1.0, "t_send_s": 1.5, "t_first_s": 2.0, "t_last_s": 4.0, "n_in": 10, "n_out": 5, "ok": True,
    }  # fmt: skip
    return RequestRecord(**(fields | changes))  # type: ignore[arg-type]


def test_latencies_follow_their_definitions() -> None:
    one = record()
    assert (one.client_queue_s, one.ttft_s, one.e2e_s, one.user_ttft_s, one.user_e2e_s) == (0.5, 0.5, 2.5, 1.0, 3.0)
    assert one.tpot_s == pytest.approx(2.0 / 4), "the first token is not in the time per output token"


def test_one_token_has_no_time_per_output_token() -> None:
    assert record(n_out=1).tpot_s is None


def test_a_failure_may_have_no_first_token() -> None:
    failed = record(ok=False, t_first_s=None, n_out=0, error="refused")
    assert (failed.ttft_s, failed.user_ttft_s, failed.tpot_s) == (None, None, None)


def test_success_without_a_first_token_is_refused() -> None:
    with pytest.raises(ValueError, match="ok without a first token"):
        record(t_first_s=None)


def test_negative_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="negative tokens"):
        record(n_out=-1)
