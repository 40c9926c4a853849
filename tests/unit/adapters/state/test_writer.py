"""The ledger's thread: nothing waits for it, nothing is billed twice, and what cannot be billed is said."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roadworthy.adapters.state.spool import SUFFIX, Spool
from roadworthy.adapters.state.writer import MOST_ROWS, LedgerWriter
from roadworthy.core.errors import ProbeError, Temporary
from roadworthy.route.ledger import LedgerRow

LIMIT_S = 20.0


def row(number: int) -> LedgerRow:
    return LedgerRow(
        request_id=f"r{number}", tenant_id="acme", model="m", started_s=1.0, prompt_tokens=1, output_tokens=1
    )


def rows(*numbers: int) -> list[LedgerRow]:
    return [row(number) for number in numbers]


class FakeLedger:
    """Keeps what it is given, fails when told to, and holds a batch for as long as it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.failing = ""
        self.poison: set[str] = set()
        self.go = threading.Event()
        self.go.set()
        self.tried = threading.Semaphore(0)
        self.closed = False

    @property
    def ids(self) -> list[str]:
        return [one for batch in self.batches for one in batch]

    def write_ledger(self, batch: Sequence[LedgerRow]) -> int:
        self.tried.release()
        assert self.go.wait(LIMIT_S)
        if self.failing:
            raise Temporary(self.failing)
        if bad := self.poison & {one.request_id for one in batch}:
            raise ValueError(f"no store takes {min(bad)}")
        self.batches.append([one.request_id for one in batch])
        return len(batch)

    def close(self) -> None:
        self.closed = True


@contextmanager
def writing(ledger: FakeLedger, **more: Any) -> Iterator[LedgerWriter]:
    writer = LedgerWriter(lambda: ledger, **more)
    try:
        yield writer
    finally:
        ledger.go.set()
        writer.close(more.get("close_s", LIMIT_S))


def until(condition: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(int(LIMIT_S / 0.005)):
        if condition():
            return
        waited.wait(0.005)
    raise AssertionError("it never came")


def test_rows_are_written_in_the_order_in_which_they_were_put_and_closing_waits_for_them() -> None:
    ledger = FakeLedger()
    with writing(ledger) as writer:
        for at in range(50):
            writer.put(rows(2 * at, 2 * at + 1))
    assert ledger.ids == [f"r{at}" for at in range(100)]
    assert (writer.settled, writer.written, writer.waiting, writer.dropped) == (100, 100, 0, 0)
    assert ledger.closed


def test_what_comes_while_a_batch_is_written_goes_into_the_next_one_together() -> None:
    ledger = FakeLedger()
    ledger.go.clear()
    with writing(ledger) as writer:
        writer.put(rows(0))
        ledger.tried.acquire(timeout=LIMIT_S)
        for at in range(1, MOST_ROWS + 11):
            writer.put(rows(at))
        ledger.go.set()
    assert [len(batch) for batch in ledger.batches] == [1, MOST_ROWS, 10]


def test_put_returns_while_the_store_hangs() -> None:
    ledger = FakeLedger()
    ledger.go.clear()
    with writing(ledger) as writer:
        writer.put(rows(0))
        ledger.tried.acquire(timeout=LIMIT_S)
        writer.put(rows(1, 2))
        assert (writer.waiting, writer.settled) == (3, 0)


def test_rows_wait_for_a_store_that_fails_and_it_is_said_once_each_way() -> None:
    ledger, said = FakeLedger(), []
    ledger.failing = "database is locked"
    with writing(ledger, say=said.append) as writer:
        writer.put(rows(1, 2))
        until(lambda: writer.failing != "")
        ledger.tried.acquire(timeout=LIMIT_S)
        ledger.tried.acquire(timeout=LIMIT_S)
        assert (writer.failing, writer.waiting, writer.settled) == ("database is locked", 2, 0)
        ledger.failing = ""
        until(lambda: writer.waiting == 0)
        assert writer.failing == ""
    assert ledger.ids == ["r1", "r2"]
    assert said == ["ledger: database is locked; 2 rows wait", "ledger: written again, 2 rows waited"]


def test_a_state_that_cannot_be_opened_yet_is_tried_again() -> None:
    ledger, tries = FakeLedger(), []

    def opened() -> FakeLedger:
        tries.append(1)
        if len(tries) < 3:
            raise (Temporary("refused") if len(tries) == 1 else MemoryError)
        return ledger

    writer = LedgerWriter(opened)
    writer.put(rows(1))
    until(lambda: writer.settled == 1)
    writer.close()
    assert ledger.ids == ["r1"]


def test_closed_keeps_every_row_and_asks_to_let_nobody_in() -> None:
    ledger = FakeLedger()
    ledger.failing = "gone"
    with writing(ledger, on_loss="closed", most_waiting=3) as writer:
        writer.put(rows(1, 2))
        assert not writer.full
        writer.put(rows(3, 4, 5))
        assert writer.full
        ledger.tried.acquire(timeout=LIMIT_S)
        ledger.tried.acquire(timeout=LIMIT_S)
        ledger.failing = ""
        until(lambda: writer.waiting == 0)
        assert not writer.full
    assert ledger.ids == ["r1", "r2", "r3", "r4", "r5"]


def test_open_drops_the_oldest_and_counts_them_and_never_asks_to_refuse() -> None:
    ledger = FakeLedger()
    ledger.failing = "gone"
    with writing(ledger, on_loss="open", most_waiting=3) as writer:
        writer.put(rows(1, 2, 3, 4, 5))
        until(lambda: writer.dropped == 2)
        assert not writer.full
        assert (writer.settled, writer.waiting) == (2, 3)
        ledger.failing = ""
        until(lambda: writer.waiting == 0)
    assert ledger.ids == ["r3", "r4", "r5"]
    assert (writer.settled, writer.written) == (5, 3)


def test_one_row_that_no_store_can_take_does_not_hold_up_the_others() -> None:
    ledger, said = FakeLedger(), []
    ledger.poison = {"r2"}
    with writing(ledger, say=said.append) as writer:
        writer.put(rows(1, 2, 3))
    assert ledger.ids == ["r1", "r3"]
    assert (writer.settled, writer.dropped) == (3, 1)
    assert said == ["ledger: request 'r2' cannot be billed: no store takes r2"]


def test_what_cannot_be_written_by_the_end_is_billed_by_the_next_writer(tmp_path: Path) -> None:
    ledger, said = FakeLedger(), []
    ledger.failing = "gone"
    writer = LedgerWriter(lambda: ledger, spool=Spool(tmp_path / "spool"), say=said.append)
    writer.put(rows(1, 2))
    until(lambda: writer.failing != "")
    writer.close(0.0)
    assert (writer.spooled, writer.dropped, writer.waiting) == (2, 0, 0)
    assert len(list((tmp_path / "spool").iterdir())) == 1
    assert "2 rows are kept" in said[-1]
    ledger.failing = ""
    later = LedgerWriter(lambda: ledger, spool=Spool(tmp_path / "spool"))
    later.put(rows(3))
    until(lambda: later.settled == 1)
    later.close()
    assert ledger.ids == ["r1", "r2", "r3"]
    assert list((tmp_path / "spool").iterdir()) == []


def test_without_a_spool_what_is_lost_is_counted_and_said() -> None:
    ledger, said = FakeLedger(), []
    ledger.failing = "gone"
    writer = LedgerWriter(lambda: ledger, say=said.append)
    writer.put(rows(1, 2))
    until(lambda: writer.failing != "")
    writer.close(0.0)
    assert (writer.dropped, writer.settled) == (2, 2)
    assert said[-1] == "ledger: 2 rows are lost: gone"


def test_closing_waits_no_longer_than_told_for_a_store_that_fails() -> None:
    ledger = FakeLedger()
    ledger.failing = "gone"
    writer = LedgerWriter(lambda: ledger)
    writer.put(rows(1))
    writer.close(0.2)
    assert not writer._thread.is_alive()


def test_a_spool_keeps_rows_exactly_and_whole_or_not_at_all(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    odd = LedgerRow(
        request_id="ü\n\u2028", tenant_id="a", model="m", started_s=0.1 + 0.2, prompt_tokens=2**60, output_tokens=0,
        estimated=True, status=499,
    )  # fmt: skip
    spool.write([odd, row(1)])
    (tmp_path / "1.part").write_text("{half a row", encoding="utf-8")
    again = Spool(tmp_path)
    assert again.read() == [odd, row(1)]
    again.forget()
    assert [path.name for path in tmp_path.iterdir()] == ["1.part"]


def test_a_spool_that_cannot_be_read_stays_and_is_named(tmp_path: Path) -> None:
    bad = tmp_path / f"1{SUFFIX}"
    bad.write_text(json.dumps({"request_id": "r1"}) + "\n", encoding="utf-8")
    with pytest.raises(ProbeError, match=bad.name):
        Spool(tmp_path).read()
    assert bad.exists()


def test_a_spool_without_a_place_to_write_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(Temporary, match="file/below"):
        Spool(tmp_path / "file" / "below").write(rows(1))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5)),
        st.tuples(st.just("fail"), st.just(0)),
        st.tuples(st.just("heal"), st.just(0)),
        st.tuples(st.just("poison"), st.integers(0, 30)),
        st.tuples(st.just("settle"), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_the_store_does_every_row_is_billed_once_in_order_or_named(
    steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ledger, said, spool = FakeLedger(), [], tmp_path_factory.mktemp("spool")
    writer = LedgerWriter(lambda: ledger, spool=Spool(spool), say=said.append)
    put = 0
    for step, number in steps:
        if step == "put":
            writer.put(rows(*range(put, put + number)))
            put += number
        elif step == "poison":
            ledger.poison = ledger.poison | {f"r{number}"}
        elif step == "settle" and not ledger.failing:
            until(lambda: writer.waiting == 0)
            assert writer.settled == put
        else:
            ledger.failing = "gone" if step == "fail" else ledger.failing if step == "settle" else ""
    writer.close(0.0)
    assert writer.waiting == 0
    assert writer.settled == put
    ledger.failing = ""
    LedgerWriter(lambda: ledger, spool=Spool(spool), say=said.append).close()
    rejected = {line.split("'")[1] for line in said if "cannot be billed" in line}
    assert rejected <= ledger.poison
    assert [*ledger.ids] == [f"r{at}" for at in range(put) if f"r{at}" not in rejected]
    assert list(spool.iterdir()) == []
