"""The state in any order of steps, against dictionaries; opened anew at any moment, by several at once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from roadworthy.adapters.state.database import Database
from roadworthy.adapters.state.state import State, open_state
from roadworthy.adapters.state.tables import METADATA
from roadworthy.route.keys import ApiKey, issued
from roadworthy.route.ledger import LedgerRow
from roadworthy.route.registry import AuditRow, ChangedMeanwhile, RegistryChange, TenantRow

TENANTS, MODELS = st.sampled_from("abc"), st.sampled_from("xy")
DAYS_S = st.sampled_from([0.0, 86_399.999, 86_400.0, 1_790_000_000.5])
ROWS = st.builds(
    LedgerRow,
    request_id=st.integers(0, 40).map(str),
    tenant_id=TENANTS,
    model=MODELS,
    started_s=DAYS_S,
    prompt_tokens=st.integers(0, 10**6),
    cached_tokens=st.integers(0, 10),
    output_tokens=st.integers(0, 10**6),
)
DEFINITIONS = st.one_of(
    st.none(), st.dictionaries(st.text(max_size=3).filter(lambda text: "\0" not in text), st.integers(), max_size=2)
)


def key(number: int, *, revoked: bool) -> ApiKey:
    made = issued(number.to_bytes(8, "big"), b"s" * 32, pepper=b"p" * 32, created_s=1.0, tenant_id="a").key
    return (
        made if not revoked else ApiKey(**{**{name: getattr(made, name) for name in made.__slots__}, "revoked_s": 2.0})
    )


CHANGES = st.builds(
    RegistryChange,
    tenants=st.lists(
        st.builds(TenantRow, id=TENANTS, definition=DEFINITIONS, version=st.integers(1, 9)),
        max_size=2, unique_by=lambda one: one.id,
    ).map(tuple),
    dropped=st.lists(st.sampled_from("cde"), max_size=2).map(tuple),
    keys=st.lists(
        st.builds(key, st.integers(0, 3), revoked=st.booleans()), max_size=2, unique_by=lambda one: one.id
    ).map(tuple),
)  # fmt: skip


class StateMachine(RuleBasedStateMachine):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.states: list[State] = [open_state(url), open_state(url)]
        self.turn = 0
        self.tenants: dict[str, TenantRow] = {}
        self.keys: dict[str, ApiKey] = {}
        self.revision = 0
        self.trail: list[str] = []
        self.rows: dict[str, LedgerRow] = {}

    def one(self) -> State:
        """One of the two that share the database, by turns."""
        self.turn += 1
        return self.states[self.turn % 2]

    @rule(change=CHANGES, late_by=st.sampled_from([None, 0, 0, 1]))
    def apply(self, change: RegistryChange, late_by: int | None) -> None:
        action = f"a{len(self.trail)}"
        audit = AuditRow(at_s=1.0, who="w", role="admin", address="", action=action, subject="s", before={"at": action})
        expect = None if late_by is None else self.revision - late_by
        try:
            revision = self.one().apply(change, audit, expect)
        except ChangedMeanwhile:
            assert late_by == 1
            return
        assert not late_by
        self.trail.append(action)
        if change == RegistryChange():
            assert revision == self.revision
            return
        self.revision += 1
        assert revision == self.revision
        self.tenants.update({one.id: one for one in change.tenants})
        for tenant_id in change.dropped:
            self.tenants.pop(tenant_id, None)
        self.keys.update({one.id: one for one in change.keys})

    @rule(batch=st.lists(ROWS, max_size=8))
    def bill(self, batch: list[LedgerRow]) -> None:
        new = {row.request_id for row in batch} - self.rows.keys()
        assert self.one().write_ledger(batch) == len(new)
        for row in batch:
            self.rows.setdefault(row.request_id, row)

    @rule()
    def open_anew(self) -> None:
        self.states[0].close()
        self.states = [self.states[1], open_state(self.url)]

    @rule(
        tenant=st.one_of(st.none(), TENANTS),
        model=st.one_of(st.none(), MODELS),
        since_s=DAYS_S,
        limit=st.integers(1, 5),
    )
    def read_pages(self, tenant: str | None, model: str | None, since_s: float, limit: int) -> None:
        wanted = [
            row.request_id
            for row in sorted(self.rows.values(), key=lambda row: (row.started_s, row.request_id), reverse=True)
            if row.started_s >= since_s and tenant in (None, row.tenant_id) and model in (None, row.model)
        ]
        read: list[str] = []
        while page := self.one().ledger(
            since_s=since_s, until_s=2e9, tenant=tenant, model=model, limit=limit, before=read[-1] if read else None
        ):
            read += [row["request_id"] for row in page]
        assert read == wanted

    @invariant()
    def registry_is_what_was_applied(self) -> None:
        found = self.one().load()
        assert found.revision == self.revision == self.one().revision()
        assert {one.id: one for one in found.tenants} == self.tenants
        assert {one.id: one for one in found.keys} == self.keys
        trail = self.one().audit_rows(limit=10_000)
        assert [row.action for row in trail] == self.trail[::-1]
        assert all(row.before == {"at": row.action} for row in trail)

    @invariant()
    def sums_are_those_of_the_rows(self) -> None:
        sums: Counter[tuple[str, str, str]] = Counter()
        requests: Counter[tuple[str, str, str]] = Counter()
        for row in self.rows.values():
            sums[row.day, row.tenant_id, row.model] += row.prompt_tokens + row.output_tokens
            requests[row.day, row.tenant_id, row.model] += 1
        usage = self.one().usage(since_day="1970-01-01", until_day="2100-01-01")
        assert {(one.day, one.tenant, one.model): one.requests for one in usage} == dict(requests)
        assert {(one.day, one.tenant, one.model): one.prompt_tokens + one.output_tokens for one in usage} == {
            key: sums[key] for key in requests
        }

    def teardown(self) -> None:
        for state in self.states:
            state.close()
        database = Database(self.url)
        with database.writing() as connection:
            for table in METADATA.sorted_tables:
                if table.name != "registry_revision":
                    connection.execute(table.delete())
            connection.execute(sa.text("UPDATE registry_revision SET revision = 0"))
        database.close()


def test_every_order_of_steps_ends_where_the_dictionaries_end(state_url: str) -> None:
    asked: dict[str, Any] = {"max_examples": 8, "stateful_step_count": 12, "deadline": None}
    run_state_machine_as_test(
        lambda: StateMachine(state_url), settings=settings(suppress_health_check=list(HealthCheck), **asked)
    )
