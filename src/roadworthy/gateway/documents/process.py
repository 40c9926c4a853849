"""The documents' process as the gateway's command sees it: started, watched, started again, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from roadworthy.core.errors import ProbeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.spec.gateway_values import DocumentsSpec

MODULE = "roadworthy.cli.documents_process"

START_S = 60.0
STOP_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
"""Between its death and its successor, growing while successors die too."""


class DocumentsProcess:
    """One process for one home, whatever number of workers pass requests on to it.

    Args:
        gateway_url: where its questions find the data port.
        say: words for the operator.
    """

    def __init__(self, spec: DocumentsSpec, gateway_url: str, *, say: Callable[[str], None]) -> None:
        self._spec, self._url, self._say = spec, spec.gateway_url or gateway_url, say
        self._process: subprocess.Popen[bytes] | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Return once it serves. Raises ProbeError, with what it said, where it does not come to that."""
        await self._started()
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Unfinished work is taken up at the next start."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                await asyncio.to_thread(process.wait, STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                await asyncio.to_thread(process.wait)
        self._process = None

    async def restart(self) -> None:
        """Run the program that is on disk now; what is in progress is taken up again. Raises ProbeError."""
        await self.stop()
        await self.start()

    async def _started(self) -> None:
        process = self._process = subprocess.Popen(  # noqa: ASYNC220 - a fork and exec, some milliseconds
            [sys.executable, "-P", "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        task = json.dumps({"spec": asdict(self._spec), "gateway_url": self._url}).encode()
        try:
            async with asyncio.timeout(START_S):
                answer = await asyncio.to_thread(_first_line, process, task)
        except TimeoutError:
            process.kill()
            answer = b'{"problem": "it did not start in time", "hint": ""}'
        try:
            told = json.loads(answer)
        except ValueError:
            told = {"problem": f"it ended with exit code {await asyncio.to_thread(process.wait)}", "hint": ""}
        if "problem" in told:
            await asyncio.to_thread(process.wait)
            raise ProbeError(f"gateway.documents: {told['problem']}", hint=told["hint"])

    async def _watch(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            process = self._process
            assert process is not None
            code = await _ended(process)
            self._say(f"the documents' process died (exit code {code}): starting another")
            await asyncio.sleep(pause_s)
            try:
                await self._started()
            except ProbeError as error:
                self._say(str(error))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                pause_s = FIRST_PAUSE_S


async def _ended(process: subprocess.Popen[bytes]) -> int:
    while (code := process.poll()) is None:  # noqa: ASYNC110 - a child has no event to wait for
        await asyncio.sleep(0.2)
    return code


def _first_line(process: subprocess.Popen[bytes], task: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(task)
    with process.stdout:
        return process.stdout.readline()
