"""The ledger: every request counts once, and the sums of a day are the sums of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roadworthy.adapters.state.state import State, open_state
from roadworthy.route.ledger import LedgerRow, UsageRow

NOON_S = 1_790_000_000 - 1_790_000_000 % 86_400 + 43_200.0
ALL = {"since_day": "1970-01-01", "until_day": "9999-12-31"}


@pytest.fixture
def state(state_url: str) -> Iterator[State]:
    opened = open_state(state_url)
    yield opened
    opened.close()


def row(request_id: str, **more: object) -> LedgerRow:
    values: dict[str, object] = {
        "request_id": request_id, "tenant_id": "acme", "model": "m", "started_s": NOON_S, "prompt_tokens": 7,
        "output_tokens": 3, "cached_tokens": 2, "endpoint": "http://e1", "operation": "chat", "ending": "completed",
        "status": 200, "estimated": False, "worker": "0",
    }  # fmt: skip
    return LedgerRow(**(values | more))  # type: ignore[arg-type]


def test_a_row_comes_back_as_it_was_written(state: State) -> None:
    billed = row("r1", model="deepseek/ü", estimated=True, status=0, started_s=NOON_S + 0.125)
    assert state.write_ledger([billed]) == 1
    assert state.ledger(since_s=0, until_s=NOON_S * 2) == (asdict(billed),)


def test_a_request_told_twice_counts_once_in_one_batch_and_across_batches(state: State) -> None:
    assert state.write_ledger([row("r1"), row("r2"), row("r1", output_tokens=1000)]) == 2
    assert state.write_ledger([row("r2", output_tokens=1000), row("r3")]) == 1
    assert state.write_ledger([]) == 0
    (usage,) = state.usage(**ALL)
    assert (usage.requests, usage.prompt_tokens, usage.cached_tokens, usage.output_tokens) == (3, 21, 6, 9)


def test_many_that_tell_the_same_requests_at_once_bill_them_once(state: State) -> None:
    batches = [[row(f"r{at}", tenant_id=f"t{at % 5}") for at in range(start, start + 60)] for start in range(0, 60, 10)]
    with ThreadPoolExecutor(6) as pool:
        new = list(pool.map(state.write_ledger, batches))
    assert sum(new) == 110
    assert sum(usage.requests for usage in state.usage(**ALL)) == 110


def test_a_day_is_a_day_in_utc_of_the_requests_start(state: State) -> None:
    midnight_s = NOON_S + 43_200
    state.write_ledger([row("r1", started_s=midnight_s - 0.001), row("r2", started_s=midnight_s)])
    days = [(usage.day, usage.requests) for usage in state.usage(**ALL)]
    assert days == [("2026-09-21", 1), ("2026-09-22", 1)]
    assert state.tokens_of_day("2026-09-21") == {"acme": 10}
    assert state.tokens_of_day("2026-09-23") == {}
    assert [one.day for one in state.usage(since_day="2026-09-22", until_day="2026-09-22")] == ["2026-09-22"]


def test_usage_is_asked_for_by_tenant_and_model(state: State) -> None:
    state.write_ledger([row(f"{tenant}{model}", tenant_id=tenant, model=model) for tenant in "ab" for model in "xy"])
    assert [(one.tenant, one.model) for one in state.usage(**ALL, tenant="a")] == [("a", "x"), ("a", "y")]
    assert [(one.tenant, one.model) for one in state.usage(**ALL, model="y", tenant="b")] == [("b", "y")]


def test_the_ledger_is_read_newest_first_and_page_by_page_also_where_times_are_equal(state: State) -> None:
    rows = [row(f"r{at:02}", started_s=NOON_S + at // 3, tenant_id="ab"[at % 2]) for at in range(20)]
    state.write_ledger(rows)
    wanted = [one.request_id for one in sorted(rows, key=lambda one: (one.started_s, one.request_id), reverse=True)]
    read: list[str] = []
    before = None
    while page := state.ledger(since_s=0, until_s=NOON_S * 2, limit=6, before=before):
        read += [one["request_id"] for one in page]
        before = read[-1]
    assert read == wanted
    assert len(state.ledger(since_s=NOON_S + 1, until_s=NOON_S + 2)) == 3
    assert {one["tenant_id"] for one in state.ledger(since_s=0, until_s=NOON_S * 2, tenant="b")} == {"b"}
    assert state.ledger(since_s=0, until_s=NOON_S * 2, before="never seen") == ()


def test_a_batch_larger_than_a_statements_parameters_is_written_whole(state: State) -> None:
    rows = [row(f"r{at}") for at in range(2600)]  # 13 columns each: SQLite takes 32,766 values at once
    assert state.write_ledger(rows) == 2600
    assert state.tokens_of_day("2026-09-21") == {"acme": 26_000}


BATCHES = st.lists(
    st.lists(
        st.builds(
            row,
            request_id=st.integers(0, 30).map(str),
            tenant_id=st.sampled_from("abc"),
            model=st.sampled_from("xy"),
            started_s=st.sampled_from([NOON_S, NOON_S + 86_400, NOON_S - 86_400.5]),
            prompt_tokens=st.integers(0, 2**40),
            output_tokens=st.integers(0, 2**40),
        ),
        max_size=12,
    ),
    max_size=6,
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
def test_sums_are_those_of_the_first_telling_of_every_request(state: State, batches: list[list[LedgerRow]]) -> None:
    from roadworthy.adapters.state.tables import daily, ledger

    with state._database.writing() as connection:
        connection.execute(ledger.delete())
        connection.execute(daily.delete())
    first: dict[str, LedgerRow] = {}
    for batch in batches:
        new = {one.request_id for one in batch} - first.keys()
        assert state.write_ledger(batch) == len(new)
        for one in batch:
            first.setdefault(one.request_id, one)
    sums: Counter[tuple[str, str, str, str]] = Counter()
    for one in first.values():
        for name in ("prompt_tokens", "cached_tokens", "output_tokens"):
            sums[one.day, one.tenant_id, one.model, name] += getattr(one, name)
        sums[one.day, one.tenant_id, one.model, "requests"] += 1
    found = {
        (usage.day, usage.tenant, usage.model, name): getattr(usage, name)
        for usage in state.usage(**ALL)
        for name in ("prompt_tokens", "cached_tokens", "output_tokens", "requests")
    }
    assert found == dict(sums)
    by_tenant: Counter[str] = Counter()
    for one in first.values():
        if one.day == "2026-09-21":
            by_tenant[one.tenant_id] += one.prompt_tokens + one.output_tokens
    assert state.tokens_of_day("2026-09-21") == dict(by_tenant)
    assert all(isinstance(usage, UsageRow) for usage in state.usage(**ALL))
