"""From governance's alerts to deliveries: one for each incident, whichever worker saw it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.adapters.alerts.delivery import Delivery
from roadworthy.adapters.alerts.mail import Mail
from roadworthy.adapters.alerts.notice import Notice
from roadworthy.adapters.alerts.webhook import SECRET_VARIABLE, Webhook
from roadworthy.core.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from roadworthy.adapters.alerts.delivery import Channel
    from roadworthy.route.govern.values import Alert
    from roadworthy.spec.governance_values import AlertSpec

SAME_INCIDENT_S = 900.0
"""Workers notice one incident at different moments, since each sees its own share of the requests."""


@dataclass(frozen=True, slots=True)
class _Sent:
    worker: str
    at_s: float


class Alerts:
    """Takes alerts and returns at once; threads deliver them.

    Args:
        channels: where they go; none is fine.
        deployment: the document's name, which receivers see.
        say: words for the operator, one for each alert as well.
        now_s: seconds of the epoch.
        monotonic_s: the clock of ``Alert.since_s``.
        same_incident_s: how long an alert of another worker about the same tenant and quota is taken for the same.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        *,
        deployment: str,
        say: Callable[[str], None],
        now_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
        same_incident_s: float = SAME_INCIDENT_S,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        self._deployment, self._say = deployment, say
        self._now_s, self._monotonic_s, self._same_incident_s = now_s, monotonic_s, same_incident_s
        self._sent: dict[tuple[str, str], _Sent] = {}
        self._deliveries = [Delivery(channel, say=say, pause=pause) for channel in channels]

    def send(self, alert: Alert, *, worker: str = "") -> bool:
        """Queue it for every channel; False for one that another worker told before."""
        at_s, subject = self._now_s(), (alert.tenant_id, alert.quota)
        before = self._sent.get(subject)
        if before is not None and before.worker != worker and at_s - before.at_s < self._same_incident_s:
            return False
        self._sent[subject] = _Sent(worker, at_s)
        age_s = max(0.0, self._monotonic_s() - alert.since_s)
        notice = Notice(alert=alert, deployment=self._deployment, at_s=at_s, since_s=at_s - age_s)
        self._say(f"alert: {notice.title}: {notice.figures}")
        for delivery in self._deliveries:
            delivery.put(notice)
        return True

    def channel(self, name: str) -> Delivery:
        """The delivery whose channel's name begins with ``name``, such as ``mail``."""
        return next(one for one in self._deliveries if one.name.startswith(name))

    @property
    def delivered(self) -> int:
        """How many went through, by every channel."""
        return sum(one.delivered for one in self._deliveries)

    @property
    def failed(self) -> int:
        """How many were given up, by every channel."""
        return sum(one.failed for one in self._deliveries)

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Whether all was delivered or given up within the time, for each channel."""
        return all(one.wait_until_idle(timeout_s) for one in self._deliveries)

    def close(self, timeout_s: float = 5.0) -> None:
        """Let what waits go out within the time of each channel, and give the rest up."""
        for one in self._deliveries:
            one.close(timeout_s)


def alerts_of(spec: AlertSpec, environ: Mapping[str, str], *, deployment: str, say: Callable[[str], None]) -> Alerts:
    """What the document says about alerts, with passwords and secrets out of the environment.

    Raises:
        SpecError: a variable that the document names is not set.
    """
    channels: list[Channel] = []
    if spec.webhook is not None:
        secret = environ.get(SECRET_VARIABLE)
        channels.append(Webhook(spec.webhook, secret=secret.encode() if secret else None, now_s=time.time))
    if spec.smtp is not None:
        password = None
        if spec.smtp.password_env is not None:
            password = environ.get(spec.smtp.password_env)
            if not password:
                raise SpecError(
                    f"governance.alert.smtp.password_env: {spec.smtp.password_env}, which is not set, wanted a "
                    "variable that holds the password",
                    hint=f"export {spec.smtp.password_env}=...",
                )
        channels.append(Mail(spec.smtp, password=password))
    return Alerts(channels, deployment=deployment, say=say)
