"""Timeout and connection limit against slow clients that hold many connections.

uvicorn waits without limit for a complete request, on as many connections as the process may have open files.
"""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_TIMEOUT_S = 60.0
"""Maximum time in which a request, head and body, must arrive."""
MAX_CONNECTIONS = 2048
"""A quarter of the open files of the service; the others are for indexes and git."""


class TimeoutProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with a request timeout and a connection limit."""

    request_timeout_s = REQUEST_TIMEOUT_S
    max_connections = MAX_CONNECTIONS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.abort()
        else:
            self._update_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def _update_deadline(self) -> None:
        """Run the timer only while the client has still to send data."""
        if self.transport.is_closing() or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._cancel_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.request_timeout_s, self.transport.close)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: any client could fill the log with it."""
