"""What a wiki may be called: 1 to 63 of a–z, 0–9 and hyphens between them, so that a slug is also a host name."""

import re
import unicodedata

from wikiholt.errors import InvalidSlug

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
