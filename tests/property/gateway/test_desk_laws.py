"""Whatever administrators do, and whatever fails meanwhile: the gateways have in force what a simple model says, a
restart gives the same, and there is an audit row for each change and for nothing else."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from typing import Any

import httpx
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fakes.governed import FakeGoverned, FlakyRegistry
from roadworthy.gateway.admin.app import admin_app
from roadworthy.gateway.admin.desk import Desk
from roadworthy.route.keys import id_in
from roadworthy.spec.values import Tenant
from support.admin import BOOTSTRAP, Clock

IDS = st.sampled_from(["a", "b", "c", "d"])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "rpm": st.sampled_from([1, 5, None]),
        "weight": st.sampled_from([1.0, 2.5, None]),
        "models": st.sampled_from([["m"], ["m", "n"], [], None]),
    },
)
ATTRIBUTES = {"rpm": "requests_per_minute", "weight": "weight", "models": "models"}
DEFAULTS: dict[str, Any] = {"rpm": None, "weight": 1.0, "models": ()}


def applied(tenant: Tenant, fields: dict[str, Any]) -> Tenant:
    """The model's word for an edit."""
    for name, value in fields.items():
        said = DEFAULTS[name] if value is None else value
        tenant = replace(tenant, **{ATTRIBUTES[name]: tuple(said) if isinstance(said, list) else said})
    return tenant


class Administration(RuleBasedStateMachine):
    """Two gateways on one registry; ``at`` picks the one that is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.registry, self.clock = FlakyRegistry(), Clock()
        self.views: list[FakeGoverned] = []
        self.desks: list[Desk] = []
        self.document: dict[str, Tenant] = {}
        self.added: set[str] = set()
        self.edits: dict[str, dict[str, Any]] = {}
        self.removed: set[str] = set()
        self.ends: dict[str, float | None] = {}  # of every key, when it stops to open
        self.owner: dict[str, str] = {}
        self.changes = self.drawn = 0
        self.unwritten: set[tuple[int, str]] = set()

    def teardown(self) -> None:
        for desk in self.desks:
            self.loop.run_until_complete(desk.close())
        self.loop.close()

    @initialize(ids=st.sets(IDS))
    def start(self, ids: set[str]) -> None:
        self.document = {one: Tenant(id=one, key=f"sk-{one}", weight=3.0) for one in ids}
        for _ in range(2):
            self._open()

    def _random(self, count: int) -> bytes:
        self.drawn += 1
        return hashlib.shake_256(str(self.drawn).encode()).digest(count)

    def _open(self) -> None:
        view = FakeGoverned(document=tuple(self.document.values()))
        desk = Desk(
            pepper=b"p" * 32, registry=self.registry, bootstrap=BOOTSTRAP, now_s=self.clock, random=self._random
        )
        self.loop.run_until_complete(desk.open(view))
        self.views.append(view)
        self.desks.append(desk)

    def _ask(self, at: int, method: str, path: str, body: Any = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(admin_app(lambda: self.views[at], self.desks[at]))
            headers = {"Authorization": f"Bearer {BOOTSTRAP}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as admin:
                return await admin.request(method, path, json=body)

        answer = self.loop.run_until_complete(ask())
        assert answer.status_code != 500, answer.text
        if method != "GET" and answer.status_code < 300:
            self.changes += 1
        return answer

    # the model

    def expected(self) -> dict[str, Tenant]:
        found = {}
        for one in (self.document.keys() | self.added) - self.removed:
            base = self.document.get(one) or Tenant(id=one)
            found[one] = applied(base, self.edits.get(one, {}))
        return found

    def works(self, at: int) -> bool:
        return not self.registry.down and not self.views[at].refuses

    # what administrators do

    @rule(at=st.sampled_from([0, 1]), tenant=IDS, fields=FIELDS)
    def add(self, at: int, tenant: str, fields: dict[str, Any]) -> None:
        exists = tenant in self.expected()
        answer = self._ask(at, "POST", "/api/tenants", {"id": tenant, **fields})
        if answer.status_code == 201:
            assert not exists
            self.removed.discard(tenant)
            self.edits[tenant] = dict(fields)
            if tenant not in self.document:
                self.added.add(tenant)
        else:
            assert exists or not self.works(at)

    @rule(at=st.sampled_from([0, 1]), tenant=IDS, fields=FIELDS)
    def edit(self, at: int, tenant: str, fields: dict[str, Any]) -> None:
        exists = tenant in self.expected()
        answer = self._ask(at, "PATCH", f"/api/tenants/{tenant}", fields)
        if answer.status_code == 200:
            assert exists
            assert fields
            self.edits.setdefault(tenant, {}).update(fields)
            if tenant not in self.document:
                self.added.add(tenant)
        else:
            assert not exists or not fields or not self.works(at)

    @rule(at=st.sampled_from([0, 1]), tenant=IDS)
    def remove(self, at: int, tenant: str) -> None:
        answer = self._ask(at, "DELETE", f"/api/tenants/{tenant}")
        if answer.status_code == 200:
            self.removed.add(tenant)
            self.added.discard(tenant)
            self.edits.pop(tenant, None)
            for key_id, owner in self.owner.items():
                if owner == tenant:
                    self._end(key_id, self.clock.now_s)

    @rule(at=st.sampled_from([0, 1]), tenant=IDS)
    def reset(self, at: int, tenant: str) -> None:
        answer = self._ask(at, "POST", f"/api/tenants/{tenant}/reset")
        if answer.status_code == 200:
            self.removed.discard(tenant)
            self.added.discard(tenant)
            self.edits.pop(tenant, None)

    @rule(at=st.sampled_from([0, 1]), tenant=IDS, expires_in_s=st.sampled_from([None, 10]))
    def create_key(self, at: int, tenant: str, expires_in_s: int | None) -> None:
        answer = self._ask(at, "POST", f"/api/tenants/{tenant}/keys", {"expires_in_s": expires_in_s})
        if answer.status_code == 201:
            made = answer.json()["key"]["id"]
            assert id_in(answer.json()["secret"]) == made
            self.owner[made] = tenant
            self.ends[made] = None if expires_in_s is None else self.clock.now_s + expires_in_s

    @precondition(lambda self: self.owner)
    @rule(at=st.sampled_from([0, 1]), data=st.data(), overlap_s=st.sampled_from([0, 5]))
    def rotate(self, at: int, data: st.DataObject, overlap_s: int) -> None:
        key_id = data.draw(st.sampled_from(list(self.owner)))
        answer = self._ask(at, "POST", f"/api/keys/{key_id}/rotate", {"overlap_s": overlap_s})
        if answer.status_code == 201:
            new = answer.json()["key"]["id"]
            self.owner[new], self.ends[new] = self.owner[key_id], None
            self._end(key_id, self.clock.now_s + overlap_s)

    @precondition(lambda self: self.owner)
    @rule(at=st.sampled_from([0, 1]), data=st.data())
    def revoke(self, at: int, data: st.DataObject) -> None:
        key_id = data.draw(st.sampled_from(list(self.owner)))
        answer = self._ask(at, "POST", f"/api/keys/{key_id}/revoke")
        if answer.status_code == 200:
            self._end(key_id, self.clock.now_s)
        elif "in force at this gateway" in answer.text:
            self._end(key_id, self.clock.now_s)
            self.unwritten.add((at, key_id))

    def _end(self, key_id: str, at_s: float) -> None:
        before = self.ends[key_id]
        self.ends[key_id] = at_s if before is None else min(before, at_s)

    # what happens meanwhile

    @rule(seconds=st.sampled_from([1, 6]))
    def time_passes(self, seconds: int) -> None:
        self.clock.now_s += seconds

    @rule(ids=st.sets(IDS), weight=st.sampled_from([3.0, 4.0]))
    def documents_change(self, ids: set[str], weight: float) -> None:
        """Every gateway reads its document again, whether the registry can be reached or not."""
        differs = {one: Tenant(id=one, key=f"sk-{one}", weight=weight) for one in ids} != self.document
        self.document = {one: Tenant(id=one, key=f"sk-{one}", weight=weight) for one in ids}
        for view, desk in zip(self.views, self.desks, strict=True):
            if view.refuses:
                view.refuses = ""
            view.document = tuple(self.document.values())
            for tenant in [*view.tenants]:
                del view.tenants[tenant]
            view.tenants.update(self.document)  # what a reload alone puts into force
            self.loop.run_until_complete(desk.reloaded())
            self.changes += differs and not self.registry.down

    @rule(down=st.sampled_from(["", "", "gone"]))
    def database(self, down: str) -> None:
        self.registry.down = down

    @rule(at=st.sampled_from([0, 1]), refuses=st.sampled_from(["", "", "too small a share"]))
    def gateway_can_use_it(self, at: int, refuses: str) -> None:
        self.views[at].refuses = refuses

    @precondition(lambda self: not self.registry.down and not self.views[0].refuses)
    @rule()
    def restart(self) -> None:
        self.loop.run_until_complete(self.desks[0].close())
        del self.views[0], self.desks[0]
        self._open()

    # what must hold

    @invariant()
    def the_gateways_have_in_force_what_the_model_says(self) -> None:
        if not self.views or self.registry.down or any(one.refuses for one in self.views):
            return
        expected = self.expected()
        open_keys = {key_id for key_id, end_s in self.ends.items() if (end_s is None or self.clock.now_s < end_s)}
        for desk in [*self.desks, *self.desks]:  # one may write what the other then sees
            self.loop.run_until_complete(desk.notice())
        self.changes += len(self.unwritten)
        self.unwritten.clear()
        assert len(self.registry.inner.audit_rows(limit=10_000)) == self.changes
        for view in self.views:
            assert view.tenants == expected
            told = {one.id for one in view.keys.values() if one.usable(self.clock.now_s)}
            assert told == open_keys


TestAdministration = Administration.TestCase
TestAdministration.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
