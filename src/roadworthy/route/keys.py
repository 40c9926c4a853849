"""Keys that are issued, rotated and revoked while the service runs, beside those that the document gives its tenants.

A key reads ``rw-ID-SECRET``. The id stands in clear in lists, logs and audit rows; the secret is shown once, when the
key is made, and kept by nobody: what is kept is HMAC-SHA-256 of the whole text under a pepper.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from roadworthy.spec.values import Tenant

Role = Literal["viewer", "operator", "admin"]
"""What a key of the admin API may do: look; also drain, reload and edit quotas; also tenants and keys."""

ROLES: tuple[Role, ...] = get_args(Role)
"""From the least to the most."""

Scope = Literal["trusted-caller"]
"""What a tenant's key may do beyond asking: a trusted caller's statements about itself are believed."""

SCOPES: tuple[Scope, ...] = get_args(Scope)

ID_BYTES, SECRET_BYTES = 8, 32
_MARK = "rw-"
_ID_CHARACTERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One key without its secret. Times are seconds of the epoch.

    Args:
        tenant_id: whose requests it makes; None for a key of the admin API.
        role: what it may do on the admin API; None for a tenant's key.
        prefix: the part that may be shown, ``rw-ID``.
        digest: HMAC-SHA-256 of the whole text.
        label: the operator's word for what it is for.
        expires_s, revoked_s: from when on it opens nothing; None for never, and for not yet.
        replaced_by: id of the key that a rotation put in its place.
    """

    id: str
    prefix: str
    digest: bytes = field(repr=False)
    tenant_id: str | None = None
    role: Role | None = None
    scopes: tuple[Scope, ...] = ()
    label: str = ""
    created_s: float = 0.0
    expires_s: float | None = None
    revoked_s: float | None = None
    replaced_by: str | None = None

    def __post_init__(self) -> None:
        if (self.tenant_id is None) == (self.role is None):
            raise ValueError(f"key {self.id}: a key is a tenant's or has a role, and not both")
        if self.role is not None and self.scopes:
            raise ValueError(f"key {self.id}: scopes are for tenants' keys")

    def usable(self, now_s: float) -> bool:
        """Whether it opens anything at ``now_s``."""
        return self.ends_s is None or now_s < self.ends_s

    @property
    def ends_s(self) -> float | None:
        """When it stops to open anything, None for never."""
        ends = [one for one in (self.expires_s, self.revoked_s) if one is not None]
        return min(ends) if ends else None


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKey:
    """A new key with its text, which exists nowhere else once this value is gone."""

    key: ApiKey
    text: str = field(repr=False)


def issued(
    id_bytes: bytes,
    secret_bytes: bytes,
    *,
    pepper: bytes,
    created_s: float,
    tenant_id: str | None = None,
    role: Role | None = None,
    scopes: tuple[Scope, ...] = (),
    label: str = "",
    expires_s: float | None = None,
) -> IssuedKey:
    """A key made of ``ID_BYTES`` and ``SECRET_BYTES`` random bytes.

    Raises:
        ValueError: too few random bytes, or neither or both of tenant and role.
    """
    if len(id_bytes) < ID_BYTES or len(secret_bytes) < SECRET_BYTES:
        raise ValueError(f"a key is made of {ID_BYTES} and {SECRET_BYTES} random bytes")
    key_id = base64.b32encode(id_bytes).decode().lower()[:_ID_CHARACTERS]
    text = f"{_MARK}{key_id}-{base64.urlsafe_b64encode(secret_bytes).decode().rstrip('=')}"
    return IssuedKey(
        key=ApiKey(
            id=key_id, prefix=f"{_MARK}{key_id}", digest=digest_of(pepper, text), tenant_id=tenant_id, role=role,
            scopes=scopes, label=label, created_s=created_s, expires_s=expires_s,
        ),
        text=text,
    )  # fmt: skip


def digest_of(pepper: bytes, text: str | bytes) -> bytes:
    """What is kept of a key."""
    return hmac.digest(pepper, text.encode() if isinstance(text, str) else text, "sha256")


def opens(key: ApiKey, text: str | bytes, *, pepper: bytes, now_s: float) -> bool:
    """Whether ``text`` is this key's and it may be used; the comparison takes the same time for every text."""
    return hmac.compare_digest(key.digest, digest_of(pepper, text)) and key.usable(now_s)


def id_in(text: str) -> str | None:
    """The id of a key by its text; None for a text of another form, such as a document's key."""
    rest = text.removeprefix(_MARK)
    if rest == text or len(rest) <= _ID_CHARACTERS + 1 or rest[_ID_CHARACTERS] != "-":
        return None
    return rest[:_ID_CHARACTERS]


def revoked(key: ApiKey, now_s: float) -> ApiKey:
    """``key``, over from ``now_s`` on; one that was revoked before stays as it was."""
    return key if key.revoked_s is not None and key.revoked_s <= now_s else replace(key, revoked_s=now_s)


def superseded(key: ApiKey, *, by: str, until_s: float) -> ApiKey:
    """``key`` after a rotation: it opens until ``until_s`` at the latest, so that its holders can change over."""
    ends_s = until_s if key.expires_s is None else min(key.expires_s, until_s)
    return replace(key, expires_s=ends_s, replaced_by=by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a running gateway is told of tenants and keys: upserts by id, and ids that are gone.

    ``keys`` holds keys of tenants; one that is revoked or has expired comes as such. Keys of a tenant that is gone are
    gone with it, whether named or not.
    """

    tenants: tuple[Tenant, ...] = ()
    tenants_gone: tuple[str, ...] = ()
    keys: tuple[ApiKey, ...] = ()
    keys_gone: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tenants or self.tenants_gone or self.keys or self.keys_gone)
