"""Asks a gateway's admin API, for the commands: one question at a time, and every answer but a good one is an error."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from roadworthy.adapters.urls import NoRedirect, http_parts, is_this_host
from roadworthy.core.errors import ProbeError, RoadworthyError, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S = 10.0
MOST_BYTES = 64 * 2**20
KEY_VARIABLE = "ROADWORTHY_ADMIN_KEY"


class AdminClient:
    """One gateway's admin port.

    Args:
        url: ``http://HOST:PORT``.
        key: sent as the bearer; None sends none.

    Raises:
        SpecError: ``url`` is no URL.
    """

    def __init__(self, url: str, *, key: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        parts = http_parts(url, what="of an admin port", hint="such as http://127.0.0.1:8081")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.exposes_key = key is not None and parts.scheme == "http" and not is_this_host(parts.hostname or "")
        self._key, self._timeout_s = key, timeout_s
        handlers: list[urllib.request.BaseHandler] = [NoRedirect()]
        if is_this_host(parts.hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy knows another localhost
        self._opener = urllib.request.build_opener(*handlers)

    def get(self, path: str, **query: Any) -> Any:
        """The answer's JSON; parameters that are None are left out.

        Raises:
            ProbeError: no answer, not an admin port, or the key does not open it.
            SpecError: the API cannot use what was asked.
        """
        return self._json(self._ask("GET", path, query))

    def text(self, path: str, **query: Any) -> str:
        """An answer that is not JSON, such as CSV."""
        return self._ask("GET", path, query).decode()

    def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Ask for a change; the answer's JSON."""
        return self._json(self._ask(method, path, {}, body, headers))

    def _json(self, data: bytes) -> Any:
        try:
            return json.loads(data)
        except ValueError:
            raise ProbeError(
                f"{self.url} answered with something else than JSON", hint="name the admin port of a gateway"
            ) from None

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        asked = {name: value for name, value in query.items() if value is not None}
        request = urllib.request.Request(
            f"{self.url}{path}{'?' if asked else ''}{urlencode(asked)}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Accept": "*/*", "User-Agent": "roadworthy", **(headers or {})},
            method=method,
        )
        if body is not None:
            request.add_header("Content-Type", "application/json")
        if self._key is not None:
            request.add_header("Authorization", f"Bearer {self._key}")
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                data: bytes = answer.read(MOST_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error.code, error.read(MOST_BYTES)) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._not_there(error) from None
        return data

    def _not_there(self, error: Exception) -> ProbeError:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            why = f"no answer within {self._timeout_s:g} s"
        elif isinstance(reason, OSError):
            why = reason.strerror or str(reason)
        else:
            why = type(reason).__name__
        return ProbeError(
            f"{self.url}: the admin port does not answer: {why}",
            hint="is the gateway running, and is this its admin port? it says `admin at URL` when it starts",
        )

    def _refused(self, status: int, body: bytes) -> RoadworthyError:
        try:
            error = json.loads(body)["error"]
            message, hint, code = error["message"], error["hint"] or "", error["code"]
        except (ValueError, KeyError, TypeError):
            return ProbeError(
                f"{self.url} answered HTTP {status}, not as an admin port does",
                hint="name the admin port, not the data port",
            )
        more = "".join(f"\n  {one['path']}: {one['seen']}, wanted {one['wanted']}" for one in error.get("problems", ()))
        if status >= 500 or status in (401, 403):
            if code in ("admin_key_required", "invalid_admin_key"):
                hint = f"export {KEY_VARIABLE}=... with a key of the admin API"
            return ProbeError(f"{self.url}: {message}", hint=hint)
        return SpecError(f"{message}{more}", hint=_for_commands(code, hint))


_HINTS = {
    "tenant_exists": "`roadworthy tenants edit` changes it",
    "tenant_not_found": "`roadworthy tenants list` shows those in force; `tenants reset` brings a document's back",
    "key_not_found": "`roadworthy keys list` shows them; a document's keys are changed in the document",
    "not_in_document": "`roadworthy tenants remove` removes it",
}
"""The API's hints speak of its paths; the commands' of commands."""


def _for_commands(code: str, hint: str) -> str:
    return _HINTS.get(code, "" if hint.startswith("such as {") else hint)


def segment(text: str) -> str:
    """``text``, the id of a tenant or a key, as one segment of a path. Raises SpecError for what is no such id."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", text):
        raise SpecError(f"{text!r}: no id, wanted letters, digits, dot, dash and underscore")
    return quote(text, safe="")
