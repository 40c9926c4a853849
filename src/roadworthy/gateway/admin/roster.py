"""Which tenants and keys are in force: what the document says, and what administrators said since.

An administrator's word goes before the document's, field by field: where a rate was edited the weight still follows the
document. A tenant that an administrator added is no document's; one that an administrator removed is hidden, whatever
the document says, until it is reset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from roadworthy.route.keys import Change
from roadworthy.spec.values import Tenant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from roadworthy.route.keys import ApiKey
    from roadworthy.route.registry import TenantRow

Source = Literal["document", "edited", "admin"]
"""Where a tenant comes from: the document as it is, the document with edits, or an administrator alone."""

_ATTRIBUTES = frozenset(one.name for one in fields(Tenant)) - {"id", "key", "key_env"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One tenant in force. ``edited`` are the attributes that an administrator fixed; ``version`` is 0 for a tenant
    of which no administrator said anything."""

    tenant: Tenant
    source: Source
    version: int
    edited: tuple[str, ...] = ()


def over(row: TenantRow, base: Tenant | None) -> Tenant | None:
    """The tenant that ``row`` makes of the document's; None when there is none."""
    if row.definition is None:
        return None
    said = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in row.definition.get("fields", {}).items()
        if name in _ATTRIBUTES  # a newer version may have written more
    }
    if base is None:
        if not row.definition.get("adds"):
            return None
        base = Tenant(id=row.id)
    return replace(base, **_with_defaults(said))


def _with_defaults(said: Mapping[str, Any]) -> dict[str, Any]:
    """None takes a limit away; what has no None, such as a weight, goes back to its default."""
    defaults = {one.name: one.default for one in fields(Tenant)}
    return {name: defaults[name] if value is None else value for name, value in said.items()}


class Roster:
    """The document's tenants, rows and keys, put together. It does no I/O; every edit says what changed by it."""

    def __init__(
        self, document: Iterable[Tenant] = (), rows: Iterable[TenantRow] = (), keys: Iterable[ApiKey] = ()
    ) -> None:
        self._document = {one.id: one for one in document}
        self._rows = {one.id: one for one in rows}
        self._entries: dict[str, Entry] = {}
        self._keys: dict[str, ApiKey] = {}
        self._of_tenant: dict[str, dict[str, ApiKey]] = {}
        self._admin_keys: dict[str, ApiKey] = {}
        self._ids, self._key_ids = _Ordered(), _Ordered()
        for key in keys:
            self._remember(key)
        for tenant_id in self._document.keys() | self._rows.keys():
            self._judge(tenant_id)
        self._ids.fill(self._entries)
        self._key_ids.fill(self._keys)

    # what it tells

    def entry(self, tenant_id: str) -> Entry | None:
        return self._entries.get(tenant_id)

    def entries(self) -> list[Entry]:
        return [self._entries[tenant_id] for tenant_id in sorted(self._entries)]

    def page(self, after: str | None, most: int) -> list[Entry]:
        """Those behind the id ``after``, at most so many, by id."""
        return [self._entries[tenant_id] for tenant_id in islice(self._ids.behind(after), most)]

    def key_page(self, after: str | None, tenant_id: str | None = None) -> Iterator[ApiKey]:
        """Keys behind the id ``after``, by id: of one tenant, or all."""
        if tenant_id is None:
            return (self._keys[key_id] for key_id in self._key_ids.behind(after))
        return (one for one in sorted(self.keys(tenant_id), key=lambda one: one.id) if after is None or one.id > after)

    def row(self, tenant_id: str) -> TenantRow | None:
        """What administrators said of it, if anything."""
        return self._rows.get(tenant_id)

    @property
    def document(self) -> Mapping[str, Tenant]:
        """The tenants of the document, by id."""
        return self._document

    def document_tenant(self, tenant_id: str) -> Tenant | None:
        """As the document has it, whatever administrators said since."""
        return self._document.get(tenant_id)

    def rows(self) -> list[TenantRow]:
        """All that administrators said."""
        return list(self._rows.values())

    def is_of_document(self, tenant_id: str) -> bool:
        return tenant_id in self._document

    def has_document_key(self, tenant_id: str) -> bool:
        """Whether the document gives it a key, beside those that were issued."""
        tenant = self._document.get(tenant_id)
        return tenant is not None and tenant.key is not None

    def key(self, key_id: str) -> ApiKey | None:
        return self._keys.get(key_id)

    def keys(self, tenant_id: str | None = None) -> list[ApiKey]:
        """Of one tenant, or all, the oldest first."""
        found = self._keys if tenant_id is None else self._of_tenant.get(tenant_id, {})
        return sorted(found.values(), key=lambda one: (one.created_s, one.id))

    def admin_keys(self) -> list[ApiKey]:
        return list(self._admin_keys.values())

    # what changes

    def beyond(self, document: Iterable[Tenant]) -> Change:
        """What a gateway must be told that knows ``document`` and no more."""
        known = {one.id: one for one in document}
        return Change(
            tenants=tuple(one.tenant for one in self.entries() if known.get(one.tenant.id) != one.tenant),
            tenants_gone=tuple(sorted(known.keys() - self._entries.keys())),
            keys=tuple(one for one in self._keys.values() if one.tenant_id is not None),
        )

    def since(self, before: Roster) -> Change:
        """What a gateway must be told that knows ``before``, and has read this one's document again since: every word
        of an administrator anew, and of the rest what is another."""
        entries, old = self._entries, before._entries
        return Change(
            tenants=tuple(
                one.tenant
                for one in self.entries()
                if one.source != "document" or (past := old.get(one.tenant.id)) is None or past.tenant != one.tenant
            ),
            tenants_gone=tuple(sorted((old.keys() | self._document.keys()) - entries.keys())),
            keys=tuple(
                one for one in self._keys.values() if one.tenant_id is not None and before._keys.get(one.id) != one
            ),
            keys_gone=tuple(sorted(before._keys.keys() - self._keys.keys())),
        )

    def apply(self, rows: Iterable[TenantRow] = (), dropped: Iterable[str] = (), keys: Iterable[ApiKey] = ()) -> Change:
        """Edit; returns what the gateway must hear of it."""
        rows, dropped, keys = tuple(rows), tuple(dropped), tuple(keys)
        touched = [one.id for one in rows] + list(dropped)
        before = {tenant_id: self._entries.get(tenant_id) for tenant_id in touched}
        self._rows.update({one.id: one for one in rows})
        for tenant_id in dropped:
            self._rows.pop(tenant_id, None)
        for tenant_id in touched:
            self._judge(tenant_id)
            (self._ids.add if tenant_id in self._entries else self._ids.remove)(tenant_id)
        for key in keys:
            self._key_ids.add(key.id)
            self._remember(key)
        now = {tenant_id: self._entries.get(tenant_id) for tenant_id in touched}
        return Change(
            tenants=tuple(
                entry.tenant
                for tenant_id, entry in now.items()
                if entry is not None and ((old := before[tenant_id]) is None or old.tenant != entry.tenant)
            ),
            tenants_gone=tuple(one for one in now if now[one] is None and before[one] is not None),
            keys=tuple(one for one in keys if one.tenant_id is not None),
        )

    def forget(self, key_ids: Iterable[str]) -> tuple[str, ...]:
        """Take keys out that were never written; returns the ids of tenants' keys among them."""
        gone = []
        for key_id in key_ids:
            key = self._keys.pop(key_id, None)
            self._key_ids.remove(key_id)
            self._admin_keys.pop(key_id, None)
            if key is not None and key.tenant_id is not None:
                self._of_tenant.get(key.tenant_id, {}).pop(key_id, None)
                gone.append(key_id)
        return tuple(gone)

    def _judge(self, tenant_id: str) -> None:
        base, row = self._document.get(tenant_id), self._rows.get(tenant_id)
        entry: Entry | None = None
        if row is None:
            entry = None if base is None else Entry(tenant=base, source="document", version=0)
        else:
            tenant = over(row, base)
            if tenant is not None and row.definition is not None:
                said = tuple(sorted(row.definition.get("fields", {})))
                entry = Entry(
                    tenant=tenant, source="edited" if base is not None else "admin", version=row.version, edited=said
                )
        if entry is None:
            self._entries.pop(tenant_id, None)
        else:
            self._entries[tenant_id] = entry

    def _remember(self, key: ApiKey) -> None:
        self._keys[key.id] = key
        if key.tenant_id is None:
            self._admin_keys[key.id] = key
        else:
            self._of_tenant.setdefault(key.tenant_id, {})[key.id] = key


class _Ordered:
    """Ids in order, for pages: a hundred thousand are not sorted anew for each."""

    def __init__(self) -> None:
        self._ids: list[str] = []

    def fill(self, ids: Iterable[str]) -> None:
        self._ids = sorted(ids)

    def add(self, one: str) -> None:
        at = bisect_left(self._ids, one)
        if self._ids[at : at + 1] != [one]:
            self._ids.insert(at, one)

    def remove(self, one: str) -> None:
        at = bisect_left(self._ids, one)
        if self._ids[at : at + 1] == [one]:
            del self._ids[at]

    def behind(self, after: str | None) -> Iterator[str]:
        return islice(self._ids, 0 if after is None else bisect_right(self._ids, after), None)
