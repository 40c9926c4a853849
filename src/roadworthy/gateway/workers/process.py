"""One worker as its supervisor sees it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import RoadworthyError
from roadworthy.gateway.workers.link import Link, LinkClosedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

START_S = 60.0
"""How long a worker may take until it serves."""

MODULE = "roadworthy.cli.gateway_worker"


class WorkerError(RoadworthyError):
    """A worker did not start; ``exit_code`` is its own."""

    def __init__(self, message: str, *, hint: str = "", exit_code: int = 3) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


class WorkerProcess:
    """A worker's process and the link to it.

    Args:
        index: which share of the limits is its.
        data_socket: which it accepts on; it stays open here.
        arguments: for the worker's module.
    """

    def __init__(self, index: int, data_socket: socket.socket, arguments: Sequence[str]) -> None:
        self.index = index
        self._data_socket = data_socket
        self._arguments = tuple(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._link = Link(_no_questions, self._gone)
        self.ended = asyncio.Event()
        self.retiring = False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int:
        """Of a process that ended; negative for a signal."""
        assert self._process is not None
        return self._process.wait()

    async def start(self, text: str, draining: Sequence[str], pepper: bytes, told: Mapping[str, Any]) -> None:
        """Return once it serves the document in ``text``. Raises WorkerError when it does not come to that.

        ``pepper`` is that of all workers: ids and salts of one must be those of the others, whatever documents came
        and went. ``told`` is what it has to know of tenants and keys beyond the document (``gateway.told``).
        """
        ours, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - a fork and exec, some milliseconds
                [
                    sys.executable, "-P", "-m", MODULE, str(self.index), str(its.fileno()),
                    str(self._data_socket.fileno()), *self._arguments,
                ],
                pass_fds=(its.fileno(), self._data_socket.fileno()),
                stdin=subprocess.DEVNULL,
                start_new_session=False,
                env=os.environ,
            )  # fmt: skip
        await self._link.open(ours)
        try:
            async with asyncio.timeout(START_S):
                answer = await self._link.ask(
                    "start", text=text, draining=list(draining), pepper=pepper.hex(), told=told
                )
        except (LinkClosedError, TimeoutError) as error:
            await self.kill()
            raise WorkerError(f"worker {self.index} did not start, exit code {self.exit_code}") from error
        if "problem" in answer:
            await self.kill()
            raise WorkerError(answer["problem"], hint=answer["hint"], exit_code=answer["exit_code"])

    async def ask(self, what: str, **more: Any) -> Any:
        """Raises LinkClosedError when it is gone."""
        return await self._link.ask(what, **more)

    async def kill(self) -> None:
        """End it now; for one that does not answer."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        self._link.close()
        await self._reap()

    async def _reap(self) -> None:
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)
        self.ended.set()

    def _gone(self) -> None:
        self._reaping = asyncio.get_running_loop().create_task(self._reap())


async def _no_questions(message: dict[str, Any]) -> Any:
    raise AssertionError(f"a worker asked {message}")
