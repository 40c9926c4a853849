"""Alerts by mail, through the server that the document names."""

from __future__ import annotations

import smtplib
import ssl
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import TYPE_CHECKING

from roadworthy.adapters.alerts.delivery import GiveUp, NotNow

if TYPE_CHECKING:
    from roadworthy.adapters.alerts.notice import Notice
    from roadworthy.spec.governance_values import Smtp

TIMEOUT_S = 15.0


class Mail:
    """Mails notices.

    Args:
        password: of ``smtp.user``; None where nobody logs in.
        tls: how a protected connection is checked.
    """

    def __init__(self, smtp: Smtp, *, password: str | None, tls: ssl.SSLContext | None = None) -> None:
        self._smtp, self._password, self._tls = smtp, password, tls
        self.name = f"mail by {smtp.host}"

    def deliver(self, notice: Notice) -> None:
        """Hand it to the mail server once.

        Raises:
            NotNow: not reachable, or it said that it has no time now.
            GiveUp: it refuses, and will the next time.
        """
        try:
            with self._connected() as server:
                refused = server.send_message(self._message(notice))
        except smtplib.SMTPRecipientsRefused as error:
            raise _judged(max(code for code, _ in error.recipients.values()), "every recipient") from None
        except (smtplib.SMTPNotSupportedError, ssl.SSLCertVerificationError) as error:
            raise GiveUp(str(error)) from None
        except smtplib.SMTPResponseException as error:
            raise _judged(error.smtp_code, "the mail") from None
        except smtplib.SMTPException as error:
            raise NotNow(str(error) or type(error).__name__) from None
        except OSError as error:
            raise NotNow(error.strerror or str(error) or type(error).__name__) from None
        if refused:
            raise GiveUp(f"delivered, but refused for {', '.join(sorted(refused))}")

    def _connected(self) -> smtplib.SMTP:
        smtp = self._smtp
        if smtp.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(smtp.host, smtp.port, timeout=TIMEOUT_S, context=self._context())
        else:
            server = smtplib.SMTP(smtp.host, smtp.port, timeout=TIMEOUT_S)
        try:
            if smtp.security == "starttls":
                server.starttls(context=self._context())
            if smtp.user is not None and self._password is not None:
                server.login(smtp.user, self._password)
        except BaseException:
            server.close()
            raise
        return server

    def _context(self) -> ssl.SSLContext:
        return self._tls or ssl.create_default_context()

    def _message(self, notice: Notice) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"] = self._smtp.sender, ", ".join(self._smtp.to)
        message["Subject"] = f"[roadworthy] {notice.title}"
        message["Date"] = format_datetime(datetime.fromtimestamp(notice.at_s, tz=UTC))
        message["Message-ID"] = f"<{notice.id}@{self._smtp.sender.rpartition('@')[2]}>"
        message["Auto-Submitted"] = "auto-generated"  # RFC 3834: nobody's absence note answers it
        message.set_content(notice.text())
        return message


def _judged(code: int, what: str) -> NotNow | GiveUp:
    """RFC 5321: 4xx may go through later, 5xx will not."""
    return GiveUp(f"it refuses {what} ({code})") if code >= 500 else NotNow(f"it has no time for {what} ({code})")
