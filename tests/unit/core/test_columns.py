"""Requests in columns: what a verdict reads."""

from __future__ import annotations

from roadworthy.core.columns import NOT_TOLD, Columns
from roadworthy.core.records import RequestRecord

DONE = RequestRecord(
    t_sched_s=1.0, t_send_s=1.5, t_first_s=2.0, t_last_s=3.0, n_in=10, n_out=3, ok=True, itl_s=(0.5, 0.5), tenant="b",
    cached_tokens=4,
)  # fmt: skip
FAILED = RequestRecord(
    t_sched_s=2.0, t_send_s=2.0, t_first_s=None, t_last_s=2.5, n_in=7, n_out=0, ok=False, itl_s=(9.0,), tenant="a",
)  # fmt: skip


def test_each_request_has_a_place_in_every_column() -> None:
    columns = Columns.of([FAILED, DONE])
    assert len(columns) == 2
    assert [columns.tenants[at] for at in columns.tenant] == ["a", "b"]
    assert [columns.errors[at] for at in columns.error] == ["unknown", ""]
    assert list(columns.cached) == [NOT_TOLD, 4]


def test_what_is_done_leaves_out_what_failed_and_its_gaps() -> None:
    done = Columns.of([FAILED, DONE]).done()
    assert (list(done.sched_s), list(done.first_s), list(done.n_in)) == ([1.0], [2.0], [10])
    assert list(done.gaps_s) == [0.5, 0.5]


def test_where_nothing_failed_nothing_is_copied() -> None:
    columns = Columns.of([DONE])
    assert columns.done() is columns
