"""An answer goes out when its request's body has been read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class WholeBody:
    """Reads what the application left of a body before its answer starts.

    The server closes a connection as soon as it has answered. A gateway that is still sending then learns that it is
    closed, and never what was answered: that a form is no document, or that the disk is full. How much there may be,
    and how slow, is the gateway's to limit.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        whole = False

        async def received() -> Message:
            nonlocal whole
            message = await receive()
            whole = whole or message["type"] != "http.request" or not message.get("more_body", False)
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                while not whole:
                    await received()
            await send(message)

        await self._app(scope, received, sent)
