"""`wikiholt serve` with injected faults: it leaks memory and file descriptors, and some searches fail."""

import itertools
import os
import sys

from starlette.types import ASGIApp, Receive, Scope, Send

from wikiholt.interfaces.cli import http_server
from wikiholt.interfaces.cli.main import main

_LEAKED: list[bytes] = []
_FAIL_EVERY = 40


class LeakingApp:
    """Leaks memory and a descriptor with every request, and fails every fortieth search."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._searches = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        _LEAKED.append(os.urandom(200_000))
        os.open(os.devnull, os.O_RDONLY)
        if scope["path"].endswith("/search") and next(self._searches) % _FAIL_EVERY == 0:
            await send({"type": "http.response.start", "status": 500, "headers": []})
            await send({"type": "http.response.body", "body": b"injected"})
            return
        await self._app(scope, receive, send)


if __name__ == "__main__":
    original_create_app = http_server.create_app

    def create_faulty_app(*arguments):  # type: ignore[no-untyped-def]
        app = original_create_app(*arguments)
        app.add_middleware(LeakingApp)
        return app

    http_server.create_app = create_faulty_app
    sys.exit(main())
