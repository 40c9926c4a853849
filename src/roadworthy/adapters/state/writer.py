"""Fills the ledger from a thread of its own, so that no request and no event loop ever waits for a disk.

Rows wait in memory and are written in batches, each batch one transaction. While the store is in trouble they go on
waiting; what is done when too many wait is a setting: ``closed`` keeps every row and asks (``full``) that no more
requests be let in, ``open`` drops the oldest and counts them. What cannot be written by the end goes to a file, and is
billed by the next writer that starts with the same folder.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Literal, Protocol

from roadworthy.adapters.state.spool import Spool
from roadworthy.core.errors import RoadworthyError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from roadworthy.route.ledger import LedgerRow

MOST_ROWS = 1000
"""Rows of one transaction."""

GATHER_S = 0.2
"""How long the first row of a batch waits for others: one transaction, one flush to disk, for what comes meanwhile.
A transaction costs a millisecond of CPU and a row of SQLite's 9 us, in the process that relays."""

RETRY_S = (0.1, 2.0)
"""The first and the longest pause after a failed write; it doubles in between."""

HUNG_S = 5.0
"""After so long without an answer the store counts as failing."""

OnLoss = Literal["closed", "open"]


class Ledger(Protocol):
    """Where rows go: ``State`` is one."""

    def write_ledger(self, rows: Sequence[LedgerRow]) -> int: ...
    def close(self) -> None: ...


def ledger_writer(
    url: str,
    *,
    on_loss: OnLoss = "closed",
    spool: Path | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> LedgerWriter:
    """A writer to the state at ``url``; SQLAlchemy is imported, and the state opened, on the writer's thread.

    Args:
        spool: the folder for rows that cannot be written by the end.
    """

    def opened() -> Ledger:
        from roadworthy.adapters.state.state import open_state

        return open_state(url)

    return LedgerWriter(opened, on_loss=on_loss, spool=Spool(spool) if spool else None, say=say)


class LedgerWriter:
    """One for each process. ``put`` returns at once; attributes may be read from any thread.

    Args:
        open_ledger: makes the connection; called on the writer's thread, again while it raises RoadworthyError.
        on_loss: what happens beyond ``most_waiting`` rows.
        spool: keeps what could not be written by ``close``.
        say: hears one line when the store goes out of reach and one when it is back.
    """

    def __init__(
        self,
        open_ledger: Callable[[], Ledger],
        *,
        on_loss: OnLoss = "closed",
        most_waiting: int = 100_000,
        spool: Spool | None = None,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._open_ledger = open_ledger
        self._on_loss = on_loss
        self._most_waiting = most_waiting
        self._spool = spool
        self._say = say
        self._ledger: Ledger | None = None
        self._rows: deque[LedgerRow] = deque()
        self._told = threading.Condition()
        self._stop_at_s: float | None = None
        self.settled = 0
        self.written = 0
        self.dropped = 0
        self.spooled = 0
        self._failing = ""
        self._since_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Rows that are put and not yet settled."""
        return len(self._rows)

    @property
    def failing(self) -> str:
        """Why the store cannot be written now, "" when it can."""
        since_s = self._since_s
        if not self._failing and since_s is not None and time.monotonic() - since_s > HUNG_S:
            return f"the store has not answered for {time.monotonic() - since_s:.0f} s"
        return self._failing

    @property
    def full(self) -> bool:
        """Too far behind to bill what would be let in now; only where ``on_loss`` is ``closed``."""
        return self._on_loss == "closed" and len(self._rows) >= self._most_waiting

    def put(self, rows: Sequence[LedgerRow]) -> None:
        """Bill ``rows``, some time soon and in this order. Never blocks, never refuses."""
        with self._told:
            self._rows.extend(rows)
            self._told.notify()

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what waits, for at most ``timeout_s`` seconds; the rest is spooled, or lost where there is no spool."""
        with self._told:
            self._stop_at_s = time.monotonic() + timeout_s
            self._told.notify()
        self._thread.join(timeout_s + 1.0)
        if self._thread.is_alive():  # it waits for a store that does not answer; what it writes after all counts once
            self._keep(list(self._rows))

    def _run(self) -> None:
        self._take_back_spooled()
        pause_s = RETRY_S[0]
        while batch := self._next_batch():
            if self._write(batch):
                pause_s = RETRY_S[0]
                continue
            self._make_room()
            if self._rest(pause_s):
                break
            pause_s = min(2 * pause_s, RETRY_S[1])
        self._leave()

    def _next_batch(self) -> list[LedgerRow]:
        """The oldest rows, left in the queue until they are written; none when it is time to stop."""
        with self._told:
            while not self._rows and self._stop_at_s is None:
                self._told.wait()
            if len(self._rows) < MOST_ROWS and self._stop_at_s is None and not self._failing:
                self._told.wait_for(lambda: len(self._rows) >= MOST_ROWS or self._stop_at_s is not None, GATHER_S)
            return list(itertools.islice(self._rows, MOST_ROWS))

    def _write(self, batch: Sequence[LedgerRow]) -> bool:
        """Whether ``batch`` is settled. A row that no store can take does not hold up the others."""
        self._since_s = time.monotonic()
        try:
            if self._ledger is None:
                self._ledger = self._open_ledger()
            try:
                self._ledger.write_ledger(batch)
                rejected = 0
            except RoadworthyError:
                raise
            except Exception:
                rejected = self._write_singly(self._ledger, batch)
        except Exception as error:  # of any kind: a thread that ends would let rows wait for ever
            if not self._failing:
                self._say(f"ledger: {error}; {len(self._rows)} rows wait")
            self._failing = str(error) or type(error).__name__
            self._leave_ledger()  # the next try opens it anew: a file may have been replaced, tables be gone
            return False
        finally:
            self._since_s = None
        if self._failing:
            self._say(f"ledger: written again, {len(self._rows)} rows waited")
            self._failing = ""
        self._settle(len(batch), dropped=rejected)
        self.written += len(batch) - rejected
        return True

    def _write_singly(self, ledger: Ledger, batch: Sequence[LedgerRow]) -> int:
        rejected = 0
        for row in batch:
            try:
                ledger.write_ledger([row])
            except RoadworthyError:
                raise
            except Exception as error:
                rejected += 1
                self._say(f"ledger: request {row.request_id!r} cannot be billed: {error}")
        return rejected

    def _settle(self, rows: int, *, dropped: int = 0) -> None:
        with self._told:
            for _ in range(rows):
                self._rows.popleft()
            self.settled += rows
            self.dropped += dropped
        if self._spool is not None and self.settled >= 0:
            self._spool.forget()  # those of an earlier process stood before ours, so they are written

    def _make_room(self) -> None:
        over = len(self._rows) - self._most_waiting
        if self._on_loss == "open" and over > 0:
            self._settle(over, dropped=over)

    def _rest(self, pause_s: float) -> bool:
        """Wait before the next try; True when there is no time for another."""
        with self._told:
            self._told.wait_for(lambda: self._stop_at_s is not None, pause_s)
            stop_at_s = self._stop_at_s
        if stop_at_s is None:
            return False
        left_s = stop_at_s - time.monotonic()
        if left_s > 0:
            time.sleep(min(pause_s, left_s))
        return stop_at_s <= time.monotonic()

    def _take_back_spooled(self) -> None:
        if self._spool is None:
            return
        try:
            rows = self._spool.read()
        except RoadworthyError as error:
            self._say(f"ledger: {error}")
            return
        with self._told:
            self.settled -= len(rows)  # they are no rows of this process: `settled` counts what was put
            self._rows.extendleft(reversed(rows))

    def _leave(self) -> None:
        rows = list(self._rows)
        self._settle(len(rows), dropped=len(rows) - self._keep(rows))
        self._leave_ledger()

    def _keep(self, rows: Sequence[LedgerRow]) -> int:
        """Put ``rows`` where the next start finds them; how many were kept."""
        if not rows:
            return 0
        if self._spool is None:
            self._say(f"ledger: {len(rows)} rows are lost: {self.failing}")
            return 0
        try:
            self._spool.write(rows)
        except RoadworthyError as error:
            self._say(f"ledger: {len(rows)} rows are lost: {error}")
            return 0
        self.spooled = len(rows)
        self._say(f"ledger: {len(rows)} rows are kept in {self._spool.folder}, for the next start to bill")
        return self.spooled

    def _leave_ledger(self) -> None:
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            ledger.close()
