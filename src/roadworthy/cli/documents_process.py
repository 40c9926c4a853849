"""The process that serves documents, started by a gateway: ``python -m roadworthy.cli.documents_process``.

It is told on stdin what to serve, says on stdout that it serves, and ends with the gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from roadworthy.adapters.embeddings import numpy_on_one_core
from roadworthy.adapters.event_loop import loop_factory
from roadworthy.adapters.processes import end_with_parent
from roadworthy.cli.output import say
from roadworthy.core.errors import RoadworthyError
from roadworthy.spec.gateway_values import DocumentsSpec

if TYPE_CHECKING:
    from pathlib import Path

THREADS = 32
QUESTIONS = 64
"""Threads for questions, each of which waits for a model most of the time."""


def main() -> None:
    """Serve until told to stop."""
    end_with_parent()
    numpy_on_one_core()
    os.umask(0o077)
    told = json.loads(sys.stdin.read())
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(DocumentsSpec(**told["spec"]), told["gateway_url"]))
    except RoadworthyError as error:
        _answer({"problem": str(error), "hint": error.hint})
        sys.exit(error.exit_code)


async def _serve(spec: DocumentsSpec, gateway_url: str) -> None:
    from pathlib import Path

    from roadworthy.adapters.library.service import Library
    from roadworthy.gateway.admin.server import AdminServer
    from roadworthy.gateway.documents.app import documents_app
    from roadworthy.gateway.documents.place import private_folder, socket_of

    assert spec.home is not None
    place = socket_of(Path(spec.home))
    private_folder(place.parent)
    library = Library(spec, gateway_url=gateway_url, say=say)
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="documents")
    questions = ThreadPoolExecutor(QUESTIONS, thread_name_prefix="question")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    try:
        server = AdminServer(documents_app(library, pool, questions), _listening(place))
        await server.start()
        _answer({"serving": str(place)})
        await stop.wait()
        await server.stop()
    finally:
        place.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            place.parent.rmdir()
        library.close()  # another may serve the home from here on
    os._exit(0)  # questions in progress wait for a model on threads that nobody waits for


def _listening(place: Path) -> socket.socket:
    """The home's lock is held: a socket that is there is a dead process's."""
    place.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(place))
    listening.listen(1024)
    listening.setblocking(False)
    return listening


def _answer(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
