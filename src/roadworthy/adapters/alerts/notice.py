"""An alert as its receivers read it: the JSON of the webhook, the subject and text of the mail."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roadworthy.route.govern.values import Alert

_UNITS = {
    "kv_quota": "KV blocks",
    "concurrency": "requests at once",
    "rpm": "requests a minute",
    "tpm": "tokens a minute",
    "daily_tokens": "tokens of the day",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One alert on its way. Times are seconds of the epoch.

    Args:
        deployment: the document's name.
        at_s, since_s: when it was raised, and since when the tenant has been above the threshold.
    """

    alert: Alert
    deployment: str
    at_s: float
    since_s: float

    @property
    def id(self) -> str:
        """The same for every attempt to deliver it, and for nothing else: receivers can tell repetitions by it."""
        parts = (self.deployment, self.alert.tenant_id, self.alert.quota, f"{self.since_s:.0f}")
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]

    @property
    def title(self) -> str:
        alert = self.alert
        return f"tenant {alert.tenant_id} is at {alert.ratio:.0%} of its {alert.quota} ({self.deployment})"

    @property
    def figures(self) -> str:
        alert = self.alert
        return f"{alert.used:,.0f} of {alert.limit:,.0f} {_UNITS[alert.quota]}, since {time_text(self.since_s)}"

    def payload(self) -> dict[str, Any]:
        """What the webhook gets. ``text`` is what chat services show."""
        alert = self.alert
        return {
            "event": "quota.near",
            "id": self.id,
            "text": "\n".join([self.title, self.figures, *alert.advice]),
            "deployment": self.deployment,
            "tenant": alert.tenant_id,
            "quota": alert.quota,
            "used": alert.used,
            "limit": alert.limit,
            "ratio": alert.ratio,
            "at": time_text(self.at_s),
            "since": time_text(self.since_s),
            "more_replicas": alert.more_replicas,
            "advice": list(alert.advice),
            "assumptions": list(alert.assumptions),
        }

    def text(self) -> str:
        """What the mail says."""
        parts = [f"{self.title[0].upper()}{self.title[1:]}:", f"{self.figures}."]
        if self.alert.advice:
            parts += ["", *self.alert.advice]
        if self.alert.assumptions:
            parts += ["", "This assumes:", *(f"- {one}" for one in self.alert.assumptions)]
        return "\n".join([*parts, "", "You are told once until it has been well below again.", ""])


def time_text(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, tz=UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
