"""One way of delivery: a thread that takes notices in order and tries each until it is through or hopeless."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.adapters.alerts.notice import Notice

ATTEMPTS = 12
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 300.0
"""Between attempts, doubled each time: an alert is given up after some twenty minutes. Retry-After is kept to."""

MOST_WAITING = 1_000


class NotNow(Exception):
    """It may go through later; ``wait_s`` is what the receiver asked for."""

    def __init__(self, why: str, *, wait_s: float | None = None) -> None:
        super().__init__(why)
        self.wait_s = wait_s


class GiveUp(Exception):
    """It will not go through, however often it is tried."""


class Channel(Protocol):
    """A webhook, or a mail server. ``name`` says which, without secrets."""

    name: str

    def deliver(self, notice: Notice) -> None:
        """Once. Raises NotNow or GiveUp."""


class Delivery:
    """The queue of one channel.

    Args:
        say: words for the operator.
        pause: waits so many seconds; True means that it is over. For tests.
    """

    def __init__(
        self, channel: Channel, *, say: Callable[[str], None], pause: Callable[[float], bool] | None = None
    ) -> None:
        self._channel, self._say = channel, say
        self.name = channel.name
        self._over = threading.Event()
        self._pause = pause or self._over.wait
        self._waiting: deque[Notice] = deque()
        self._changed = threading.Condition()
        self._busy = False
        self._thread: threading.Thread | None = None
        self.delivered = self.failed = 0

    def put(self, notice: Notice) -> None:
        """Queue it and return at once. Where a thousand wait the oldest is given up."""
        with self._changed:
            if self._over.is_set():
                return
            if len(self._waiting) >= MOST_WAITING:
                self._waiting.popleft()
                self.failed += 1
            self._waiting.append(notice)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._channel.name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Whether everything was delivered or given up within the time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Let what waits go out within the time, and give the rest up."""
        self.wait_until_idle(timeout_s)
        with self._changed:
            self._over.set()
            lost = len(self._waiting) + self._busy
            self._waiting.clear()
            self._changed.notify_all()
        if lost:
            self._say(f"{self._channel.name}: {lost} alerts were not delivered, since the gateway ends")

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._over.is_set())
                if self._over.is_set():
                    return
                notice, self._busy = self._waiting.popleft(), True
            try:
                through = self._through(notice)
            except Exception as error:  # an alert must not end the thread that brings the next one
                through = self._lost(notice, f"{type(error).__name__}: {error}")
            with self._changed:
                self.delivered += through
                self.failed += not through
                self._busy = False
                self._changed.notify_all()

    def _through(self, notice: Notice) -> bool:
        pause_s, why = FIRST_PAUSE_S, ""
        for attempt in range(ATTEMPTS):
            try:
                self._channel.deliver(notice)
            except GiveUp as error:
                return self._lost(notice, str(error))
            except NotNow as error:
                why = str(error)
                wait_s = pause_s if error.wait_s is None else max(pause_s, error.wait_s)
                if attempt + 1 < ATTEMPTS and self._pause(min(wait_s, LONGEST_PAUSE_S)):
                    break
                pause_s *= 2
            else:
                return True
        return self._lost(notice, why)

    def _lost(self, notice: Notice, why: str) -> bool:
        self._say(f"{self._channel.name}: not delivered: {why}; the alert was: {notice.title}, {notice.figures}")
        return False
