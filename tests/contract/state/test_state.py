"""Tenants, keys and the audit trail, the same on SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from roadworthy.adapters.state.database import Database
from roadworthy.adapters.state.migrate import HEAD
from roadworthy.adapters.state.state import State, open_state
from roadworthy.adapters.state.tables import METADATA
from roadworthy.core.errors import SpecError, Unsupported
from roadworthy.route.keys import ApiKey, issued, revoked
from roadworthy.route.registry import AuditRow, ChangedMeanwhile, Registered, RegistryChange, TenantRow

PEPPER = b"p" * 32
NOW_S = 1_790_000_000.25


@pytest.fixture
def state(state_url: str) -> Iterator[State]:
    opened = open_state(state_url)
    yield opened
    opened.close()


def key(number: int, **more: object) -> ApiKey:
    whose: dict[str, object] = {"tenant_id": "acme"} | more
    made = issued(number.to_bytes(8, "big"), b"s" * 32, pepper=PEPPER, created_s=NOW_S, **whose)  # type: ignore[arg-type]
    return made.key


def audit(action: str = "tenant.edit", **more: object) -> AuditRow:
    values = {"at_s": NOW_S, "who": "key:abc (ops)", "role": "admin", "address": "127.0.0.1", "action": action}
    return AuditRow(**(values | {"subject": "tenant:acme"} | more))  # type: ignore[arg-type]


def together(work: Callable[[int], object], times: int) -> list[object]:
    """``work`` on so many threads, all let go at once; what each returned, or raised."""
    gate = threading.Barrier(times)

    def one(at: int) -> object:
        gate.wait()
        try:
            return work(at)
        except Exception as error:
            return error

    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(one, range(times)))


def test_the_migrations_make_exactly_the_tables_that_the_code_knows(state: State, state_url: str) -> None:
    database = Database(state_url)
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        ours = [one for one in compare_metadata(context, METADATA) if "roadworthy_meter" not in str(one)]
    database.close()
    assert ours == []


def test_the_version_that_skips_alembic_is_alembics_own_head() -> None:
    config = Config()
    config.set_main_option("script_location", "roadworthy.adapters.state:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_many_that_open_an_empty_state_at_once_all_find_its_tables(state_url: str) -> None:
    def opened(_at: int) -> Registered:
        state = open_state(state_url)
        try:
            return state.load()
        finally:
            state.close()

    assert together(opened, 6) == [Registered()] * 6


def test_tables_of_a_later_version_are_left_alone(state: State, state_url: str) -> None:
    database = Database(state_url)
    with database.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(SpecError, match="version 9999, this roadworthy knows up to"):
        open_state(state_url)


def test_what_was_applied_is_loaded_by_the_next_process(state: State, state_url: str) -> None:
    tenants = (
        TenantRow(id="acme", definition=MappingProxyType({"adds": True, "fields": {"weight": 2.5, "name": "Ünïcode"}})),
        TenantRow(id="gone", definition=None, version=7),
    )
    keys = (
        replace(key(1, scopes=("trusted-caller",), label="batch ü"), expires_s=NOW_S + 5, replaced_by="x"),
        key(2, tenant_id=None, role="viewer"),
    )
    assert state.apply(RegistryChange(tenants=tenants, keys=keys), audit()) == 1
    other = open_state(state_url)
    found = other.load()
    assert found.revision == other.revision() == 1
    other.close()
    assert {one.id: one for one in found.keys} == {one.id: one for one in keys}
    assert [(one.id, one.definition and dict(one.definition), one.version) for one in found.tenants] == [
        ("acme", {"adds": True, "fields": {"weight": 2.5, "name": "Ünïcode"}}, 1),
        ("gone", None, 7),
    ]


def test_an_upsert_replaces_and_a_drop_forgets(state: State) -> None:
    first = key(1)
    state.apply(RegistryChange(tenants=(TenantRow(id="a", definition={}), TenantRow(id="b", definition={}))), audit())
    state.apply(RegistryChange(keys=(first,)), audit())
    over = revoked(first, NOW_S + 1)
    change = RegistryChange(tenants=(TenantRow(id="a", definition=None, version=2),), dropped=("b", "c"), keys=(over,))
    assert state.apply(change, audit()) == 3
    found = state.load()
    assert found.keys == (over,)
    assert [(one.id, one.definition, one.version) for one in found.tenants] == [("a", None, 2)]


def test_a_change_worked_out_for_an_older_revision_writes_nothing(state: State) -> None:
    state.apply(RegistryChange(tenants=(TenantRow(id="a", definition={}),)), audit(), expect=0)
    with pytest.raises(ChangedMeanwhile):
        state.apply(RegistryChange(tenants=(TenantRow(id="b", definition={}),)), audit(), expect=0)
    assert [one.id for one in state.load().tenants] == ["a"]
    assert len(state.audit_rows(limit=10)) == 1


def test_of_many_that_change_one_revision_one_wins(state: State) -> None:
    def change(at: int) -> int:
        return state.apply(RegistryChange(tenants=(TenantRow(id=f"t{at}", definition={}),)), audit(), expect=0)

    outcomes = together(change, 6)
    assert sorted(str(type(one).__name__) for one in outcomes) == ["ChangedMeanwhile"] * 5 + ["int"]
    assert len(state.load().tenants) == state.revision() == len(state.audit_rows(limit=10)) == 1


def test_changes_without_an_expectation_all_count(state: State) -> None:
    outcomes = together(lambda at: state.apply(RegistryChange(keys=(key(at),)), audit()), 6)
    assert sorted(outcomes) == [1, 2, 3, 4, 5, 6]  # type: ignore[type-var]


def test_a_drain_is_audited_and_changes_no_revision(state: State) -> None:
    assert state.apply(RegistryChange(), audit("engine.drain", subject="engine:http://e")) == 0
    assert [row.action for row in state.audit_rows(limit=5)] == ["engine.drain"]


def test_the_trail_is_read_newest_first_page_by_page_and_by_subject(state: State) -> None:
    for at in range(7):
        subject = "key:k" if at % 3 == 0 else "tenant:acme"
        state.apply(RegistryChange(), audit(f"a{at}", subject=subject, before={"rpm": at}, after=None))
    page = state.audit_rows(limit=3)
    assert [row.action for row in page] == ["a6", "a5", "a4"]
    assert [row.action for row in state.audit_rows(limit=9, before=page[-1].id)] == ["a3", "a2", "a1", "a0"]
    assert [row.action for row in state.audit_rows(limit=9, subject="key:k")] == ["a6", "a3", "a0"]
    assert (page[0].before, page[0].after, page[0].at_s) == ({"rpm": 6}, None, NOW_S)


def test_a_secret_is_made_once_whoever_asks(state: State, state_url: str) -> None:
    other = open_state(state_url)
    asked = together(lambda at: (state, other)[at % 2].secret("pepper"), 6)
    assert len(set(asked)) == 1
    assert len(asked[0]) == 32  # type: ignore[arg-type]
    assert state.secret("other") != asked[0]
    other.close()


def test_no_digest_or_password_shows(state: State, state_url: str) -> None:
    state.apply(RegistryChange(keys=(key(1),)), audit())
    assert "digest" not in repr(state.load().keys)
    assert Database("postgresql://ops:hunter2@db:5432/x").place == "postgresql://ops:***@db:5432/x"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://u@h/d", "mysql:// is not known, wanted sqlite:///FILE or postgresql://"),
        ("roadworthy.db", "not a URL"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite://host/file", "names no file"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_with_the_ones_that_can(url: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        open_state(url)
    assert caught.value.hint


def test_a_missing_driver_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(Unsupported, match="psycopg") as caught:
        open_state("postgresql://u@h/d")
    assert "roadworthy[postgres]" in caught.value.hint


def test_sqlite_flushes_what_was_billed_and_readers_never_wait(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    open_state(url).close()
    with sqlite3.connect(tmp_path / "state.db") as file:
        assert file.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    file.close()
    database = Database(url)
    with database.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    with database.writing() as writer, database.reading() as reader:
        writer.execute(sa.text("UPDATE registry_revision SET revision = 5"))
        assert reader.execute(sa.text("SELECT revision FROM registry_revision")).scalar() == 0
    database.close()
