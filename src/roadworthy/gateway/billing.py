"""From the first token delivered to the row in the ledger: what the gateway bills, and that it is billed once.

Each request that reached an engine is one row. Until the ledger has the row, the journal has the request; rows travel
in batches, in order, and slots of the journal are given back as the ledger says how many it has taken.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from roadworthy.core.errors import Refused
from roadworthy.gateway.data.exact import CountedGate
from roadworthy.gateway.journal import left_behind
from roadworthy.route.ledger import LedgerRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from roadworthy.gateway.data.record import RequestRecord
    from roadworthy.gateway.data.stream import EventGate
    from roadworthy.gateway.data.work import Work
    from roadworthy.gateway.journal import Journal


class Ledger(Protocol):
    """Where rows go; ``adapters.state`` has one on a database. Nothing here waits for it.

    ``settled`` counts rows that are no longer its business, written or dropped, in the order in which they came;
    ``full`` says that it has fallen too far behind to take on more; ``failing`` why it cannot write now, "" if it can.
    """

    @property
    def settled(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def full(self) -> bool: ...
    @property
    def failing(self) -> str: ...
    def put(self, rows: Sequence[LedgerRow]) -> None: ...
    def close(self, timeout_s: float) -> None: ...


class Billing:
    """What this process bills.

    Args:
        journal: None where a killed process may take what it owes with it.
        worker: which of several processes this is.
        epoch_s: seconds of the epoch.
        now_s: the clock of records.
    """

    def __init__(
        self,
        ledger: Ledger,
        journal: Journal | None,
        *,
        worker: str = "",
        epoch_s: Callable[[], float] = time.time,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ledger, self.journal = ledger, journal
        self._worker = worker
        self._offset_s = epoch_s() - now_s()
        self._epoch_s, self._now_s = epoch_s, now_s
        self._slot_of: dict[str, int] = {}  # of requests that are over and not put yet
        self._put = 0
        self._pending: deque[tuple[int, list[int]]] = deque()  # slots, and the row count that settles them
        self.rows = 0

    def begin(self, work: Work, endpoint: str, gate: EventGate, started_s: float) -> int | None:
        """The first events of a stream are about to go out."""
        if self.journal is None:
            return None
        route = work.route
        slot = self.journal.begin(
            route.request_id, route.tenant_id, route.model, endpoint, work.operation, started_s + self._offset_s
        )
        if slot is not None and isinstance(gate, CountedGate):
            gate.journaled(self.journal.cells(slot))
            if not gate.estimated:
                self.journal.counted(slot)
        return slot

    def end(self, slot: int | None, record: RequestRecord) -> None:
        """A request is over. Of an answer that was no stream, nothing has gone out yet."""
        journal = self.journal
        if journal is None or not record.attempts:
            return
        if slot is None:
            slot = journal.put(
                record.request_id, record.tenant_id, record.model, record.endpoint, record.operation,
                record.started_s + self._offset_s, prompt_tokens=record.prompt_tokens,
                output_tokens=record.output_tokens, cached_tokens=record.cached_tokens, status=record.status,
                estimated=record.tokens_estimated, ending=record.ending,
            )  # fmt: skip
            if slot is not None:
                self._slot_of[record.request_id] = slot
            return
        journal.end(
            slot, prompt_tokens=record.prompt_tokens, output_tokens=record.output_tokens,
            cached_tokens=record.cached_tokens, status=record.status, estimated=record.tokens_estimated,
            ending=record.ending,
        )  # fmt: skip
        self._slot_of[record.request_id] = slot

    def write(self, records: Sequence[RequestRecord]) -> None:
        """Rows for ``records``, in order; returns at once."""
        rows, slots = [], []
        offset_s, worker, slot_of = self._offset_s, self._worker, self._slot_of
        for one in records:
            if not one.attempts:
                continue
            prompt, cached = one.prompt_tokens, one.cached_tokens
            rows.append(
                LedgerRow(
                    one.request_id, one.tenant_id, one.model, one.started_s + offset_s, prompt, one.output_tokens,
                    cached if cached <= prompt else prompt, one.endpoint, one.operation, one.ending, one.status,
                    one.tokens_estimated, worker,
                )
            )  # fmt: skip
            slot = slot_of.pop(one.request_id, None)
            if slot is not None:
                slots.append(slot)
        if rows:
            self.rows += len(rows)
            self.ledger.put(rows)
            self._put += len(rows)
            if slots:
                self._pending.append((self._put, slots))

    def tick(self) -> None:
        """Give slots back whose rows are written; follow the clock of the epoch."""
        self._offset_s = self._epoch_s() - self._now_s()
        settled = self.ledger.settled
        while self._pending and self._pending[0][0] <= settled:
            _, slots = self._pending.popleft()
            if self.journal is not None:
                self.journal.release(slots)

    def check(self) -> None:
        """Raises Refused when what is asked for now could not be billed."""
        if self.ledger.full:
            raise Refused(
                "requests cannot be billed at the moment",
                code="ledger_unavailable",
                status=503,
                hint="try again after the time in Retry-After; the operator finds the cause in /api/status",
                retry_after_s=5.0,
            )

    def close(self, timeout_s: float) -> None:
        """Write what waits. The journal stays for the next process if that takes longer than ``timeout_s``."""
        self.ledger.close(timeout_s)
        self.tick()
        if self.journal is not None:
            self.journal.close(keep=bool(self._pending or self._slot_of))


def bill_left_behind(folder: Path, write: Callable[[Sequence[LedgerRow]], object]) -> int:
    """Bill what dead processes owe by their journals in ``folder``; the rows billed. Blocks while ``write`` does.

    Args:
        write: puts rows into the ledger before it returns, each id once; when it raises, the journal stays.
    """
    billed = 0
    for journal in left_behind(folder):
        try:
            if journal.rows:
                write(journal.rows)
        except BaseException:
            journal.let_go()
            raise
        billed += len(journal.rows)
        journal.done()
    return billed
