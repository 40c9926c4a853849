"""Limits on a database: a SQLite file for the workers of one host, PostgreSQL for several.

One thread works on the connection, so that no event loop waits for a lock or a disk; what is asked meanwhile goes into
the next transaction together.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from roadworthy.adapters.state import sql_steps
from roadworthy.adapters.state.trouble import trouble
from roadworthy.core.errors import RoadworthyError, Temporary

if TYPE_CHECKING:
    from roadworthy.adapters.state.meter import Reply
    from roadworthy.route.govern.values import Charge, Grant, Limits

MOST_TOGETHER = 64
"""Steps of one transaction."""


class Session(sql_steps.Connection, Protocol):
    """One connection that can begin and end transactions."""

    place: str
    breaks: bool
    """Whether it may end by itself while it is idle, as a connection to a server does."""

    def open(self) -> None: ...
    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def interrupt(self) -> None:
        """Make a statement that waits fail; called from another thread."""

    def close(self) -> None: ...


class _Asked:
    """A step, by the tenant it is about, and who waits for its reply."""

    __slots__ = ("answer", "loop", "step", "tenant_id")

    def __init__(self, tenant_id: str, step: Callable[[sql_steps.Connection], Reply]) -> None:
        self.tenant_id, self.step = tenant_id, step
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Reply] = self.loop.create_future()


class SqlStore:
    """The five steps on the database at ``url``; see ``sql_session`` for what may be asked of it.

    Args:
        url: ``sqlite:///FILE`` (the limits are kept in ``FILE.limits`` beside it) or ``postgresql://…``.
        clock: microseconds of the epoch in place of the store's own time, for tests.

    Raises:
        SpecError: the URL cannot be used. Unsupported: its driver is not installed.
    """

    def __init__(self, url: str, *, clock: Callable[[], int] | None = None) -> None:
        from roadworthy.adapters.state.sql_session import session_at

        self._session = session_at(url, clock)
        self._asked: deque[_Asked] = deque()
        self._told = threading.Condition()
        self._open = False
        self._stop = False
        self._thread: threading.Thread | None = None

    def acquire(
        self, lease_id: str, charge: Charge, limits: Limits, *, ttl_us: int, seed: int
    ) -> asyncio.Future[Reply]:
        return self._ask(
            charge.tenant_id, lambda on: sql_steps.acquire(on, lease_id, charge, limits, ttl_us=ttl_us, seed=seed)
        )

    def settle(self, tenant_id: str, lease_id: str, tokens: int) -> asyncio.Future[Reply]:
        return self._ask(tenant_id, lambda on: sql_steps.settle(on, tenant_id, lease_id, tokens))

    def renew(self, tenant_id: str, grants: Sequence[Grant], *, ttl_us: int, seed: int) -> asyncio.Future[Reply]:
        return self._ask(
            tenant_id, lambda on: sql_steps.renew(on, tenant_id, grants, ttl_us=ttl_us, seed=seed)
        )  # fmt: skip

    def held(self, tenant_id: str, *, seed: int) -> asyncio.Future[Reply]:
        return self._ask(tenant_id, lambda on: sql_steps.held(on, tenant_id, seed=seed))

    def probe(self) -> asyncio.Future[Reply]:
        return self._ask("", lambda on: [on.now_us()])

    async def give_up(self) -> None:
        with self._told:
            lost = [*self._asked]
            self._asked.clear()
        self._session.interrupt()
        for one in lost:
            if not one.answer.done():
                one.answer.set_exception(Temporary(f"{self._session.place}: no answer"))
                one.answer.exception()  # who asked may be gone, and that is no mistake

    async def close(self) -> None:
        with self._told:
            self._stop = True
            self._told.notify()
        thread = self._thread
        if thread is not None:
            self._session.interrupt()
            await asyncio.to_thread(thread.join, 5.0)

    def _ask(self, tenant_id: str, step: Callable[[sql_steps.Connection], Reply]) -> asyncio.Future[Reply]:
        asked = _Asked(tenant_id, step)
        with self._told:
            self._asked.append(asked)
            self._told.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="limits", daemon=True)
            self._thread.start()
        return asked.answer

    def _run(self) -> None:
        while together := self._next():
            replies = self._answers(together)
            for one, reply in zip(together, replies, strict=True):
                try:
                    one.loop.call_soon_threadsafe(_tell, one.answer, reply)
                except RuntimeError:
                    continue  # the loop is closed: nobody waits
        self._session.close()

    def _next(self) -> list[_Asked]:
        """Steps for one transaction, none when it is time to stop. Ordered by tenant, and for each as they were asked:
        two processes that lock several tenants do so in the same order."""
        together: list[_Asked] = []
        while not together:
            with self._told:
                while not self._asked and not self._stop:
                    self._told.wait()
                if self._stop:
                    return []
                taken = [self._asked.popleft() for _ in range(min(MOST_TOGETHER, len(self._asked)))]
            # nobody waits any more for one that took too long, and it must not be done behind their back
            together = sorted((one for one in taken if not one.answer.done()), key=lambda one: one.tenant_id)
        return together

    def _answers(self, together: Sequence[_Asked]) -> list[Reply | Exception]:
        """The replies, or errors in their place. A connection that broke on the way is mended once, since every step
        may be asked again; and a step that no store can take does not hold up the others."""
        try:
            return self._transaction(together)
        except Exception as error:
            broken = self._session.breaks and not self._open
            if (len(together) == 1 and not broken) or not (self._open or broken):
                return [self._told_error(error)] * len(together)
        replies: list[Reply | Exception] = []
        for one in together:
            if one.answer.done():  # who asked did not wait so long
                replies.append([])
                continue
            try:
                replies += self._transaction([one])
            except Exception as error:
                replies.append(self._told_error(error))
        return replies

    def _transaction(self, together: Sequence[_Asked]) -> list[Reply | Exception]:
        """All of it or nothing. A connection that broke while it was idle is opened anew, once."""
        session = self._session
        for fresh in (not self._open or not session.breaks, True):
            try:
                if not self._open:
                    session.open()
                    self._open = True
                session.begin()
            except Exception:
                if not self._open or session.breaks:
                    self._drop()
                if fresh:
                    raise
                continue
            break
        try:
            replies: list[Reply | Exception] = [one.step(session) for one in together]
            session.commit()
        except Exception:
            self._undo()
            raise
        return replies

    def _undo(self) -> None:
        try:
            self._session.rollback()
        except Exception:
            self._drop()

    def _drop(self) -> None:
        self._open = False
        self._session.close()

    def _told_error(self, error: Exception) -> Exception:
        return error if isinstance(error, RoadworthyError) else trouble(self._session.place, error)


def _tell(answer: asyncio.Future[Reply], reply: Reply | Exception) -> None:
    if answer.done():
        return
    if isinstance(reply, Exception):
        answer.set_exception(reply)
    else:
        answer.set_result(reply)
