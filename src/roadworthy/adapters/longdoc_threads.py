"""Requests that are waited for on threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def begun(work: Callable[[], Result]) -> Future[Result]:
    """``work`` on a thread that does not outlive an interrupted command, as a pool's threads would."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
