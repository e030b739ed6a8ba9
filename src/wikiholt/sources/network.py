"""Which machines may be reached: a wiki's source must not become a way into the operator's own network."""

import ipaddress
import socket

from wikiholt.errors import InvalidSource, SourceMissing
from wikiholt.sources.address import RemoteUrl

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
# What is kept for special use, where the library of some Python versions does not say so.
_RESERVED_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in ("192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "3fff::/20", "5f00::/16", "fec0::/10")
)
_NAT64_NETWORK = ipaddress.IPv6Network("64:ff9b::/96")
_IPV4_COMPATIBLE_NETWORK = ipaddress.IPv6Network("::/96")


def resolve_host(url: RemoteUrl, *, allow_private: bool) -> list[str]:
    """Every address the host has now; raises InvalidSource if one of them is not a public one.

    The caller connects to one of these and never asks for the name again: it could get another answer.
    """
    try:
        found = socket.getaddrinfo(url.host.strip("[]"), url.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SourceMissing(
            f"The host {url.host} is not known.", hint="Check the URL, and that this machine can resolve names."
        ) from error
    numbers = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not allow_private and not all(is_public_address(ipaddress.ip_address(number)) for number in numbers):
        raise InvalidSource(
            f"The host {url.host} lies on this machine or in a private network.",
            hint="If that is meant, set remote.allow_private.",
        )
    return numbers


def is_public_address(ip: IpAddress) -> bool:
    """Whether an address belongs to the public internet; one that carries another inside is judged by both."""
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
