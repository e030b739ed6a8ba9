"""The sockets on which `wikiholt serve` answers."""

import errno
import json
import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wikiholt.errors import Busy, InvalidSetting
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.local_client import is_socket_usable

_log = logging.getLogger(__name__)

BACKLOG = 2048
"""Connections that wait to be accepted."""


def open_listener(host: str, port: int) -> socket.socket:
    """Open the socket for HTTP. Raises Busy if the port is in use."""
    address = host.strip("[]")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family, backlog=BACKLOG)
        # asyncio sets this only for sockets with an explicit protocol. Without it, the body of a response waits 40 ms
        # for the acknowledgement of its headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        in_use = getattr(error, "errno", 0) == errno.EADDRINUSE
        error_class = Busy if in_use else InvalidSetting
        raise error_class(
            f"Cannot listen on {host} port {port}: {reason}.",
            hint="Stop the other program, or choose another port with --port."
            if in_use
            else "Check --host and --port.",
        ) from error


def print_address(listener: socket.socket, *, as_json: bool) -> None:
    """Print where the service listens."""
    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    if as_json:
        sys.stdout.write(json.dumps({"listening": address, "host": host, "port": port}) + "\n")
    else:
        output.print_lines([f"Wikiholt listens on {address}"])
    sys.stdout.flush()


@contextmanager
def open_local_listener(path: Path) -> Iterator[socket.socket | None]:
    """The Unix socket for commands on this machine, removed at the end; None if it is not possible: another service
    answers there, or the path is too long."""
    listener = _bind_local(path)
    try:
        yield listener
    finally:
        if listener is not None:
            listener.close()
            path.unlink(missing_ok=True)


def _bind_local(path: Path) -> socket.socket | None:
    if is_socket_usable(path):
        return None
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(0o600)  # nobody can connect before it listens
        listener.listen(BACKLOG)
        listener.setblocking(False)  # several processes may accept, and one gets the connection
    except OSError as error:
        _log.info("commands on this machine cannot search through this service: %s", error)
        listener.close()
        return None
    return listener
