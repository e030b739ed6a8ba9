"""What a wiki may be called: 1 to 63 of a–z, 0–9 and hyphens between them, so that a slug is also a host name."""

import re
import unicodedata
from collections.abc import Mapping

from wikiholt.errors import InvalidSetting, InvalidSlug

MAX_SLUG_CHARS = 63
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
# Names that stand, or may come to stand, beside wikis in addresses.
RESERVED_SLUGS = frozenset(
    {"admin", "api", "app", "assets", "auth", "docs", "favicon", "health", "healthz", "keys"}
    | {"livez", "localhost", "login", "logout", "mcp", "metrics", "new", "none", "null", "openapi", "readyz", "redoc"}
    | {"robots", "root", "search", "sessions", "settings", "static", "status", "system", "user", "users", "version"}
    | {"w", "well-known", "wikis", "www"}
)


def validate_slug(text: str) -> str:
    """The text itself when it is a slug; otherwise InvalidSlug says what is wrong and proposes the nearest one."""
    reason = _find_fault(text)
    if reason is None:
        return text
    shown = text if len(text) <= MAX_SLUG_CHARS else text[:MAX_SLUG_CHARS] + "…"
    raise InvalidSlug(
        f"{shown!r} cannot name a wiki: {reason}.",
        hint=f"Use 1 to {MAX_SLUG_CHARS} of a-z, 0-9 and hyphens between them, such as {propose_slug(text)!r}.",
    )


def propose_slug(text: str) -> str:
    """A valid slug as near as possible to the text."""
    ascii_only = unicodedata.normalize("NFKD", text[:1000]).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", ascii_only)[:MAX_SLUG_CHARS].strip("-")
    if not slug:
        return "my-wiki"
    return f"{slug}-pages" if slug in RESERVED_SLUGS else slug


def _find_fault(text: str) -> str | None:
    """What is wrong with a text as a slug, in a few words; None when nothing is."""
    odd = next((character for character in text if not re.match("[a-z0-9-]", character)), None)
    if not text:
        return "it is empty"
    if odd is not None:
        return _describe_character(odd)
    if len(text) > MAX_SLUG_CHARS:
        return f"it has {len(text)} characters"
    if not _SLUG.fullmatch(text):
        return "a hyphen may not stand at either end"
    if text in RESERVED_SLUGS:
        return "that name is kept for Wikiholt's own addresses"
    # Browsers show such names as other letters than were typed.
    return "names that begin with xn-- stand for other letters" if text.startswith("xn--") else None


def _describe_character(character: str) -> str:
    if "A" <= character <= "Z":
        return f"it has the capital letter {character}"
    if character in "/\\.":
        return f"it has a {character!r}, as paths do"
    name = unicodedata.name(character, "").lower() or f"U+{ord(character):04X}"
    return f"it has the character {character!r} ({name})"


# Host names of wikis: `wiki.example.org` may be a wiki, and no host is two.


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
