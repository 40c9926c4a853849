"""Whose key is it. Keys are kept only as HMAC-SHA-256 under a pepper, never in clear."""

from __future__ import annotations

import hmac
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.core.errors import Problem, SpecError
from roadworthy.route.keys import digest_of
from roadworthy.spec.values import Tenant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from roadworthy.route.keys import ApiKey, Change, Scope

ANONYMOUS = Tenant(id="anonymous")
"""Whom requests belong to when the document names no tenant: access is then open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who sent a key, and what that key may do.

    Args:
        key_id: of a key that was issued; empty for one that the document gives.
        ends_s: when the key stops to open anything, seconds of the epoch; None for never. Whoever remembers a holder
            has to forget it then.
    """

    tenant: Tenant
    scopes: tuple[Scope, ...] = ()
    key_id: str = ""
    ends_s: float | None = None

    @property
    def trusted(self) -> bool:
        """Whether what the caller says of itself is believed."""
        return "trusted-caller" in self.scopes


_ANYBODY = Holder(tenant=ANONYMOUS)
_NOBODY: tuple[bytes, Holder | None] = (b"", None)


class TenantBook:
    """The tenants, found by key: 100,000 keys and more, each look-up one digest and one dictionary.

    The lookup is by digest: an attacker who does not know the pepper cannot steer the digest of a guess, so the time
    of the table lookup tells nothing, and what is found is compared in constant time again.

    Args:
        tenants: with ``key`` filled in; the book keeps them without it. Empty means open access.
        pepper: random bytes, the same for every worker that shares digests.
        keys: of tenants, issued beside those of the document. Keys of nobody's, and of the admin API, are left out.
        managed: tenants and keys are somebody else's to name as well (a database behind the admin API). A tenant may
            then have no key yet, and no tenant at all means that nobody gets in.

    Raises:
        SpecError: a tenant without a key, or two with the same one.
    """

    def __init__(
        self,
        tenants: Iterable[Tenant],
        *,
        pepper: bytes,
        keys: Iterable[ApiKey] = (),
        managed: bool = False,
    ) -> None:
        self._pepper = pepper
        self._managed = managed
        self._tenants: dict[str, Tenant] = {}
        self._by_digest: dict[bytes, tuple[bytes, Holder]] = {}
        self._digests: dict[str, dict[str, bytes]] = {}  # by tenant, then by key id; the document's has none
        self._tenant_of: dict[str, str] = {}  # by key id
        problems = []
        for index, tenant in enumerate(tenants):
            if not tenant.key and not managed:
                problems.append(
                    Problem(
                        path=f"tenants[{index}].key",
                        seen="no key",
                        wanted="key, or key_env naming a variable that is set",
                        hint=f"give tenant {tenant.id!r} a key of 20 random characters or more",
                    )
                )
                continue
            other = self._by_digest.get(digest_of(pepper, tenant.key)) if tenant.key else None
            if other is not None:
                problems.append(
                    Problem(
                        path=f"tenants[{index}].key",
                        seen=f"the key of tenant {other[1].tenant.id!r}",
                        wanted="a key of its own",
                        hint="a key names exactly one tenant",
                    )
                )
                continue
            self._put_tenant(tenant)
        if problems:
            raise SpecError("tenants: keys cannot be used", problems=tuple(problems))
        for key in keys:
            self._put_key(key)

    @property
    def open_access(self) -> bool:
        """True when there is no tenant: any request, with or without a key, is the anonymous tenant's."""
        return not self._tenants and not self._managed

    def __iter__(self) -> Iterator[Tenant]:
        return iter((ANONYMOUS,) if self.open_access else tuple(self._tenants.values()))

    def __len__(self) -> int:
        """How many keys there are, those included that have ended since."""
        return len(self._by_digest)

    def tenant(self, tenant_id: str) -> Tenant | None:
        return ANONYMOUS if self.open_access else self._tenants.get(tenant_id)

    def find(self, key: bytes | None, now_s: float = math.inf) -> Tenant | None:
        """The tenant of ``key``; see :meth:`holder`."""
        holder = self.holder(key, now_s)
        return holder.tenant if holder is not None else None

    def holder(self, key: bytes | None, now_s: float = math.inf) -> Holder | None:
        """Who has ``key``, and what it may do; None when nobody has it, or when it has expired or was revoked.

        Args:
            now_s: seconds of the epoch; left out, a key that ends at any time has ended.
        """
        if self.open_access:
            return _ANYBODY
        if not key:
            return None
        digest = digest_of(self._pepper, key)
        known, holder = self._by_digest.get(digest, _NOBODY)
        if not hmac.compare_digest(known, digest) or holder is None:
            return None
        return holder if holder.ends_s is None or now_s < holder.ends_s else None

    # what may change while it runs

    def apply(self, change: Change) -> None:
        """Tenants and keys are as ``change`` says from now on.

        A tenant that comes without a key keeps the one that the document gave it.
        """
        for tenant_id in change.tenants_gone:
            self._tenants.pop(tenant_id, None)
            for key_id, digest in self._digests.pop(tenant_id, {}).items():
                self._by_digest.pop(digest, None)
                self._tenant_of.pop(key_id, None)
        for key_id in change.keys_gone:
            self._drop_key(key_id)
        for tenant in change.tenants:
            self._put_tenant(tenant)
        for key in change.keys:
            self._put_key(key)

    def _put_tenant(self, tenant: Tenant) -> None:
        own = self._digests.setdefault(tenant.id, {})
        if tenant.key:
            self._forget_digest(own.get(""))
            own[""] = digest_of(self._pepper, tenant.key)
        bare = self._tenants[tenant.id] = replace(tenant, key=None, key_env=None)
        for key_id, digest in own.items():
            _, before = self._by_digest.get(digest, _NOBODY)
            holder = Holder(tenant=bare, scopes=bare.scopes) if before is None else replace(before, tenant=bare)
            if not key_id:
                holder = replace(holder, scopes=bare.scopes)
            self._by_digest[digest] = (digest, holder)

    def _put_key(self, key: ApiKey) -> None:
        tenant = self._tenants.get(key.tenant_id) if key.tenant_id is not None else None
        if tenant is None:
            return
        self._drop_key(key.id)
        self._tenant_of[key.id] = tenant.id
        self._digests[tenant.id][key.id] = key.digest
        holder = Holder(tenant=tenant, scopes=key.scopes, key_id=key.id, ends_s=key.ends_s)
        self._by_digest[key.digest] = (key.digest, holder)

    def _drop_key(self, key_id: str) -> None:
        tenant_id = self._tenant_of.pop(key_id, None)
        if tenant_id is not None:
            self._forget_digest(self._digests[tenant_id].pop(key_id))

    def _forget_digest(self, digest: bytes | None) -> None:
        if digest is not None:
            self._by_digest.pop(digest, None)
