"""A tenant as the data plane meets it: what is worked out once instead of at every request."""

from __future__ import annotations

import hmac
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roadworthy.spec.values import Tenant

PEPPER_VARIABLE = "ROADWORTHY_PEPPER"
"""Environment variable with a secret of one's own, for gateways that share tenants but not their keys."""


class Principal:
    """One tenant.

    Args:
        salt_field: ``"cache_salt":"...",`` to be put into an engine's request: prefixes are shared within a tenant,
            never between two, or the time to a first token would tell one what the other asked.
    """

    __slots__ = ("salt_field", "tenant", "trusted")

    def __init__(self, tenant: Tenant, *, pepper: bytes, trusted: bool = False) -> None:
        self.tenant = tenant
        # at most 32 characters, hexadecimal: another alphabet can kill an engine with an LMCache connector before 0.30
        salt = hmac.digest(pepper, b"cache\0" + tenant.id.encode(), "sha256").hex()[:32]
        self.salt_field = b'"cache_salt":"%b",' % salt.encode("ascii")
        self.trusted = trusted


def pepper_of(tenants: Iterable[Tenant], environ: Mapping[str, str] = os.environ) -> bytes:
    """The secret under which keys, salts and ids are digested: ``ROADWORTHY_PEPPER``, or made of the document's keys.

    The second is the same in every worker and after a restart with the same document, without being stored anywhere.
    """
    given = environ.get(PEPPER_VARIABLE)
    if given:
        return hmac.digest(b"roadworthy pepper", given.encode(), "sha256")
    keys = b"\0".join(sorted((tenant.key or "").encode() for tenant in tenants))
    return hmac.digest(b"roadworthy pepper of keys", keys, "sha256") if keys else os.urandom(32)
