"""What a running gateway was told of tenants and keys beyond its document, as one change that says it all."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from roadworthy.route.keys import ApiKey, Change
from roadworthy.spec.values import Tenant

if TYPE_CHECKING:
    from collections.abc import Mapping


class Told:
    """Changes added up. A process that starts later hears the whole of it."""

    def __init__(self) -> None:
        self._tenants: dict[str, Tenant] = {}
        self._tenants_gone: dict[str, None] = {}
        self._keys: dict[str, ApiKey] = {}
        self._keys_gone: dict[str, None] = {}
        self.anything = False

    def add(self, change: Change) -> None:
        self.anything = True
        for tenant_id in change.tenants_gone:
            self._tenants.pop(tenant_id, None)
            self._tenants_gone[tenant_id] = None
            for key_id in [one.id for one in self._keys.values() if one.tenant_id == tenant_id]:
                del self._keys[key_id]
        for tenant in change.tenants:
            self._tenants[tenant.id] = tenant
            self._tenants_gone.pop(tenant.id, None)
        for key_id in change.keys_gone:
            self._keys.pop(key_id, None)
            self._keys_gone[key_id] = None
        for key in change.keys:
            self._keys[key.id] = key
            self._keys_gone.pop(key.id, None)

    def whole(self) -> Change:
        return Change(
            tenants=tuple(self._tenants.values()),
            tenants_gone=tuple(self._tenants_gone),
            keys=tuple(self._keys.values()),
            keys_gone=tuple(self._keys_gone),
        )


def as_json(change: Change) -> dict[str, Any]:
    """``change`` as it travels between processes; ``from_json`` reads it back."""
    return {
        "tenants": [asdict(one) for one in change.tenants],
        "tenants_gone": list(change.tenants_gone),
        "keys": [{**asdict(one), "digest": one.digest.hex()} for one in change.keys],
        "keys_gone": list(change.keys_gone),
    }


def from_json(value: Mapping[str, Any]) -> Change:
    return Change(
        tenants=tuple(Tenant(**_tuples(one)) for one in value["tenants"]),
        tenants_gone=tuple(value["tenants_gone"]),
        keys=tuple(ApiKey(**{**_tuples(one), "digest": bytes.fromhex(one["digest"])}) for one in value["keys"]),
        keys_gone=tuple(value["keys_gone"]),
    )


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
