"""URLs that people type, held to what a client can use; and what its requests, which may carry a key, must not do."""

from __future__ import annotations

import ipaddress
import urllib.request
from typing import IO, TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from roadworthy.core.errors import SpecError

if TYPE_CHECKING:
    from email.message import Message


def http_parts(url: str, *, what: str = "", hint: str) -> SplitResult:
    """The parts of an http or https URL with a host, and a port where it names one.

    Args:
        what: whose URL it should be, such as ``of an admin port``.

    Raises:
        SpecError: it is no such URL; ``hint`` says what would be.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or any(one.isspace() for one in url):
        raise SpecError(f"{url!r}: no URL{' ' * bool(what)}{what}, wanted http://HOST:PORT", hint=hint)
    return parts


def is_this_host(host: str) -> bool:
    """Whether what goes to ``host`` never leaves this machine."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for an answer: a key goes where it was sent to, and nowhere else."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        del req, fp, code, msg, headers, newurl
