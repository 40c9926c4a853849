"""URLs that people type, held to what a client can use."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from roadworthy.core.errors import SpecError


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
