"""`maxaffine studio`: the address, the guard in front of it, and an end that leaves nothing behind."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from typing import Any

from maxaffine.core.errors import BadInput

TITLE = "maxaffine studio"


def free_port(wanted: int) -> int:
    """The port, or one that is free for 0; BadInput where it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as failure:
            raise BadInput(
                f"`port` (={wanted}) cannot be used: {failure.strerror}; leave it out, or give 0 for a free one."
            ) from None
        return int(probe.getsockname()[1])


def serve(port: int = 0, browser: bool = True, told: Callable[[str], None] = print) -> None:
    """Run until interrupted."""
    from nicegui import app, ui

    from maxaffine.studio.guard import MOST_BODY, Guard

    chosen, token = free_port(port), secrets.token_urlsafe(24)
    pages: set[Any] = set()
    app.add_middleware(Guard, token=token, port=chosen)
    app.on_shutdown(lambda: [page.close() for page in list(pages)])

    @ui.page("/", title=TITLE)
    def main() -> None:
        from nicegui import context

        from maxaffine.studio.tabs import tabs

        page = tabs(dict(context.client.request.query_params))
        pages.add(page)

        def gone() -> None:
            pages.discard(page)
            page.close()

        context.client.on_delete(gone)

    address = f"http://127.0.0.1:{chosen}/?token={token}"
    app.on_startup(lambda: told(address))
    ui.run(
        host="127.0.0.1", port=chosen, title=TITLE, show=address if browser else False, reload=False, show_welcome_message=False,
        dark=None, ws_max_size=MOST_BODY, limit_concurrency=400, reconnect_timeout=5.0,
    )  # fmt: skip
