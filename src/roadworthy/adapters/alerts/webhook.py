"""Alerts by HTTP: one POST of JSON, signed, so that the receiver knows that it is ours and was not sent before.

The header ``X-Roadworthy-Signature: t=SECONDS,v1=HEX`` holds HMAC-SHA-256 of ``SECONDS.BODY`` under the secret; a
receiver computes the same, and refuses what is more than some minutes old.
"""

from __future__ import annotations

import hmac
import http.client
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from roadworthy.adapters.alerts.delivery import GiveUp, NotNow
from roadworthy.adapters.urls import NoRedirect

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.adapters.alerts.notice import Notice

SECRET_VARIABLE = "ROADWORTHY_WEBHOOK_SECRET"
"""Environment variable with the secret of signatures; without it webhooks are not signed."""

SIGNATURE_HEADER = "X-Roadworthy-Signature"
DELIVERY_HEADER = "X-Roadworthy-Delivery"

TIMEOUT_S = 10.0
"""For connecting, and for each wait for the receiver's answer."""

_TRY_AGAIN = frozenset({408, 425, 429})


def signature(secret: bytes, body: bytes, at_s: int) -> str:
    """The signature header's value for ``body`` sent at ``at_s``, seconds of the epoch."""
    return f"t={at_s},v1={hmac.new(secret, b'%d.' % at_s + body, 'sha256').hexdigest()}"


class Webhook:
    """Posts notices to one URL, of which messages tell no more than the host: the path may be a secret."""

    def __init__(self, url: str, *, secret: bytes | None, now_s: Callable[[], float]) -> None:
        self._url, self._secret, self._now_s = url, secret, now_s
        self.name = f"webhook at {urlsplit(url).hostname}"
        # a redirect would carry the signed body to a place that nobody named
        self._opener = urllib.request.build_opener(NoRedirect())

    def deliver(self, notice: Notice) -> None:
        """Post it once.

        Raises:
            NotNow: not reachable, or it said that it has no time now.
            GiveUp: it refuses, and will the next time.
        """
        body = json.dumps(notice.payload(), ensure_ascii=False).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "roadworthy",
            DELIVERY_HEADER: notice.id,
        }
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = signature(self._secret, body, int(self._now_s()))
        request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")
        try:
            with self._opener.open(request, timeout=TIMEOUT_S):
                pass
        except urllib.error.HTTPError as error:
            with error:
                raise _answered(error.code, error.headers.get("Retry-After")) from None
        except urllib.error.URLError as error:
            raise NotNow(_why(error.reason)) from None
        except (OSError, http.client.HTTPException) as error:
            raise NotNow(_why(error)) from None
        except ValueError as error:  # a URL that urllib cannot read
            raise GiveUp(str(error).replace(self._url, "the URL")) from None


def _answered(status: int, retry_after: str | None) -> NotNow | GiveUp:
    if status >= 500 or status in _TRY_AGAIN:
        wait_s = float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
        return NotNow(f"it answers {status}", wait_s=wait_s)
    return GiveUp(f"it answers {status}")


def _why(reason: object) -> str:
    if isinstance(reason, TimeoutError):
        return f"no answer within {TIMEOUT_S:g} s"
    if isinstance(reason, OSError):
        return reason.strerror or type(reason).__name__
    return type(reason).__name__
