"""One request for documents on its way from the data port to their process and back, its body as it comes.

The data port has read the head, knows whose key it is and how long the body may be. What goes on is a head of our own
(method, path, content type, tenant, key) and the body's bytes as the parser gave them, framed anew: nothing that a
client sends behind its body can pass for another request, or for another tenant's. The answer comes back as it is, and
both connections end with it.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, cast

from roadworthy.core.errors import Refused
from roadworthy.gateway.data import errors
from roadworthy.gateway.data.record import RequestRecord
from roadworthy.gateway.documents.place import TENANT_HEADER, socket_of

if TYPE_CHECKING:
    from roadworthy.gateway.data.client import ClientConnection
    from roadworthy.gateway.data.plane import DataPlane
    from roadworthy.gateway.data.record import Ending
    from roadworthy.gateway.data.request import Request
    from roadworthy.spec.gateway_values import DocumentsSpec

AT_ONCE = 16
"""Requests of one tenant in each process of the gateway; more are refused for a moment."""

SILENCE_S = 1800.0
"""Without a byte in either direction: an answer that is not streamed comes after several rounds with a model."""

HEAD_BYTES = 16 * 1024
"""Within which an answer's head has to end."""

LAST_CHUNK = b"\r\n0\r\n\r\n"
"""Ends an answer in chunks. Those are events of JSON, in which no bare line end stands."""

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})[^\r\n]*\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)

_CLIENT_LEFT = 499


class DocumentsPort:
    """The way to the documents' process, for one process of the gateway.

    Args:
        socket: where it listens.
        most_bytes: of a body.
    """

    def __init__(self, socket: Path, most_bytes: int) -> None:
        self.socket, self.most_bytes = socket, most_bytes
        self._at_once: Counter[str] = Counter()

    def passage(self, plane: DataPlane, client: ClientConnection, request: Request, started_s: float) -> Passage:
        """Let a request through. Raises Refused."""
        head = request.head
        assert head.principal is not None
        if head.version != "1.1":
            raise errors.BadRequest("documents are served over HTTP/1.1", code="http_version", status=505)
        if not (head.path + head.query).isascii():
            raise errors.BadRequest("the path is not ASCII", code="malformed_request", hint="percent-encode names")
        if head.content_length > self.most_bytes:
            raise too_large(self.most_bytes)
        tenant = head.principal.tenant.id
        if self._at_once[tenant] >= AT_ONCE:
            raise Refused(
                f"{AT_ONCE} requests for documents are in progress", code="documents_busy", status=429,
                hint="let some of them end first", retry_after_s=1.0,
            )  # fmt: skip
        self._at_once[tenant] += 1
        return Passage(self, plane, client, request, started_s)

    def left(self, tenant: str) -> None:
        self._at_once[tenant] -= 1
        if not self._at_once[tenant]:
            del self._at_once[tenant]


def documents_port(spec: DocumentsSpec) -> DocumentsPort | None:
    """The way to the process that serves ``spec``; None where it asks for none."""
    return DocumentsPort(socket_of(Path(spec.home)), spec.max_upload_bytes) if spec.home else None


class Passage(asyncio.Protocol):
    """One request; to the client's connection it is what an exchange is to it."""

    def __init__(
        self, port: DocumentsPort, plane: DataPlane, client: ClientConnection, request: Request, started_s: float
    ) -> None:
        self._port, self._plane, self._client, self._request = port, plane, client, request
        self._started_s = self._heard_s = started_s
        self._back: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        self._head = b""  # of the answer, until it is whole
        self._body_bytes: int | None = None  # that the answer announces
        self._tail = b""
        self._status = 0
        self._sent_bytes = self._received_bytes = 0
        self._chunked = request.head.chunked
        self._client_paused_s: float | None = None
        self._held = False  # the client waits for us, not we for it
        self._over = False
        self.complete = False  # the whole body has come

    # what the client's connection calls

    def start(self) -> None:
        self._early.append(self._forwarded_head())
        self._hold(True)
        self._task = self._plane.spawn(self._connect())

    def body(self, part: bytes) -> None:
        """More of the body."""
        self._sent_bytes += len(part)
        self._heard_s = self._plane.now_s()
        if self._sent_bytes > self._port.most_bytes:
            self._end(too_large(self._port.most_bytes), "refused")
            return
        self._forward(b"%x\r\n%b\r\n" % (len(part), part) if self._chunked else part)

    def body_ended(self) -> None:
        self.complete = True
        if self._chunked:
            self._forward(b"0\r\n\r\n")

    def spoiled(self, refused: Refused) -> None:
        """What came cannot be read on."""
        if not self.complete:
            self._end(refused, "refused")

    def client_left(self) -> None:
        self._finish("client_left", _CLIENT_LEFT)

    def client_paused(self) -> None:
        self._client_paused_s = self._plane.now_s()
        if self._back is not None:
            self._back.pause_reading()

    def client_resumed(self) -> None:
        self._client_paused_s = None
        self._heard_s = self._plane.now_s()
        if self._back is not None and not self._over:
            self._back.resume_reading()

    # what the plane calls

    def check(self, now_s: float) -> None:
        """Called by the sweep."""
        limits, silent_s = self._plane.limits, now_s - self._heard_s
        if self._client_paused_s is not None:
            if now_s - self._client_paused_s > limits.client_stall_s:
                self._finish("client_stalled", _CLIENT_LEFT)
                self._client.abort()
        elif not self.complete and not self._held and silent_s > limits.body_timeout_s:
            self._end(
                errors.BadRequest(
                    "the body of the request stopped coming", code="request_timeout", status=408, hint="send it again"
                ),
                "refused",
            )
        elif silent_s > SILENCE_S:
            self._end(unavailable("it gave no answer"), "engine_timeout")

    def cut(self) -> None:
        self._end(errors.shutting_down(), "shutdown")

    # the documents' process

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: self, str(self._port.socket))
        except OSError as error:
            self._end(unavailable(error.strerror or type(error).__name__), "no_engine")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        back = cast("asyncio.Transport", transport)
        if self._over:
            back.abort()
            return
        self._back = back
        back.set_write_buffer_limits(high=self._plane.limits.write_buffer_bytes)
        if self._client_paused_s is not None:
            back.pause_reading()
        early, self._early = self._early, []
        self._hold(False)
        back.write(b"".join(early))

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        self._heard_s = self._plane.now_s()
        if not self._status:
            data = self._head + data
            end = data.find(b"\r\n\r\n") + 4
            if end < 4 and len(data) <= HEAD_BYTES:
                self._head = data
                return
            found = _STATUS.match(data)
            if end < 4 or found is None:
                self._end(unavailable("its answer is no HTTP"), "engine_error")
                return
            self._status, self._head = int(found[1]), b""
            length = _LENGTH.search(data, 0, end)
            if self._request.head.method == "HEAD":
                self._body_bytes = 0
            elif length is not None:
                self._body_bytes = int(length[1])
            self._received_bytes = len(data) - end
            line = found.end()
            data = b"%bx-request-id: %b\r\n%b" % (data[:line], self._request.id, data[line:])
        else:
            self._received_bytes += len(data)
        self._tail = (self._tail + data[-len(LAST_CHUNK) :])[-len(LAST_CHUNK) :]
        self._client.pass_back(data)
        if self._answered:
            self._finish("ok", self._status)
            self._client.passage_over()

    @property
    def _answered(self) -> bool:
        """Whether all of the answer has come: a client that has it may leave before its connection is closed."""
        if self._body_bytes is not None:
            return self._received_bytes >= self._body_bytes
        return self._tail == LAST_CHUNK

    def eof_received(self) -> None:
        """The connection closes."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._back = None
        if self._over:
            return
        if not self._status:
            self._end(unavailable("it ended the connection"), "engine_error")
            return
        self._finish("engine_error", self._status)  # before the answer was whole
        self._client.abort()

    def pause_writing(self) -> None:
        self._hold(True)

    def resume_writing(self) -> None:
        self._hold(False)

    # ways out

    def _hold(self, held: bool) -> None:
        self._held, self._heard_s = held, self._plane.now_s()
        if held:
            self._client.hold()
        else:
            self._client.go_on()

    def _forward(self, data: bytes) -> None:
        if self._over:
            return
        if self._back is None:
            self._early.append(data)
        else:
            self._back.write(data)

    def _end(self, refused: Refused, ending: Ending) -> None:
        """Answer with ``refused`` if nothing has gone out yet; in any case, that is it."""
        if self._over:
            return
        unanswered = not self._status
        self._finish(ending, refused.status, decision=refused.code)
        if unanswered:
            self._client.refuse(refused, self._request, close=True)
            self._client.passage_over()
        else:
            self._client.abort()

    def _finish(self, ending: Ending, status: int, *, decision: str = "documents") -> None:
        if self._over:
            return
        self._over = True
        head, now_s = self._request.head, self._plane.now_s()
        assert head.principal is not None
        tenant = head.principal.tenant.id
        if self._task is not None and self._back is None:
            self._task.cancel()
        if self._back is not None:
            self._back.abort()
        self._port.left(tenant)
        self._plane.finished(
            self,
            RequestRecord(
                request_id=self._request.id.decode("ascii"), tenant_id=tenant, operation="documents", model="",
                endpoint="", decision=decision, ending=ending, status=status, request_bytes=self._sent_bytes,
                response_bytes=self._received_bytes, started_s=self._started_s, duration_s=now_s - self._started_s,
            ),
        )  # fmt: skip

    def _forwarded_head(self) -> bytes:
        head = self._request.head
        assert head.principal is not None
        target = head.path + (f"?{head.query}" if head.query else "")
        lines = [
            f"{head.method} {target} HTTP/1.1".encode("ascii"), b"host: documents", b"connection: close",
            f"{TENANT_HEADER}: {head.principal.tenant.id}".encode("ascii"), b"x-request-id: " + self._request.id,
        ]  # fmt: skip
        if head.key:
            lines.append(b"authorization: Bearer " + head.key)
        if head.content_type:
            lines.append(b"content-type: " + head.content_type)
        if self._chunked:
            lines.append(b"transfer-encoding: chunked")
        elif head.content_length >= 0:
            lines.append(b"content-length: %d" % head.content_length)
        return b"\r\n".join(lines) + b"\r\n\r\n"


def unavailable(why: str) -> Refused:
    return Refused(
        f"documents are not served at this moment: {why}", code="documents_unavailable", status=503,
        hint="try again; what was stored is kept", retry_after_s=2.0,
    )  # fmt: skip


def too_large(most_bytes: int) -> Refused:
    return errors.BadRequest(
        f"a document may take {most_bytes:,} bytes", code="document_too_large", status=413,
        hint="split it, or ask the operator for more (gateway.documents.max_upload)",
    )  # fmt: skip
