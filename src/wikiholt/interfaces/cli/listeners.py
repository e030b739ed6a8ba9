"""The sockets on which a service answers: a port for HTTP, and a Unix socket for commands on this machine."""

import errno
import json
import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from wikiholt.errors import Busy, InvalidSetting
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.local_client import connect
from wikiholt.interfaces.http.owner_link import OwnerLink

if TYPE_CHECKING:
    from wikiholt.api.settings.definitions import Settings

_log = logging.getLogger(__name__)

BACKLOG = 2048
"""Connections that wait to be accepted."""


def open_listener(host: str, port: int) -> socket.socket:
    """Open the socket for HTTP. Raises Busy if the port is in use."""
    address = host.strip("[]")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"Cannot listen on {host} port {port}: {reason}."
        if getattr(error, "errno", 0) == errno.EADDRINUSE:
            raise Busy(message, hint="Stop the other program, or choose another port with --port.") from error
        raise InvalidSetting(message, hint="Check --host and --port.") from error
    # asyncio sets this only for sockets with an explicit protocol. Without it, the body of a response waits 40 ms
    # for the acknowledgement of its headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def print_address(listener: socket.socket, owner_link: str | None, *, as_json: bool) -> None:
    """Print where the service listens, and on a terminal the link for its owner. A log must not contain that."""
    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    document = {"listening": address, "host": host, "port": port}
    lines = [json.dumps(document) if as_json else f"Wikiholt listens on {address}"]
    if owner_link is not None and not as_json and sys.stdout.isatty():
        lines.append(f"To edit in your browser, open this link (once), or run `wikiholt open`: {owner_link}")
    output.print_lines(lines)
    sys.stdout.flush()


@contextmanager
def offer_owner_link(settings: "Settings", listener: socket.socket) -> Iterator[str | None]:
    """The link for the owner, in its file until the service ends; None if it is off or this machine is not served."""
    host, port = listener.getsockname()[:2]
    address = ip_address(host)
    if not settings.serve_owner or not (address.is_loopback or address.is_unspecified):
        yield None
        return
    name = "[::1]" if address.version == 6 else "127.0.0.1" if address.is_unspecified else host
    link = OwnerLink(settings.data)
    try:
        created = link.create(f"http://{name}:{port}/")
    except OSError as error:
        _log.info("the owner cannot sign in with a link: %s", error)
        yield None
        return
    try:
        yield created
    finally:
        link.remove()


@contextmanager
def open_local_listener(path: Path) -> Iterator[list[socket.socket]]:
    """The Unix socket, removed at the end; none if another service answers there, or if the path is too long."""
    listeners = [] if _is_answered(path) else _bind_local(path)
    try:
        yield listeners
    finally:
        for listener in listeners:
            listener.close()
            if not _is_answered(path):  # else another service listens there now
                path.unlink(missing_ok=True)


def _bind_local(path: Path) -> list[socket.socket]:
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
        return []
    return [listener]


def _is_answered(path: Path) -> bool:
    try:
        connect(path).close()
    except OSError:
        return False
    return True
