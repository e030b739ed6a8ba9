"""A thread that listens to what nodes tell each other, on a connection of its own to the home database.

A notification can get lost; what it is about is in rows, so its user also looks at them from time to time.
"""

import logging
import select
import socket
import time
from collections.abc import Callable
from threading import Lock, Thread

from wikiholt.errors import DatabaseUnavailable
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.index.postgres.errors import translate_errors
from wikiholt.index.postgres.pool import Connection

_LOG = logging.getLogger(__name__)

NOTIFY_CHANNEL = "wikiholt"
_RETRY_DELAY_S = 1.0
"""Delay before reconnecting to an unreachable database."""


class Listener:
    """Runs `work` in a thread with a connection that listens; again after a failure, until it is closed."""

    def __init__(self, catalog: Catalog, name: str, work: Callable[[Connection], None]) -> None:
        """`work` returns when `is_closed`."""
        self._is_closed = False
        self._catalog = catalog
        self._name = name
        self._work = work
        self._thread: Thread | None = None
        self._interrupt: Callable[[], object] = lambda: None
        self._closing = Lock()

    def is_closed(self) -> bool:
        return self._is_closed

    def start(self) -> None:
        self._interrupt_socket, writer = socket.socketpair()
        self._interrupt = writer.close
        self._thread = Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            self._interrupt()
            if self._thread is not None:
                self._thread.join(10)

    def receive(self, connection: Connection, seconds: float) -> set[str]:
        """The events that have arrived; without one, the first, or none after this time."""
        until = time.monotonic() + seconds
        while True:
            # Notifications that arrived during a statement do not make the socket readable again.
            events = {notification.payload for notification in connection.notifies(timeout=0)}
            if events or self.is_closed() or time.monotonic() >= until:
                return events
            self._wait(connection, until - time.monotonic())

    def _run(self) -> None:
        with self._interrupt_socket:
            while not self.is_closed():
                try:
                    with self._catalog.open_dedicated() as connection, translate_errors(connection):
                        connection.execute(f"LISTEN {NOTIFY_CHANNEL}")
                        self._work(connection)
                except DatabaseUnavailable:
                    self._wait(None, _RETRY_DELAY_S)
                except Exception:  # noqa: BLE001 - what the thread does is needed for as long as the process runs
                    _LOG.warning("the thread %s failed and tries again", self._name, exc_info=True)
                    self._wait(None, _RETRY_DELAY_S)

    def _wait(self, connection: Connection | None, seconds: float) -> None:
        """Wait for a notification, for close(), or until the time is over."""
        poll = select.poll()  # select() fails for descriptors above 1,023
        poll.register(self._interrupt_socket, select.POLLIN)
        if connection is not None:
            poll.register(connection.pgconn.socket, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
