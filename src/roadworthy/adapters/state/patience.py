"""A psycopg connection that stops waiting.

``statement_timeout`` is the server's to keep. A server that is frozen keeps nothing, acknowledges what it is sent, and
would be waited for without end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Generator
from typing import Any

import psycopg


class PatientConnection(psycopg.Connection[Any]):
    """Waits ``answer_timeout_s`` for each answer; then it is closed, and the statement an OperationalError."""

    answer_timeout_s = 15.0

    def wait(self, gen: Any, *arguments: Any, **named: Any) -> Any:
        return super().wait(self._limited(gen), *arguments, **named)

    def _limited(self, steps: Any) -> Generator[Any, Any, Any]:
        """``steps`` as they are, until the time is over. Ten times a second psycopg tells them that nothing came."""
        over_s = time.monotonic() + self.answer_timeout_s
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > over_s:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {self.answer_timeout_s:g} s")
                wanted = steps.send(ready)
        except StopIteration as done:
            return done.value


def connect(url: str, *, answer_timeout_s: float, **arguments: Any) -> PatientConnection:
    """A connection to ``url``; ``arguments`` are libpq's and psycopg's. Raises psycopg.Error."""
    connection = PatientConnection.connect(url, **arguments)
    connection.answer_timeout_s = answer_timeout_s
    return connection


def shut(connection: psycopg.Connection[Any]) -> None:
    """Make whoever waits on ``connection`` stop waiting at once; called from another thread."""
    with contextlib.suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)
