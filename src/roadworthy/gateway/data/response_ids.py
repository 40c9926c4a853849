"""Ids of stored responses: each names its engine and proves its tenant, so that no table of them has to be kept.

``resp_`` + 32 random digits + 8 for the engine + 24 of an HMAC over both and the tenant, all hexadecimal. Whoever did
not make a response cannot make its id for themselves, and an id that leaked is worth nothing to another tenant. Every
worker with the same pepper reads every id.
"""

from __future__ import annotations

import hmac
import re
from hashlib import blake2s
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHAPE = re.compile(r"resp_([0-9a-f]{32})([0-9a-f]{8})([0-9a-f]{24})")


class ResponseIds:
    """Makes and reads ids.

    Args:
        pepper: secret, the same in every worker and after a restart, or ids made before are not known after.
    """

    __slots__ = ("_pepper",)

    def __init__(self, pepper: bytes) -> None:
        self._pepper = pepper

    def make(self, tenant_id: str, engine_url: str, random: bytes) -> bytes:
        """An id for a response of ``tenant_id`` at the engine; ``random`` is 32 hexadecimal digits."""
        tag = _engine_tag(engine_url)
        return b"resp_" + random + tag + self._proof(tenant_id, random + tag)

    def engine_of(self, response_id: str, tenant_id: str, engine_urls: Iterable[str]) -> str | None:
        """The engine that holds the response, if it is the tenant's and the engine is among ``engine_urls``."""
        found = _SHAPE.fullmatch(response_id)
        if found is None:
            return None
        random, tag, proof = (part.encode("ascii") for part in found.groups())
        if not hmac.compare_digest(proof, self._proof(tenant_id, random + tag)):
            return None
        return next((url for url in engine_urls if _engine_tag(url) == tag), None)

    def _proof(self, tenant_id: str, what: bytes) -> bytes:
        return (
            hmac.digest(self._pepper, b"response\0" + tenant_id.encode() + b"\0" + what, "sha256").hex()[:24].encode()
        )


def _engine_tag(url: str) -> bytes:
    return blake2s(url.encode(), digest_size=4).hexdigest().encode("ascii")
