"""Real stores, started by the tests themselves; a test of one that is not installed is skipped by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from storelab import servers
from storelab.servers import NotInstalled, Server, running_redis

__all__ = ("Server", "redis_program", "running_postgres", "running_redis", "valkey_program")


def _or_skip(look: Callable[[], str]) -> str:
    try:
        return look()
    except NotInstalled as error:
        pytest.skip(str(error))


def redis_program() -> str:
    return _or_skip(servers.redis_program)


def valkey_program() -> str:
    return _or_skip(servers.valkey_program)


@contextmanager
def running_postgres() -> Iterator[Server]:
    try:
        running = servers.running_postgres()
        server = running.__enter__()
    except NotInstalled as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        running.__exit__(None, None, None)
