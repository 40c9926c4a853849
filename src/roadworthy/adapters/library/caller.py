"""The model as one tenant may use it: through the gateway, with the caller's own key, and only while somebody waits."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import urllib.request
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from roadworthy.adapters.longdoc_model import ModelClient
from roadworthy.core.errors import Refused, RoadworthyError, Temporary
from roadworthy.longdoc.converse import Message, Spoken, TooLong

LOOK_S = 0.2
"""How soon a request is given up that nobody waits for any more."""


class Stopped(Temporary):
    """Nobody wants the answer any more."""


class CallersModel(ModelClient):
    """What the gateway refuses comes back as it said it: status, code, and when to try again.

    Args:
        stop: set when the answer is no longer wanted; the request to the engine is then given up.
        patient: wait where the gateway says when to try again, instead of saying so to the caller.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None,
        model: str | None,
        session: str,
        stop: threading.Event,
        patient: bool = False,
    ) -> None:
        # a tenant is not told where the gateway's own processes meet
        super().__init__(url, key=key, model=model, session=session, sleep=self._waited, called="the gateway")
        self._stop, self._patient = stop, patient
        self._last: Refused | None = None
        self._cuts = _Cuttable()
        self._opener.add_handler(self._cuts)
        self._over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def __enter__(self) -> CallersModel:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        """A request that waits for its first token hears of nothing: its connection is cut from here."""
        while not self._over.wait(LOOK_S):
            if self._stop.is_set():
                self._cuts.cut()

    def chat(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        io_wait_s: float = 0.0,
        heard: Callable[[str], None] = lambda _: None,
    ) -> Spoken:
        def hear(piece: str) -> None:
            self._check()
            heard(piece)

        self._check()
        return super().chat(messages, max_tokens=max_tokens, io_wait_s=io_wait_s, heard=hear)

    def _check(self) -> None:
        if self._stop.is_set():
            raise Stopped("given up")

    def _waited(self, wait_s: float) -> None:
        if not self._patient and self._last is not None:
            self._last.retry_after_s = wait_s
            raise self._last
        if self._stop.wait(wait_s):
            self._check()

    def _refused(self, path: str, status: int, body: bytes) -> RoadworthyError:
        error = super()._refused(path, status, body)
        if isinstance(error, TooLong):
            return error
        self._last = Refused(_text(body, "message") or str(error), code=_code(body), status=status, hint=error.hint)
        return error if isinstance(error, Temporary) else self._last


class _Cuttable(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Connections that another thread can end."""

    handler_order = 100  # before urllib's own

    def __init__(self) -> None:
        super().__init__()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Plain, self._sockets), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Secure, self._sockets), req)

    def cut(self) -> None:
        for one in tuple(self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class _Plain(http.client.HTTPConnection):
    def __init__(self, sockets: weakref.WeakSet[socket.socket], host: str, **more: Any) -> None:
        super().__init__(host, **more)
        self._sockets = sockets

    def connect(self) -> None:
        super().connect()
        self._sockets.add(self.sock)


class _Secure(_Plain, http.client.HTTPSConnection):
    pass


def _code(body: bytes) -> str:
    code = _text(body, "code")
    return code if code and code.replace("_", "").isalnum() and code.isascii() else "engine_error"


def _text(body: bytes, name: str) -> str:
    try:
        data: Any = json.loads(body)
    except ValueError:
        return ""
    error = data.get("error") if isinstance(data, dict) else None
    value = error.get(name) if isinstance(error, dict) else None
    return value[:500] if isinstance(value, str) else ""
