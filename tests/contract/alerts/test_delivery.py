"""Alerts delivered to real servers: signed, tried again, given up, and told once for each incident."""

from __future__ import annotations

import hmac
import json
import re
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fakes.receivers import HookServer, MailServer, hook_server, mail_server
from roadworthy.adapters.alerts import SECRET_VARIABLE, Alerts, alerts_of
from roadworthy.adapters.alerts.delivery import ATTEMPTS, MOST_WAITING
from roadworthy.adapters.alerts.mail import Mail
from roadworthy.adapters.alerts.webhook import Webhook, signature
from roadworthy.core.errors import SpecError
from roadworthy.route.govern.values import Alert
from roadworthy.spec.governance_values import AlertSpec, Smtp
from support.certificates import authority, signed

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW_S = 1_796_040_000.0
ALERT = Alert(
    tenant_id="acme", quota="kv_quota", used=930, limit=1000, ratio=0.93, since_s=100.0,
    advice=("One more replica would hold 1,200 blocks more.",), assumptions=("requests stay as long as they are",),
    more_replicas=0.4,
)  # fmt: skip


class Desk:
    """An ``Alerts`` whose pauses take no time and are written down."""

    def __init__(self, *channels: Any) -> None:
        self.said: list[str] = []
        self.pauses: list[float] = []
        self.now_s = NOW_S
        self.alerts = Alerts(
            channels, deployment="chat", say=self.said.append, now_s=lambda: self.now_s, monotonic_s=lambda: 400.0,
            pause=self._pause,
        )  # fmt: skip

    def _pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return False

    def sent(self, alert: Alert = ALERT, worker: str = "") -> bool:
        sent = self.alerts.send(alert, worker=worker)
        assert self.alerts.wait_until_idle(20)
        return sent


def hook(server: HookServer, path: str = "/in", secret: bytes | None = b"shared") -> Webhook:
    return Webhook(server.url + path, secret=secret, now_s=lambda: NOW_S)


def mail(server: MailServer, **more: Any) -> Mail:
    tls = more.pop("tls_context", None)
    password = more.pop("password", None)
    to = more.pop("to", ("ops@example.org", "lead@example.org"))
    smtp = Smtp(host="127.0.0.1", port=server.port, sender="rw@example.org", to=to, **more)
    return Mail(smtp, password=password, tls=tls)


@pytest.fixture
def receiver() -> Iterator[HookServer]:
    with hook_server(HookServer()) as server:
        yield server


def test_the_webhook_gets_everything_that_helps_and_a_line_for_chat(receiver: HookServer) -> None:
    desk = Desk(hook(receiver))
    assert desk.sent()
    (posted,) = receiver.posted
    value = json.loads(posted.body)
    assert (posted.path, posted.headers["content-type"]) == ("/in", "application/json")
    assert {name: value[name] for name in ("event", "deployment", "tenant", "quota", "used", "limit", "ratio")} == {
        "event": "quota.near", "deployment": "chat", "tenant": "acme", "quota": "kv_quota", "used": 930, "limit": 1000,
        "ratio": 0.93,
    }  # fmt: skip
    assert (value["at"], value["since"]) == ("2026-11-30T12:00:00Z", "2026-11-30T11:55:00Z")
    assert (value["advice"], value["more_replicas"]) == (list(ALERT.advice), 0.4)
    assert value["assumptions"] == list(ALERT.assumptions)
    assert value["text"].startswith("tenant acme is at 93% of its kv_quota (chat)\n930 of 1,000 KV blocks")
    assert posted.headers["x-roadworthy-delivery"] == value["id"]
    assert (desk.alerts.delivered, desk.alerts.failed) == (1, 0)
    desk.alerts.close()


def test_the_signature_is_what_a_receiver_computes_from_time_and_body(receiver: HookServer) -> None:
    desk = Desk(hook(receiver))
    desk.sent()
    (posted,) = receiver.posted
    at, given = (part.partition("=")[2] for part in posted.headers["x-roadworthy-signature"].split(","))
    assert int(at) == int(NOW_S)
    assert given == hmac.new(b"shared", at.encode() + b"." + posted.body, "sha256").hexdigest()
    desk.alerts.close()


def test_the_guides_own_check_takes_our_signature_and_no_other() -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "tenants.md").read_text()
    (check,) = re.findall(r"```python\n(def is_ours.*?)```", guide, re.DOTALL)
    names: dict[str, Any] = {"hmac": hmac, "time": time}
    exec(check, names)
    is_ours, at_s = names["is_ours"], int(time.time())
    assert is_ours(signature(b"shared", b"{}", at_s), b"{}", b"shared")
    assert not is_ours(signature(b"shared", b"{}", at_s), b"{ }", b"shared")
    assert not is_ours(signature(b"other", b"{}", at_s), b"{}", b"shared")
    assert not is_ours(signature(b"shared", b"{}", at_s - 1000), b"{}", b"shared")


def test_without_a_secret_nothing_is_signed(receiver: HookServer) -> None:
    desk = Desk(hook(receiver, secret=None))
    desk.sent()
    assert "x-roadworthy-signature" not in receiver.posted[0].headers
    desk.alerts.close()


def test_a_receiver_in_trouble_is_asked_again_with_growing_pauses_and_the_same_id(receiver: HookServer) -> None:
    receiver.statuses = [500, 503, 408]
    desk = Desk(hook(receiver))
    desk.sent()
    assert len(receiver.posted) == 4
    assert desk.pauses == [2.0, 4.0, 8.0]
    assert len({one.headers["x-roadworthy-delivery"] for one in receiver.posted}) == 1
    assert desk.alerts.delivered == 1
    desk.alerts.close()


def test_retry_after_is_kept_to_within_reason(receiver: HookServer) -> None:
    receiver.statuses, receiver.headers = [429, 429], {"Retry-After": "60"}
    desk = Desk(hook(receiver))
    desk.sent()
    receiver.statuses, receiver.headers = [429], {"Retry-After": "86400"}
    desk.sent()
    assert desk.pauses == [60.0, 60.0, 300.0]
    desk.alerts.close()


def test_it_is_given_up_after_the_last_attempt_and_said_in_full(receiver: HookServer) -> None:
    receiver.statuses = [500] * ATTEMPTS
    desk = Desk(hook(receiver))
    desk.sent()
    assert (len(receiver.posted), len(desk.pauses), desk.alerts.failed) == (ATTEMPTS, ATTEMPTS - 1, 1)
    assert "not delivered: it answers 500" in desk.said[-1]
    assert "acme" in desk.said[-1]
    desk.alerts.close()


@pytest.mark.parametrize("status", [400, 401, 404, 410, 301, 307])
def test_a_refusal_or_a_redirect_is_not_asked_again(receiver: HookServer, status: int) -> None:
    receiver.statuses, receiver.headers = [status], {"Location": receiver.url + "/elsewhere"}
    desk = Desk(hook(receiver))
    desk.sent()
    assert [one.path for one in receiver.posted] == ["/in"]
    assert (desk.pauses, desk.alerts.failed) == ([], 1)
    desk.alerts.close()


def test_what_is_said_never_tells_the_path_of_the_url(receiver: HookServer) -> None:
    receiver.statuses = [404]
    desk = Desk(hook(receiver, "/services/T0/secret-path"))
    desk.sent()
    assert "secret-path" not in str(desk.said)
    assert "webhook at 127.0.0.1" in desk.said[-1]
    desk.alerts.close()


def test_a_receiver_that_is_not_there_is_asked_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        desk = Desk(Webhook(f"http://127.0.0.1:{taken.getsockname()[1]}/", secret=None, now_s=lambda: NOW_S))
        desk.sent()
    assert len(desk.pauses) == ATTEMPTS - 1
    assert "refused" in desk.said[-1]
    desk.alerts.close()


def test_sending_never_waits_for_a_receiver_and_closing_gives_up_what_is_stuck(receiver: HookServer) -> None:
    receiver.hold = threading.Event()
    with mail_server(MailServer()) as mails:
        desk = Desk(hook(receiver), mail(mails))
        for index in range(MOST_WAITING + 5):
            desk.alerts.send(Alert(tenant_id=f"t{index}", quota="rpm", used=9, limit=10, ratio=0.9, since_s=0.0))
        desk.alerts.close(0.01)
        assert any("were not delivered" in one for one in desk.said)
        receiver.hold.set()
    assert len(receiver.posted) == 1


def test_one_incident_seen_by_several_workers_is_told_once(receiver: HookServer) -> None:
    desk = Desk(hook(receiver))
    assert desk.sent(worker="0")
    desk.now_s += 30
    assert not desk.sent(worker="1")
    assert not desk.sent(worker="2")
    desk.now_s += 3600
    assert desk.sent(worker="1")
    assert len(receiver.posted) == 2
    desk.alerts.close()


def test_the_next_incident_of_the_same_worker_and_another_quota_are_told(receiver: HookServer) -> None:
    desk = Desk(hook(receiver))
    other = Alert(tenant_id="acme", quota="rpm", used=9, limit=10, ratio=0.9, since_s=100.0)
    assert desk.sent(worker="0")
    assert desk.sent(worker="0")
    assert desk.sent(other, worker="1")
    assert len(receiver.posted) == 3
    desk.alerts.close()


def test_the_mail_says_it_for_people_and_is_marked_as_ours() -> None:
    with mail_server(MailServer()) as server:
        desk = Desk(mail(server))
        desk.sent()
        desk.alerts.close()
    (message,) = server.messages
    assert message["Subject"] == "[roadworthy] tenant acme is at 93% of its kv_quota (chat)"
    assert (message["From"], message["To"]) == ("rw@example.org", "ops@example.org, lead@example.org")
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Message-ID"].endswith("@example.org>")
    assert server.recipients == [["ops@example.org", "lead@example.org"]]
    text = message.get_content()
    assert "930 of 1,000 KV blocks, since 2026-11-30T11:55:00Z" in text
    assert ALERT.advice[0] in text
    assert "- requests stay as long as they are" in text


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_mail_goes_over_a_connection_that_is_checked_and_logged_into(security: str, tmp_path: Path) -> None:
    ca = authority(tmp_path)
    certificate = signed(tmp_path, ca, "mail")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.cert, certificate.key)
    trusting = ssl.create_default_context(cafile=str(ca.cert))
    with mail_server(MailServer(user=("rw", "secret"), **{security: context})) as server:  # type: ignore[arg-type]
        desk = Desk(mail(server, security=security, user="rw", password="secret", tls_context=trusting))
        desk.sent()
        assert (len(server.messages), server.protected) == (1, [True])
        wrong = Desk(mail(server, security=security, user="rw", password="other", tls_context=trusting))
        wrong.sent()
        assert "535" in wrong.said[-1]
        assert "other" not in str(wrong.said)
        strangers = Desk(mail(server, security=security, user="rw", password="secret"))  # trusts the system's only
        strangers.sent()
        assert "certificate" in strangers.said[-1]
        assert len(server.messages) == 1
        for one in (desk, wrong, strangers):
            one.alerts.close()


@pytest.mark.parametrize(
    ("replies", "attempts", "delivered"),
    [
        ({"MAIL": ["451 later"]}, 2, 1),
        ({"DATA": ["452 full"]}, 2, 1),
        ({"MAIL": ["550 never"]}, 1, 0),
        ({"RCPT": ["450 busy", "450 busy"]}, 2, 1),
        ({"RCPT": ["550 unknown", "550 unknown"]}, 1, 0),
        ({"RCPT": ["550 unknown"]}, 1, 0),
    ],
)
def test_a_mail_server_that_says_later_is_asked_again_and_one_that_says_never_is_not(
    replies: dict[str, list[str]], attempts: int, delivered: int
) -> None:
    with mail_server(MailServer(replies=replies)) as server:
        desk = Desk(mail(server))
        desk.sent()
        assert (len(desk.pauses) + 1, desk.alerts.delivered) == (attempts, delivered)
        desk.alerts.close()


def test_one_recipient_that_is_refused_is_named_and_the_other_gets_the_mail() -> None:
    with mail_server(MailServer(replies={"RCPT": ["550 unknown"]})) as server:
        desk = Desk(mail(server))
        desk.sent()
        assert server.recipients == [["lead@example.org"]]
        assert "refused for ops@example.org" in desk.said[-1]
        desk.alerts.close()


def test_a_webhook_that_fails_does_not_hold_up_the_mail(receiver: HookServer) -> None:
    receiver.hold = threading.Event()
    with mail_server(MailServer()) as server:
        desk = Desk(hook(receiver), mail(server))
        desk.alerts.send(ALERT)
        assert desk.alerts.channel("mail").wait_until_idle(20)
        assert len(server.messages) == 1
        receiver.hold.set()
        desk.alerts.close()


def test_the_document_and_the_environment_say_where_alerts_go(receiver: HookServer) -> None:
    with mail_server(MailServer()) as server:
        spec = AlertSpec(
            webhook=receiver.url + "/in",
            smtp=Smtp(host="127.0.0.1", port=server.port, sender="rw@example.org", to=("ops@example.org",)),
        )
        said: list[str] = []
        alerts = alerts_of(spec, {SECRET_VARIABLE: "shared"}, deployment="chat", say=said.append)
        alerts.send(ALERT)
        assert alerts.wait_until_idle(20)
        alerts.close()
        assert "x-roadworthy-signature" in receiver.posted[0].headers
        assert len(server.messages) == 1
    nowhere = alerts_of(AlertSpec(), {}, deployment="chat", say=said.append)
    assert nowhere.send(ALERT)
    assert "acme" in said[-1]
    nowhere.close()


def test_a_password_that_is_not_set_stops_the_start() -> None:
    smtp = Smtp(host="h", sender="a@b", to=("c@d",), user="u", password_env="SMTP_PASSWORD", security="tls")
    with pytest.raises(SpecError, match="SMTP_PASSWORD") as raised:
        alerts_of(AlertSpec(smtp=smtp), {}, deployment="chat", say=print)
    assert "export SMTP_PASSWORD" in raised.value.hint
