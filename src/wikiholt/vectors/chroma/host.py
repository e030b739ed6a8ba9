"""Where Chroma runs: on a server that somebody else runs, or in a child process of ours (see `spawning`)."""

import socket
import ssl
from typing import Protocol
from urllib.parse import urlsplit


class ChromaHost(Protocol):
    """Where a Chroma is found."""

    @property
    def is_own_child(self) -> bool:
        """Whether it is a child of ours, which may be started and ended."""

    def connect(self, timeout: float) -> socket.socket:
        """A new connection; raises OSError."""

    def start(self) -> None:
        """Have it run, where that is ours to do; raises ChromaAway, NotOurs or MissingExtra."""

    def kill(self) -> None:
        """End it at once if it is ours: it hangs."""

    def close(self, *, ending: bool) -> None:
        """Let it go; `ending` if it is just about to end."""


class ChromaServerHost:
    """A `chroma run` somewhere."""

    is_own_child = False

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._secure = address.scheme == "https"
        self._host = address.hostname or ""
        self._port = address.port or (443 if self._secure else 8000)

    def connect(self, timeout: float) -> socket.socket:
        connection = socket.create_connection((self._host, self._port), timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._secure:
            return connection
        return ssl.create_default_context().wrap_socket(connection, server_hostname=self._host)

    def start(self) -> None:
        """Nothing to do."""

    def kill(self) -> None:
        """It is somebody else's."""

    def close(self, *, ending: bool) -> None:
        """Nothing to do."""
