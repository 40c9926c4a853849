"""One HTTP client for every address that diagnosis asks: reads only, follows nothing, in bounded time and size."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from base64 import b64encode
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING
from urllib.parse import urlencode

from roadworthy.adapters.incident.fetched import ONE_MOST_BYTES
from roadworthy.adapters.urls import NoRedirect, http_parts, is_this_host
from roadworthy.core.errors import ProbeError, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PIECE_BYTES = 256 * 1024
SAID_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How to sign in: a bearer token, or a user with a password; neither is shown."""

    token: str = ""
    user: str = ""
    password: str = ""

    def header(self) -> str:
        if self.token:
            return f"Bearer {self.token}"
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}" if self.user else ""

    def __repr__(self) -> str:
        return "Login(…)" if self.token or self.user else "Login()"


def login_of(environment: Mapping[str, str], prefix: str) -> Login:
    """The login in ``PREFIX_TOKEN``, or ``PREFIX_USER`` and ``PREFIX_PASSWORD``.

    Raises:
        SpecError: a value that no header can hold, or both at once.
    """
    token, user, password = (environment.get(f"{prefix}_{one}", "").strip() for one in ("TOKEN", "USER", "PASSWORD"))
    for name, value in (("TOKEN", token), ("USER", user), ("PASSWORD", password)):
        if any(ord(letter) < 32 for letter in value):
            raise SpecError(f"{prefix}_{name}: holds a control character", hint="is there a line end in it?")
    if token and user:
        raise SpecError(f"{prefix}_TOKEN and {prefix}_USER are both set", hint="unset one of them")
    return Login(token=token, user=user, password=password)


class Asker:
    """Asks one server.

    Args:
        url: ``http(s)://HOST[:PORT][/PATH]``, without user and password.
        ca_file: certificates to trust instead of the system's.
        limit_s: for one answer, however slowly it drips.

    Raises:
        SpecError: no such URL, or no such certificates.
    """

    def __init__(
        self, url: str, *, what: str, hint: str, login: Login | None = None, ca_file: Path | None = None,
        limit_s: float = 30.0,
    ) -> None:  # fmt: skip
        parts = http_parts(url, what=what, hint=hint)
        if parts.username or parts.password or parts.query or parts.fragment:
            raise SpecError(
                f"{parts.scheme}://{parts.hostname}: the URL holds a user or a query",
                hint="give the login in the environment; a command line can be read by everybody on the host",
            )
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.address = parts.netloc
        self.here = is_this_host(parts.hostname or "")
        self._login, self._limit_s = login or Login(), limit_s
        self.exposes_login = bool(self._login.header()) and parts.scheme == "http" and not self.here
        handlers: list[urllib.request.BaseHandler] = [NoRedirect()]
        if self.here:
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy knows another localhost
        if parts.scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=_trust(ca_file)))
        self._opener = urllib.request.build_opener(*handlers)

    def save(
        self, path: str, query: Sequence[tuple[str, str]], file: IO[bytes], *, most_bytes: int = ONE_MOST_BYTES
    ) -> int:
        """Write the body of the answer to ``file``; how many bytes it had.

        Raises:
            ProbeError: no answer in time, another status than 200, or a body that breaks off or never ends. What came
                until then is in ``file``.
        """
        request = urllib.request.Request(
            f"{self.url}{path}{'?' if query else ''}{urlencode(query)}",
            headers={"Accept": "*/*", "User-Agent": "roadworthy", "Accept-Encoding": "identity"},
        )
        if header := self._login.header():
            request.add_unredirected_header("Authorization", header)
        end_s = time.monotonic() + self._limit_s
        size = 0
        try:
            with self._opener.open(request, timeout=self._limit_s) as answer:
                while piece := answer.read1(PIECE_BYTES):
                    size += file.write(piece)
                    if size > most_bytes:
                        raise ProbeError(
                            f"{self.url}{path}: more than {most_bytes:,} bytes", hint="narrow the question"
                        )
                    if time.monotonic() > end_s:
                        raise ProbeError(f"{self.url}{path}: not done within {self._limit_s:g} s")
                if answer.length:
                    raise ProbeError(f"{self.url}{path}: the answer broke off after {size:,} bytes")
        except urllib.error.HTTPError as error:
            with error:
                raise ProbeError(
                    f"{self.url}{path} answered {error.code}{_said(error)}", hint=_hint(error.code)
                ) from None
        except (OSError, http.client.HTTPException) as error:
            raise ProbeError(
                f"cannot reach {self.url}: {_reason(error, self._limit_s)}", hint=_tls_hint(error)
            ) from None
        return size


def _trust(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
    except (OSError, ssl.SSLError) as error:
        raise SpecError(f"{ca_file}: no certificates in it: {error}", hint="give a file of PEM certificates") from error


def _said(error: urllib.error.HTTPError) -> str:
    """What the server says went wrong: a Prometheus in JSON, a proxy in HTML that says nothing."""
    body = error.read(SAID_MOST_BYTES)
    try:
        said = json.loads(body)
    except ValueError:
        return ""
    text = said.get("error") if isinstance(said, dict) else None
    return f": {str(text)[:300]}" if text else ""


def _hint(status: int) -> str:
    if status in (401, 403):
        return "give a login in the environment: see `roadworthy diagnose --help`"
    if 300 <= status < 400:
        return "it sends us elsewhere; give the address where it lives, so that no login goes astray"
    return "is the path right?" if status == 404 else ""


def _reason(error: Exception, limit_s: float) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return f"no answer within {limit_s:g} s"
    if isinstance(reason, ssl.SSLError):
        return f"TLS: {getattr(reason, 'verify_message', '') or reason.reason or reason}"
    return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__


def _tls_hint(error: Exception) -> str:
    if isinstance(getattr(error, "reason", error), ssl.SSLError):
        return "give the certificate authority with --ca-file"
    return "is it up, and reachable from here?"
