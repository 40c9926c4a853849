"""The short form of `scripts/ledger_check.py`, and proof that its judge sees what is billed wrong."""

from __future__ import annotations

import json

import pytest
from gatewaylab.ledger import Outcome, compare, main
from gatewaylab.ledger_clients import Seen


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_a_killed_worker_and_leaving_clients_leave_the_ledger_right(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(500, None)
    told = capsys.readouterr()
    assert code == 0, told.err
    assert json.loads(told.out.splitlines()[-1]) == {"requests": 500, "difference_tokens": 0}


def judged(seen: list[Seen], rows: dict[str, tuple[str, int, str]]) -> tuple[int, int]:
    outcome = Outcome()
    compare(seen, rows, outcome)
    return outcome.difference_tokens, len(outcome.problems)


WHOLE = Seen(request_id="a", status=200, tokens=7, whole=True)
CUT = Seen(request_id="a", status=200, tokens=7)


def test_billed_is_delivered_or_the_difference_is_told() -> None:
    assert judged([WHOLE], {"a": ("check", 7, "ok")}) == (0, 0)
    assert judged([WHOLE], {"a": ("check", 8, "ok")}) == (1, 1)
    assert judged([WHOLE], {"a": ("check", 5, "ok")}) == (2, 1)
    assert judged([WHOLE], {}) == (7, 1)


def test_a_stream_of_the_killed_worker_may_be_billed_one_event_more_and_none_less() -> None:
    assert judged([CUT], {"a": ("check", 7, "worker_died")}) == (0, 0)
    assert judged([CUT], {"a": ("check", 8, "worker_died")}) == (0, 0)
    assert judged([CUT], {"a": ("check", 9, "worker_died")}) == (1, 1)
    assert judged([CUT], {"a": ("check", 6, "worker_died")}) == (1, 1)


def test_a_stream_that_was_cut_by_a_worker_that_lived_is_told() -> None:
    assert judged([CUT], {"a": ("check", 7, "ok")}) == (0, 1)


def test_a_row_that_nobody_asked_for_is_told() -> None:
    assert judged([], {"b": ("check", 3, "ok")}) == (3, 1)
    assert judged([], {"b": ("check", 1, "worker_died")}) == (0, 0)


def test_an_answer_that_is_no_answer_is_told() -> None:
    assert judged([Seen(request_id="a", status=503, whole=True)], {}) == (0, 1)
