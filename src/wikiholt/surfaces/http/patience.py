"""Connections that do not wait for ever: who opens many and says little must not keep others out.

uvicorn waits as long as it takes for a request to come in whole, on as many connections as there may be files open.
"""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 60.0
"""How long a request may take to come in whole, head and body."""
MOST_CONNECTIONS = 2048
"""A quarter of the files the service may have open; the rest are indexes and git."""


class Impatient(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with an end to waiting."""

    request_seconds = REQUEST_SECONDS
    most_connections = MOST_CONNECTIONS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            transport.abort()
        else:
            self._follow()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        super().connection_lost(exc)

    def _follow(self) -> None:
        """Let the time run while something is still to come from the client, and only then."""
        if self.transport.is_closing() or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._calm()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.request_seconds, self.transport.close)

    def _calm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: whoever likes could fill the log with it."""
