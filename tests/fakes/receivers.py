"""Those who get alerts: an HTTP and a mail server on sockets of their own, which note what came and can refuse."""

from __future__ import annotations

import base64
import socketserver
import ssl
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import EmailMessage


@dataclass
class Posted:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class HookServer:
    """Answers with ``statuses`` in turn, and with 204 once they are used up."""

    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    posted: list[Posted] = field(default_factory=list)
    hold: threading.Event | None = None
    url: str = ""


@contextmanager
def hook_server(server: HookServer) -> Iterator[HookServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.posted.append(Posted(self.path, headers, body))
            if server.hold is not None:
                server.hold.wait(30)
            self.send_response(server.statuses.pop(0) if server.statuses else 204)
            for name, value in server.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listening.server_port}"
    with _served(listening):
        yield server


@dataclass
class MailServer:
    """Takes mail. ``replies`` gives the answer to the first commands of a name instead of the usual one.

    Args:
        starttls, tls: offers a protected connection, or speaks nothing else, with this context.
        user: whom it lets in, with the password; None asks nobody.
    """

    replies: dict[str, list[str]] = field(default_factory=dict)
    starttls: ssl.SSLContext | None = None
    tls: ssl.SSLContext | None = None
    user: tuple[str, str] | None = None
    messages: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    protected: list[bool] = field(default_factory=list)
    port: int = 0


@contextmanager
def mail_server(server: MailServer) -> Iterator[MailServer]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            if server.tls is not None and not self._protect(server.tls):
                return
            self.protected, self.known, self.to = server.tls is not None, False, []
            self._say("220 mail ready")
            while line := self.rfile.readline():
                word, _, rest = line.decode().strip().partition(" ")
                scripted = server.replies.get(word.upper())
                if scripted:
                    self._say(scripted.pop(0))
                elif not getattr(self, f"_{word.lower()}", self._unknown)(rest):
                    return

        def _protect(self, context: ssl.SSLContext) -> bool:
            try:
                self.request = context.wrap_socket(self.request, server_side=True)
            except (ssl.SSLError, OSError):
                return False  # the client did not trust us
            self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb", 0)
            return True

        def _say(self, text: str) -> bool:
            self.wfile.write(f"{text}\r\n".encode())
            return True

        def _ehlo(self, _: str) -> bool:
            offers = ["STARTTLS"] if server.starttls is not None and not self.protected else []
            offers += ["AUTH PLAIN"] if server.user is not None else []
            lines = ["mail", *offers, "8BITMIME"]
            return all(self._say(f"250{'-' if one is not lines[-1] else ' '}{one}") for one in lines)

        def _starttls(self, _: str) -> bool:
            assert server.starttls is not None
            self._say("220 go ahead")
            self.protected = self._protect(server.starttls)
            return self.protected

        def _auth(self, rest: str) -> bool:
            _, user, password = base64.b64decode(rest.partition(" ")[2]).decode().split("\0")
            self.known = (user, password) == server.user
            return self._say("235 welcome" if self.known else "535 no")

        def _mail(self, _: str) -> bool:
            self.to = []
            return self._say("250 ok" if server.user is None or self.known else "530 log in first")

        def _rcpt(self, rest: str) -> bool:
            self.to.append(rest.partition("<")[2].partition(">")[0])
            return self._say("250 ok")

        def _data(self, _: str) -> bool:
            self._say("354 go on")
            lines = []
            while (line := self.rfile.readline()) != b".\r\n":
                lines.append(line.removeprefix(b"."))
            message = message_from_bytes(b"".join(lines), policy=default)
            server.messages.append(message)  # type: ignore[arg-type]
            server.recipients.append(self.to)
            server.protected.append(self.protected)
            return self._say("250 taken")

        def _rset(self, _: str) -> bool:
            return self._say("250 ok")

        def _quit(self, _: str) -> bool:
            self._say("221 bye")
            return False

        def _unknown(self, _: str) -> bool:
            return self._say("502 what")

        def finish(self) -> None:
            super().finish()
            self.request.close()

    listening = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.port = listening.server_address[1]
    with _served(listening):
        yield server


@contextmanager
def _served(listening: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
