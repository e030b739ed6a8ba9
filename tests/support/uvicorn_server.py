"""Runs an application on a real server on a port of this machine."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tests.support.wait import TIMEOUT_S, wait_until

_OPTIONS: dict[str, Any] = {
    "port": 0,
    "log_config": None,
    "timeout_graceful_shutdown": 5,
    # A client must not reuse a connection that the server closes at that moment.
    "timeout_keep_alive": int(TIMEOUT_S),
    # Clients set their own address with X-Forwarded-For.
    "proxy_headers": True,
    "forwarded_allow_ips": "127.0.0.1",
}


@contextmanager
def run_server(app: Any, **options: Any) -> Iterator[str]:
    """Serve the application on a free port until the block ends. Returns the URL; `options` are those of uvicorn."""
    server = uvicorn.Server(uvicorn.Config(app, **_OPTIONS | options))
    thread = threading.Thread(target=server.run, name="server", daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the server starts")
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
