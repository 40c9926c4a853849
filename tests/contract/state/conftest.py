"""Stores that the tests start themselves, once for a run; and a meter of each kind in virtual time."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.meters import KINDS, Bench
from support.stores import Server, redis_program, running_postgres, running_redis, valkey_program


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_redis(redis_program(), tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_redis(valkey_program(), tmp_path_factory.mktemp("valkey"), scheme="valkey") as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_database(postgres_server: Server) -> Iterator[str]:
    with postgres_server.database() as url:
        yield url


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test has used, since servers outlive tests."""
    return f"tenant-{uuid.uuid4().hex[:12]}"


def url_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """Where the store of that kind is; started when it is not."""
    if kind == "local":
        return ""
    if kind == "sqlite":
        return f"sqlite:///{folder}/state.db"
    server: Server = request.getfixturevalue(f"{kind}_server")
    return server.url


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A meter of each kind."""
    made = Bench(request.param, url_of(request.param, request, tmp_path))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(params=KINDS[1:])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A meter on each kind of store."""
    made = Bench(request.param, url_of(request.param, request, tmp_path))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(params=["sqlite", "postgres"])
def state_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/state.db"
        return
    import psycopg

    url = request.getfixturevalue("postgres_database")
    with psycopg.connect(url, autocommit=True) as connection:  # a tenth of what a new database takes
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    yield url
