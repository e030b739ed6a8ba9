"""The owner of the data directory in a browser on this machine, signed in by a link that only they can read.

An address proves nothing: a proxy on this machine makes every visitor local, and other users of the machine are local
too. So the cookie counts only in a request that comes from a process of this user, names this machine as its host, and
was forwarded by nobody.
"""

import fcntl
import getpass
import os
import re
import secrets
from contextlib import suppress
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from wikiholt.domain.slugs import LOOPBACK_HOSTS, parse_host_header
from wikiholt.domain.wiki import Person, PersonOrigin

if TYPE_CHECKING:
    from starlette.requests import Request

    from wikiholt.api.bootstrap import Application

OWNER_COOKIE_NAME = "wikiholt_owner"
SIGN_IN_PATH = "owner"
_FILE_NAME = "owner-link"
_TOKEN_BYTES = 32
_MAX_FILE_BYTES = 1000
_FORWARDING_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
_CONNECTION_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_LOCAL_FIELD, _REMOTE_FIELD, _STATE_FIELD, _USER_FIELD = 1, 2, 3, 7
_TIME_WAIT = "06"
_LOOPBACK = re.compile(r"(?:0000000000000000FFFF0000)?[0-9A-F]{6}7F|00000000000000000000000001000000")
"""127.x.x.x, also inside an IPv6 address, and ::1 in these tables, which have little-endian words."""


class OwnerLink:
    """The link in a data directory. Each link signs in one browser; then the file has the next one."""

    def __init__(self, data: Path) -> None:
        self._file = data / _FILE_NAME

    def create(self, address: str) -> str:
        """Write and return a link to the service at this address."""
        link = _make_link(address)
        with suppress(FileNotFoundError):
            self._file.unlink()  # its permissions may be others
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(link)
        return link

    def read(self) -> str | None:
        """The link; None without a service that has one."""
        try:
            with self._file.open(encoding="ascii") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                return file.read(_MAX_FILE_BYTES) or None
        except (OSError, UnicodeError):
            return None

    def redeem(self, token: str) -> bool:
        """Whether the link has this token, which is not valid any more afterwards."""
        try:
            with self._file.open("r+", encoding="ascii") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                link = urlsplit(file.read(_MAX_FILE_BYTES))
                (known,) = parse_qs(link.query).get("token", [""])
                if not known or not compare_digest(known.encode(), token.encode("utf-8", "replace")):
                    return False
                file.seek(0)
                file.truncate()
                file.write(_make_link(f"{link.scheme}://{link.netloc}/"))
                return True
        except (OSError, UnicodeError):
            return False

    def remove(self) -> None:
        """Remove the link of a service that ends."""
        with suppress(OSError):
            self._file.unlink()


def _make_link(address: str) -> str:
    return f"{address}{SIGN_IN_PATH}?token={secrets.token_urlsafe(_TOKEN_BYTES)}"


def make_owner() -> Person:
    """The user that runs this process, as the author of commits."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # the user has no name
        name = "owner"
    return Person(PersonOrigin.OWNER, name)


def find_owner(application: "Application", request: "Request") -> Person | None:
    """The owner, if the request has their cookie and was sent by one of their processes on this machine."""
    token = request.cookies.get(OWNER_COOKIE_NAME)
    if not token or not application.settings.serve_owner or not is_own_request(request):
        return None
    sign_in = application.service.registry.sign_ins.find(token)
    person = sign_in.person if sign_in is not None else None
    return person if person is not None and person.origin is PersonOrigin.OWNER else None


def is_own_request(request: "Request") -> bool:
    """Whether a process of this user on this machine sent the request directly."""
    if any(name in request.headers for name in _FORWARDING_HEADERS):
        return False
    client, server = request.scope.get("client"), request.scope.get("server")
    if parse_host_header(request.headers.get("host", "")) not in LOOPBACK_HOSTS or not client or not server:
        return False
    users = find_connection_users(client[1], server[1])
    return users is None or users == {os.geteuid()}


def find_connection_users(client_port: int, server_port: int) -> set[int] | None:
    """The users that have a loopback connection from one port to the other; None if the system does not tell."""
    users: set[int] = set()
    is_known = False
    for table in _CONNECTION_TABLES:
        with suppress(OSError):
            lines = table.read_text(encoding="ascii").splitlines()[1:]
            is_known = True
            for fields in map(str.split, lines):
                address, _, port = fields[_LOCAL_FIELD].partition(":")
                remote_port = fields[_REMOTE_FIELD].rpartition(":")[2]
                is_connection = (port, remote_port) == (f"{client_port:04X}", f"{server_port:04X}")
                if is_connection and fields[_STATE_FIELD] != _TIME_WAIT and _LOOPBACK.fullmatch(address):
                    users.add(int(fields[_USER_FIELD]))
    return users if is_known else None
