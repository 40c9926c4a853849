"""The process of one gateway worker, started by its supervisor: ``python -m roadworthy.cli.gateway_worker``."""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import socket
import sys

from roadworthy.adapters.event_loop import loop_factory, raise_descriptor_limit
from roadworthy.cli.gateway_setup import Options
from roadworthy.cli.gateway_stores import worker_stores
from roadworthy.cli.output import say
from roadworthy.gateway.workers.child import Worker
from roadworthy.gateway.workers.share import divided


def main(arguments: list[str]) -> None:
    """Serve until the supervisor says stop, or is gone."""
    parser = argparse.ArgumentParser(prog="gateway_worker")
    parser.add_argument("index", type=int)
    parser.add_argument("link_fd", type=int)
    parser.add_argument("data_fd", type=int)
    options, found = Options.parse(parser, arguments)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR2"):  # a terminal sends them to everyone: only the
        signal.signal(getattr(signal, name), signal.SIG_IGN)  # supervisor decides
    raise_descriptor_limit()
    data_socket = socket.socket(fileno=found.data_fd)
    data_socket.setblocking(False)
    worker = Worker(
        str(found.index),
        data_socket,
        lambda text: divided(options.configure(text), found.index),
        lambda config: worker_stores(config, say=say),
    )
    gc.set_threshold(10_000, 20, 50)  # a request makes no cycles: looking for them often finds nothing
    gc.freeze()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(worker.run(socket.socket(fileno=found.link_fd)))


if __name__ == "__main__":
    main(sys.argv[1:])
