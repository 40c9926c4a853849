"""When an engine is taken out, and how it comes back."""

from __future__ import annotations

import pytest

from roadworthy.route.breaker import Breaker, BreakerPolicy

POLICY = BreakerPolicy(failures=3, first_backoff_s=1.0, longest_backoff_s=4.0)


def opened() -> Breaker:
    breaker = Breaker(POLICY)
    for _ in range(3):
        breaker.failed(10.0)
    return breaker


def test_it_opens_after_failures_in_a_row_and_not_before() -> None:
    breaker = Breaker(POLICY)
    breaker.failed(0.0)
    breaker.failed(0.0)
    assert breaker.allows(0.0)
    breaker.failed(0.0)
    assert not breaker.allows(0.0)
    assert breaker.state(0.0) == "open"


def test_a_success_in_between_starts_the_count_again() -> None:
    breaker = Breaker(POLICY)
    for _ in range(10):
        breaker.failed(0.0)
        breaker.failed(0.0)
        breaker.succeeded()
    assert breaker.state(0.0) == "closed"


def test_after_the_backoff_one_request_probes() -> None:
    breaker = opened()
    assert not breaker.allows(10.9)
    assert breaker.allows(11.0)
    assert breaker.state(11.0) == "half_open"
    breaker.dispatched(11.0)
    assert not breaker.allows(11.1)


def test_a_probe_that_succeeds_closes_it() -> None:
    breaker = opened()
    breaker.dispatched(11.0)
    breaker.succeeded()
    assert breaker.state(11.0) == "closed"
    assert breaker.allows(11.0)


def test_each_failed_probe_doubles_the_backoff_up_to_the_longest() -> None:
    breaker = opened()
    now_s, backoffs = 11.0, []
    for _ in range(4):
        breaker.dispatched(now_s)
        breaker.failed(now_s)
        wait_s = next(step / 10 for step in range(1, 100) if breaker.allows(now_s + step / 10))
        backoffs.append(wait_s)
        now_s += wait_s
    assert backoffs == [2.0, 4.0, 4.0, 4.0]


def test_a_late_failure_of_an_older_request_does_not_lengthen_the_backoff() -> None:
    breaker = opened()
    breaker.failed(10.9)
    assert breaker.allows(11.0)


def test_a_probe_whose_client_left_frees_the_way_for_another() -> None:
    breaker = opened()
    breaker.dispatched(11.0)
    breaker.abandoned()
    assert breaker.allows(11.0)


def test_a_probe_that_takes_long_holds_others_up_no_longer_than_the_longest_backoff() -> None:
    breaker = opened()
    breaker.dispatched(11.0)
    assert not breaker.allows(14.9)
    assert breaker.allows(15.0)


@pytest.mark.parametrize("fields", [{"failures": 0}, {"first_backoff_s": 0.0}, {"longest_backoff_s": 0.1}])
def test_a_policy_that_cannot_work_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="cannot work"):
        BreakerPolicy(**fields)  # type: ignore[arg-type]
