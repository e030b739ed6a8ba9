"""Remote repository URLs: strict parsing, redaction of credentials, and the check that a host is public."""

import ipaddress
import re
import socket
from dataclasses import dataclass
from urllib.parse import unquote

from wikiholt.errors import InvalidSource, SourceMissing

DEFAULT_PORTS = {"https": 443, "http": 80, "ssh": 22, "git": 9418, "file": 0}
_URL_PATTERN = re.compile(
    r"(?P<scheme>[a-z]+)://(?:(?P<user>[^@/:]*)(?::(?P<password>[^@/]*))?@)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|)(?::(?P<port>[0-9]{1,5}))?(?P<path>/.*)"
)
_SCP_PATTERN = re.compile(
    r"(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?):(?P<path>[^-/\s].*|/[^/].*)"
)
_SSH_USER_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
# Decimal, octal and hexadecimal spellings of an address, which programs interpret differently.
_NUMERIC_HOST_PATTERN = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+))*", re.IGNORECASE)
_USER_INFO_PATTERN = re.compile(r"(?<=://)[^@/]*@")


@dataclass(frozen=True, slots=True)
class RemoteUrl:
    """The parts of a remote repository's URL."""

    scheme: str
    host: str
    port: int
    path: str
    user: str = ""
    password: str = ""

    def format_url(self, host: str = "") -> str:
        """The URL for git, without a password; `host` replaces the host name if set."""
        if not self.path.startswith("/"):  # git@host:path is relative to the home directory; a URL cannot express that
            return f"{self.user}@{host or self.host}:{self.path}"
        at = f"{self.user}@" if self.user and self.scheme == "ssh" else ""
        port = f":{self.port}" if self.port != DEFAULT_PORTS[self.scheme] else ""
        return f"{self.scheme}://{at}{host or self.host}{port}{self.path}"


def is_remote(source: str) -> bool:
    """Whether a wiki's source is a URL rather than a local path."""
    return "://" in source or bool(_SCP_PATTERN.fullmatch(source))


def redact_url(source: str) -> str:
    """A wiki's source without a password or token, for display."""
    if not is_remote(source):
        return source
    has_no_secret = source.startswith("ssh://") and ":" not in source.partition("://")[2].partition("@")[0]
    return source if has_no_secret else _USER_INFO_PATTERN.sub("***@", source)


def parse_remote_url(source: str, schemes: tuple[str, ...]) -> RemoteUrl:
    """Parse a wiki's source as a URL. Raises InvalidSource if it is malformed or its scheme is not allowed."""
    if not source.isprintable() or not source.isascii() or " " in source:
        raise _make_invalid_error(
            source, "it contains characters that are invalid in a URL", "Encode them, as %20 or xn--…."
        )
    scp, url = _SCP_PATTERN.fullmatch(source), _URL_PATTERN.fullmatch(source)
    scheme = "ssh" if scp else source.partition("://")[0]
    if scheme not in schemes or scheme not in DEFAULT_PORTS:
        usable = ", ".join(name for name in schemes if name in DEFAULT_PORTS) or "none"
        raise _make_invalid_error(source, f"URLs that begin with {scheme[:20]}: are not allowed", f"Allowed: {usable}.")
    if scp:
        return _validate(source, RemoteUrl("ssh", scp["host"].lower(), DEFAULT_PORTS["ssh"], scp["path"], scp["user"]))
    if url is None or "?" in url["path"] or "#" in url["path"]:
        raise _make_invalid_error(
            source, "it is not the URL of a repository", "Example: https://git.example/team/wiki.git."
        )
    user, password = unquote(url["user"] or ""), unquote(url["password"] or "")
    port = int(url["port"]) if url["port"] else DEFAULT_PORTS[scheme]
    return _validate(source, RemoteUrl(scheme, url["host"].lower(), port, url["path"], user, password))


def _validate(source: str, url: RemoteUrl) -> RemoteUrl:
    host, is_file = url.host, url.scheme == "file"
    if is_file != (host == "") or (is_file and url.user):
        raise _make_invalid_error(source, "its host is missing, or not allowed for this scheme", "")
    if not is_file and not 0 < url.port < 65_536:
        raise _make_invalid_error(source, "its port is invalid", "")
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise _make_invalid_error(source, "its host is not a valid address", "") from None
    elif _NUMERIC_HOST_PATTERN.fullmatch(host) and not _is_ipv4(host):
        raise _make_invalid_error(source, "its host is a number", "Write an address as four numbers, or use a name.")
    if url.scheme == "ssh" and (url.password or not _SSH_USER_PATTERN.fullmatch(url.user or "git")):
        raise _make_invalid_error(
            source, "ssh takes a plain user name and a key, not a password", "Set up an SSH key for the user."
        )
    if url.scheme in ("git", "file") and (url.user or url.password):
        raise _make_invalid_error(source, f"{url.scheme} takes no user name", "")
    if any(ord(char) < 32 or ord(char) > 255 for char in url.user + url.password):
        raise _make_invalid_error(source, "its user name or password contains invalid characters", "")
    return url


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _make_invalid_error(source: str, reason: str, hint: str) -> InvalidSource:
    return InvalidSource(f"{redact_url(source)[:200]!r} is not a valid source: {reason}.", hint=hint)


# Host checks: a wiki's source must not give access to the operator's private network.

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
# Special-purpose networks that `ipaddress` in some Python versions does not know.
_RESERVED_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in ("192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "3fff::/20", "5f00::/16", "fec0::/10")
)
_NAT64_NETWORK = ipaddress.IPv6Network("64:ff9b::/96")
_IPV4_COMPATIBLE_NETWORK = ipaddress.IPv6Network("::/96")


def resolve_host(url: RemoteUrl, *, allow_private: bool) -> list[str]:
    """All current addresses of the host. Raises InvalidSource if one of them is not public, SourceMissing if unknown.

    Connect to one of these addresses and do not resolve the name again: the answer could change.
    """
    try:
        entries = socket.getaddrinfo(url.host.strip("[]"), url.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SourceMissing(
            f"The host {url.host} is unknown.", hint="Check the URL, and that this machine can resolve names."
        ) from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
    if not allow_private and not all(is_public_address(ipaddress.ip_address(address)) for address in addresses):
        raise InvalidSource(
            f"The host {url.host} is on this machine or in a private network.",
            hint="To allow that, set remote.allow_private.",
        )
    return addresses


def is_public_address(ip: IpAddress) -> bool:
    """Whether an address belongs to the public internet; of an address that embeds another, both must."""
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo and ip.teredo[1])
        if inner is None and (ip in _NAT64_NETWORK or ip in _IPV4_COMPATIBLE_NETWORK):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None and not is_public_address(inner):
            return False
        if ip.ipv4_mapped:
            return True
        if ip.scope_id is not None:
            return False
    if any(ip in network for network in _RESERVED_NETWORKS):
        return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved and not ip.is_unspecified
