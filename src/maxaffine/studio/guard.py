"""Who may speak to the studio: this machine, with the token of the address, from the studio's own pages, in bounded messages."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "maxaffine_studio"
MOST_BODY = 4_000_000  # bytes of a request
MOST_QUERY = 20_000  # bytes of an address


class Guard:
    """In front of everything else: the host, the origin, the token, the size."""

    def __init__(self, app: App, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self.origins = {f"http://{host}" for host in self.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        code, sentence, fresh = self._judged(scope, headers)
        if code:
            await _turned_away(scope, send, code, sentence)
            return
        await self.app(
            scope, receive if scope["type"] == "websocket" else _bounded(receive), self._with_cookie(send) if fresh else send
        )

    def _judged(self, scope: Scope, headers: MutableMapping[str, str]) -> tuple[int, str, bool]:
        """0 and whether the token came with the address, or the status and the sentence of a refusal."""
        if headers.get("host") not in self.hosts:
            return 403, "the studio answers at 127.0.0.1 only.", False
        origin = headers.get("origin")
        if origin is not None and origin not in self.origins:
            return 403, "the studio answers its own pages only.", False
        query = scope.get("query_string", b"")
        if len(query) > MOST_QUERY:
            return 414, "the address is too long.", False
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BODY:
            return 413, f"a request may have at most {MOST_BODY:,} bytes.", False
        given = parse_qs(query.decode("latin-1")).get("token", [""])[-1]
        if given and hmac.compare_digest(given.encode(), self.token.encode()):
            return 0, "", True
        if hmac.compare_digest(_cookie(headers.get("cookie", "")).encode(), self.token.encode()):
            return 0, "", False
        return 403, "the token is missing: open the address that `maxaffine studio` printed.", False

    def _with_cookie(self, send: Send) -> Send:
        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                cookie = f"{COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Strict"
                message["headers"] = [*message.get("headers", []), (b"set-cookie", cookie.encode())]
            await send(message)

        return sent


def _cookie(text: str) -> str:
    try:
        found = SimpleCookie(text).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _bounded(receive: Receive) -> Receive:
    """A body that was sent in pieces counts as well."""
    seen = 0

    async def received() -> MutableMapping[str, Any]:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        return {"type": "http.disconnect"} if seen > MOST_BODY else message

    return received


async def _turned_away(scope: Scope, send: Send, code: int, sentence: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    body = f"maxaffine studio: {sentence}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
