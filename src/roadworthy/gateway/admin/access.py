"""Who asks the admin port, and whether they may.

Three kinds of caller: one with an admin key (in the registry, or the bootstrap key of the environment), one of this
host while there is no admin key anywhere, and everybody else, who gets health and metrics only.
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from roadworthy.core.errors import SpecError
from roadworthy.gateway.admin.answers import AdminError
from roadworthy.route.keys import ROLES, id_in, opens

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from roadworthy.route.keys import ApiKey, Role

ADMIN_KEY_VARIABLE = "ROADWORTHY_ADMIN_KEY"
"""Environment variable with the first admin key: it may do everything, and makes the others."""

LEAST_KEY_CHARACTERS = 20

_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")
_BOOTSTRAP_PEPPER = b"roadworthy bootstrap key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks. ``who`` is what the audit says; it holds no secret."""

    who: str
    role: Role | Literal[""]
    address: str
    has_key: bool = True


def bootstrap_key(environ_value: str | None) -> str | None:
    """The bootstrap key out of the environment's value; None where it is not set.

    Raises:
        SpecError: it is too short to keep anybody out, or no header can carry it.
    """
    if not environ_value:
        return None
    if len(environ_value) < LEAST_KEY_CHARACTERS or not all("!" <= one <= "~" for one in environ_value):
        raise SpecError(
            f"{ADMIN_KEY_VARIABLE}: a value of {len(environ_value)} characters, wanted {LEAST_KEY_CHARACTERS} or more, "
            "visible ASCII without spaces",
            hint="openssl rand -hex 24 makes one",
        )
    return environ_value


class Gatekeeper:
    """Lets callers in.

    Args:
        bootstrap: the key of the environment, None without one.
        pepper: under which digests of issued keys were made.
        find: the admin key with an id.
        keyed: whether any admin key is known, usable or not: once there was one, an expired one opens no side door.
        now_s: seconds of the epoch.
    """

    def __init__(
        self,
        *,
        bootstrap: str | None,
        pepper: bytes,
        find: Callable[[str], ApiKey | None],
        keyed: Callable[[], bool],
        now_s: Callable[[], float],
    ) -> None:
        self._bootstrap = None if bootstrap is None else _digest(bootstrap)
        self._pepper, self._find, self._any_key, self._now_s = pepper, find, keyed, now_s

    @property
    def keyed(self) -> bool:
        """Whether an admin key is asked for."""
        return self._bootstrap is not None or self._any_key()

    @property
    def has_bootstrap(self) -> bool:
        """Whether the environment's key opens everything, whatever becomes of the others."""
        return self._bootstrap is not None

    def admit(self, request: Request, role: Role, *, changes_keys: bool = False) -> Caller:
        """Who asks, if they may do what needs ``role``.

        Args:
            changes_keys: it changes tenants or keys, for which there is no way without an admin key.

        Raises:
            AdminError: 401 or 403.
        """
        _same_origin(request)
        address = request.client.host if request.client is not None else ""
        if not self.keyed:
            return self._without_key(request, address, changes_keys)
        caller = self._with_key(request, address)
        if ROLES.index(caller.role) < ROLES.index(role):
            raise AdminError(
                f"this key's role is {caller.role}, and this needs {role}",
                code="role_too_low",
                hint=f"ask an administrator for a key of role {role}",
            )
        return caller

    def _without_key(self, request: Request, address: str, changes_keys: bool) -> Caller:
        if not is_this_host(request):
            raise AdminError(
                "there is no admin key, and without one the admin API answers clients of its own host only",
                code="admin_key_not_set",
                hint=f"start the gateway with {ADMIN_KEY_VARIABLE} set, and send it as Authorization: Bearer",
            )
        if changes_keys:
            raise AdminError(
                "tenants, keys and quotas are changed with an admin key, and this gateway has none",
                code="admin_key_not_set",
                hint=f"start the gateway with {ADMIN_KEY_VARIABLE} set, and send it as Authorization: Bearer",
            )
        return Caller(who="loopback", role="operator", address=address, has_key=False)

    def _with_key(self, request: Request, address: str) -> Caller:
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        text = text.strip()
        if kind.lower() != "bearer" or not text:
            raise AdminError(
                "an admin key is needed",
                code="admin_key_required",
                hint=f"send Authorization: Bearer KEY; the commands read it from {ADMIN_KEY_VARIABLE}",
            )
        if self._bootstrap is not None and hmac.compare_digest(self._bootstrap, _digest(text)):
            return Caller(who="bootstrap", role="admin", address=address)
        key_id = id_in(text)
        key = self._find(key_id) if key_id is not None else None
        if key is not None and key.role is not None and opens(key, text, pepper=self._pepper, now_s=self._now_s()):
            label = f" ({key.label})" if key.label else ""
            return Caller(who=f"key:{key.id}{label}", role=key.role, address=address)
        raise AdminError(
            "this is no admin key, or it is over",
            code="invalid_admin_key",
            hint="a tenant's key opens the data port only; `roadworthy keys list` shows which admin keys are in force",
        )


def is_this_host(request: Request) -> bool:
    """Whether it comes from this host and means to: not through a proxy, and not from a web page that had a name of
    its own point here."""
    client = request.client
    if client is None or not _is_loopback(client.host) or any(name in request.headers for name in _FORWARDED):
        return False
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    return host == "localhost" or host.endswith(".localhost") or _is_address(host)


def _same_origin(request: Request) -> None:
    """A browser names the page's origin where a page of another site makes it ask; our commands name none."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host", ""):
        raise AdminError(
            "a page of another origin may not ask here", code="cross_origin", hint="ask from the admin port's own pages"
        )


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _digest(text: str) -> bytes:
    return hmac.digest(_BOOTSTRAP_PEPPER, text.encode("utf-8", "surrogatepass"), "sha256")
