"""Host names of wikis: `wiki.example.org` may be a wiki, and no host is two."""

import re
from collections.abc import Mapping

from wikiholt.errors import InvalidSetting

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""What this machine calls itself; no wiki may."""

_MAX_HOST_CHARS = 253
_HOST_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST_NAME = re.compile(rf"{_HOST_LABEL}(?:\.{_HOST_LABEL})*")
_HOST_HEADER = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[^\s:/?#@\[\]]+)(?::[0-9]{0,5})?")


def parse_hosts(settings: Mapping[str, str]) -> list[str]:
    """The hosts that a wiki's settings give it, in their one form; raises InvalidSetting."""
    names = (part.strip() for part in re.split("[,\n]", settings.get("hosts", "")))
    return list(dict.fromkeys(_validate_host(name) for name in names if name))


def parse_host_header(header: str) -> str | None:
    """The host that the header of a request names, without port, in small letters; None if it is none."""
    found = _HOST_HEADER.fullmatch(header.lower()) if len(header) <= _MAX_HOST_CHARS + len(".:65535") else None
    if found is None:
        return None
    return found[1] if found[1].startswith("[") else found[1].removesuffix(".")


def _validate_host(text: str) -> str:
    name = text.lower().removesuffix(".")
    if name in LOOPBACK_HOSTS:
        raise _make_host_error(text, "it is this machine's own name", "Wikis are told apart there by /w/SLUG.")
    if len(name) > _MAX_HOST_CHARS or not _HOST_NAME.fullmatch(name):
        hint = "Write the name alone, such as wiki.example.org: no scheme, port or path, and only ASCII letters."
        raise _make_host_error(text, "it is no host name", hint)
    return name


def _make_host_error(text: str, reason: str, hint: str) -> InvalidSetting:
    shown = text if len(text) <= 80 else text[:80] + "…"
    return InvalidSetting(f"hosts = {shown!r} (setting of a wiki) cannot be used: {reason}.", hint=hint)
