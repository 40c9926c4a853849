"""Whose key is it. Keys are kept only as HMAC-SHA-256 under a pepper, never in clear."""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.core.errors import Problem, SpecError
from roadworthy.spec.values import Tenant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ANONYMOUS = Tenant(id="anonymous")
"""Whom requests belong to when the document names no tenant: access is then open."""


class TenantBook:
    """The tenants, found by key.

    The lookup is by digest: an attacker who does not know the pepper cannot steer the digest of a guess, so the time
    of the table lookup tells nothing, and what is found is compared in constant time again.

    Args:
        tenants: with ``key`` filled in; the book keeps them without it. Empty means open access.
        pepper: random bytes, the same for every worker that shares digests.

    Raises:
        SpecError: a tenant without a key, or two with the same one.
    """

    def __init__(self, tenants: Iterable[Tenant], *, pepper: bytes) -> None:
        self._pepper = pepper
        self._by_digest: dict[bytes, tuple[bytes, Tenant]] = {}
        problems = []
        for index, tenant in enumerate(tenants):
            if not tenant.key:
                problems.append(
                    Problem(
                        path=f"tenants[{index}].key",
                        seen="no key",
                        wanted="key, or key_env naming a variable that is set",
                        hint=f"give tenant {tenant.id!r} a key of 20 random characters or more",
                    )
                )
                continue
            digest = self._digest(tenant.key.encode())
            if digest in self._by_digest:
                other = self._by_digest[digest][1].id
                problems.append(
                    Problem(
                        path=f"tenants[{index}].key",
                        seen=f"the key of tenant {other!r}",
                        wanted="a key of its own",
                        hint="a key names exactly one tenant",
                    )
                )
                continue
            self._by_digest[digest] = (digest, replace(tenant, key=None, key_env=None))
        if problems:
            raise SpecError("tenants: keys cannot be used", problems=tuple(problems))

    @property
    def open_access(self) -> bool:
        """True when there is no tenant: any request, with or without a key, is the anonymous tenant's."""
        return not self._by_digest

    def __iter__(self) -> Iterator[Tenant]:
        if self.open_access:
            return iter((ANONYMOUS,))
        return (tenant for _, tenant in self._by_digest.values())

    def find(self, key: bytes | None) -> Tenant | None:
        """The tenant of ``key``; None when nobody has it."""
        if self.open_access:
            return ANONYMOUS
        if not key:
            return None
        digest = self._digest(key)
        known, tenant = self._by_digest.get(digest, (b"", None))
        return tenant if hmac.compare_digest(known, digest) else None

    def _digest(self, key: bytes) -> bytes:
        return hmac.digest(self._pepper, key, "sha256")
