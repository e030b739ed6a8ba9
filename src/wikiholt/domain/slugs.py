"""Names of wikis: slugs and host names. A slug is also a valid host label: 1 to 63 of a–z, 0–9 and inner hyphens."""

import re
import unicodedata
from collections.abc import Collection, Mapping
from itertools import count

from wikiholt.errors import InvalidSetting, InvalidSlug

MAX_SLUG_CHARS = 63
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
# Names that are, or may become, paths beside wikis in URLs.
RESERVED_SLUGS = frozenset(
    {"admin", "api", "app", "assets", "auth", "docs", "favicon", "health", "healthz", "keys"}
    | {"livez", "localhost", "login", "logout", "mcp", "metrics", "new", "none", "null", "openapi", "readyz", "redoc"}
    | {"robots", "root", "search", "sessions", "settings", "static", "status", "system", "user", "users", "version"}
    | {"w", "well-known", "wikis", "www"}
)


def validate_slug(text: str) -> str:
    """The text if it is a valid slug. Raises InvalidSlug with the reason and a suggestion."""
    reason = _find_fault(text)
    if reason is None:
        return text
    shown = text if len(text) <= MAX_SLUG_CHARS else text[:MAX_SLUG_CHARS] + "…"
    raise InvalidSlug(
        f"{shown!r} cannot name a wiki: {reason}.",
        hint=f"Use 1 to {MAX_SLUG_CHARS} of a-z, 0-9 and hyphens between them, such as {propose_slug(text)!r}.",
    )


def propose_slug(text: str) -> str:
    """A valid slug as similar as possible to the text."""
    # Case folding writes ß as ss.
    ascii_only = unicodedata.normalize("NFKD", text[:1000].casefold()).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", ascii_only)[:MAX_SLUG_CHARS].strip("-")
    if not slug:
        return "my-wiki"
    return f"{slug}-pages" if slug in RESERVED_SLUGS else slug


def propose_free_slug(text: str, taken: Collection[str]) -> str:
    """A valid slug as similar as possible to the text, with a number if that one is taken."""
    slug = propose_slug(text)
    if slug.startswith("xn--"):
        slug = f"wiki-{slug}"[:MAX_SLUG_CHARS].strip("-")
    numbers = count(2)
    candidate = slug
    while candidate in taken:
        ending = f"-{next(numbers)}"
        candidate = slug[: MAX_SLUG_CHARS - len(ending)].rstrip("-") + ending
    return candidate


def _find_fault(text: str) -> str | None:
    """Why the text is not a slug; None if it is."""
    invalid = next((character for character in text if not re.match("[a-z0-9-]", character)), None)
    if not text:
        return "it is empty"
    if invalid is not None:
        return _describe_character(invalid)
    if len(text) > MAX_SLUG_CHARS:
        return f"it has {len(text)} characters"
    if not _SLUG.fullmatch(text):
        return "it must not start or end with a hyphen"
    if text in RESERVED_SLUGS:
        return "this name is reserved"
    # Browsers display such names as other letters than were typed.
    return "names that start with xn-- encode other letters" if text.startswith("xn--") else None


def _describe_character(character: str) -> str:
    if "A" <= character <= "Z":
        return f"it has the capital letter {character}"
    if character in "/\\.":
        return f"it has a {character!r}, as paths do"
    name = unicodedata.name(character, "").lower() or f"U+{ord(character):04X}"
    return f"it has the character {character!r} ({name})"


# Host names: `wiki.example.org` may be a wiki; no host belongs to two wikis.


LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names of the local machine; not allowed for wikis."""

_MAX_HOST_CHARS = 253
_HOST_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST_NAME = re.compile(rf"{_HOST_LABEL}(?:\.{_HOST_LABEL})*")
_HOST_HEADER = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[^\s:/?#@\[\]]+)(?::[0-9]{0,5})?")


def parse_hosts(settings: Mapping[str, str]) -> list[str]:
    """The normalized host names in a wiki's settings. Raises InvalidSetting."""
    names = (part.strip() for part in re.split("[,\n]", settings.get("hosts", "")))
    return list(dict.fromkeys(_validate_host(name) for name in names if name))


def parse_host_header(header: str) -> str | None:
    """The host name in a Host header, lower case and without port; None if the header is not valid."""
    match = _HOST_HEADER.fullmatch(header.lower()) if len(header) <= _MAX_HOST_CHARS + len(".:65535") else None
    if match is None:
        return None
    return match[1] if match[1].startswith("[") else match[1].removesuffix(".")


def _validate_host(text: str) -> str:
    name = text.lower().removesuffix(".")
    if name in LOOPBACK_HOSTS:
        raise _make_host_error(text, "it names the local machine", "Wikis are addressed by /w/SLUG there.")
    if len(name) > _MAX_HOST_CHARS or not _HOST_NAME.fullmatch(name):
        hint = "Use only the name, such as wiki.example.org: no scheme, port or path, and only ASCII letters."
        raise _make_host_error(text, "it is not a host name", hint)
    return name


def _make_host_error(text: str, reason: str, hint: str) -> InvalidSetting:
    shown = text if len(text) <= 80 else text[:80] + "…"
    return InvalidSetting(f"hosts = {shown!r} (setting of a wiki) cannot be used: {reason}.", hint=hint)
