"""The address of a repository elsewhere: read strictly, shown without its secrets."""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import unquote

from wikiholt.errors import InvalidSource

PORTS = {"https": 443, "http": 80, "ssh": 22, "git": 9418, "file": 0}
_URL = re.compile(
    r"(?P<scheme>[a-z]+)://(?:(?P<user>[^@/:]*)(?::(?P<password>[^@/]*))?@)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|)(?::(?P<port>[0-9]{1,5}))?(?P<path>/.*)"
)
_SCP = re.compile(
    r"(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?):(?P<path>[^-/\s].*|/[^/].*)"
)
_SSH_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
# Decimal, octal and hexadecimal spellings of an address: every program reads them differently.
_ODD_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+))*", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^@/]*@")


@dataclass(frozen=True, slots=True)
class Address:
    """A remote repository: how it is spoken to, where, as whom."""

    scheme: str
    host: str
    port: int
    path: str
    user: str = ""
    password: str = ""

    def url(self, host: str = "") -> str:
        """The URL to give to git, which never holds a secret; `host` is said instead of the name if given."""
        if not self.path.startswith("/"):  # git@host:path is relative to the user's home, which a URL cannot say
            return f"{self.user}@{host or self.host}:{self.path}"
        at = f"{self.user}@" if self.user and self.scheme == "ssh" else ""
        port = f":{self.port}" if self.port != PORTS[self.scheme] else ""
        return f"{self.scheme}://{at}{host or self.host}{port}{self.path}"


def is_remote(source: str) -> bool:
    """Whether a wiki's source is meant as an address and not as a path of this machine."""
    return "://" in source or bool(_SCP.fullmatch(source))


def shown(source: str) -> str:
    """A wiki's source as it may be shown: without a password or token in it."""
    if not is_remote(source):
        return source
    keep = source.startswith("ssh://") and ":" not in source.partition("://")[2].partition("@")[0]
    return source if keep else _USER_INFO.sub("***@", source)


def parse(source: str, schemes: tuple[str, ...]) -> Address:
    """The address in a wiki's source; raises InvalidSource for one that makes no sense or is not allowed."""
    if not source.isprintable() or not source.isascii() or " " in source:
        raise _invalid(source, "it holds characters that a URL cannot", "Write them as %20, xn--… and so on.")
    scp, url = _SCP.fullmatch(source), _URL.fullmatch(source)
    scheme = "ssh" if scp else source.partition("://")[0]
    if scheme not in schemes or scheme not in PORTS:
        usable = ", ".join(name for name in schemes if name in PORTS) or "none"
        raise _invalid(source, f"addresses that begin with {scheme[:20]}: are not allowed", f"Allowed: {usable}.")
    if scp:
        return _checked(source, Address("ssh", scp["host"].lower(), PORTS["ssh"], scp["path"], scp["user"]))
    if url is None or "?" in url["path"] or "#" in url["path"]:
        raise _invalid(source, "it is not the URL of a repository", "Such as https://git.example/team/wiki.git.")
    user, password = unquote(url["user"] or ""), unquote(url["password"] or "")
    port = int(url["port"]) if url["port"] else PORTS[scheme]
    return _checked(source, Address(scheme, url["host"].lower(), port, url["path"], user, password))


def _checked(source: str, address: Address) -> Address:
    host, is_file = address.host, address.scheme == "file"
    if is_file != (host == "") or (is_file and address.user):
        raise _invalid(source, "it names no host, or one where none belongs", "")
    if not is_file and not 0 < address.port < 65_536:
        raise _invalid(source, "there is no such port", "")
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise _invalid(source, "its host is not an address", "") from None
    elif _ODD_NUMBER.fullmatch(host) and not _is_ipv4(host):
        raise _invalid(source, "its host is a number", "Write an address as four numbers, or use a name.")
    if address.scheme == "ssh" and (address.password or not _SSH_USER.fullmatch(address.user or "git")):
        raise _invalid(source, "ssh takes a plain user name and a key, not a password", "Set up a key for the user.")
    if address.scheme in ("git", "file") and (address.user or address.password):
        raise _invalid(source, f"{address.scheme} takes no user name", "")
    if any(ord(char) < 32 or ord(char) > 255 for char in address.user + address.password):
        raise _invalid(source, "its user name or password cannot be sent", "")
    return address


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _invalid(source: str, fault: str, hint: str) -> InvalidSource:
    return InvalidSource(f"{shown(source)[:200]!r} cannot be a wiki's source: {fault}.", hint=hint)
