"""The page that a link has in Otterwiki, by the rules of Otterwiki's router and of its rename.

Otterwiki makes a URL of the link. The path of that URL, decoded, names the page: without certain characters, in lower
case unless the wiki retains the case. Its rename looks for the same path, but keeps those characters.
"""

import re
import unicodedata
from urllib.parse import unquote

from wikiholt.text.page_names import DEFAULT_EXTENSION, get_page_path

_URL_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_REMOVED_CHARACTERS = re.compile(r"[?|$.!#\\]")


def resolve_otterwiki_link(target: str, is_wiki_link: bool, file: str, keeps_case: bool) -> tuple[str, ...]:
    """The possible page paths of a link on this page: as written, and last the one that Otterwiki opens.

    Empty for an external link, or one to the page itself.
    """
    path = _get_wiki_url_path(target) if is_wiki_link else _get_markdown_url_path(target, file)
    written = _clean_path(path, keeps_case)
    if not written or "\0" in path:
        return ()
    opened = _clean_path(_sanitize_name(path), keeps_case)
    return tuple(dict.fromkeys(path for path in (get_page_path(written), opened) if path))


def _get_wiki_url_path(target: str) -> str:
    """The decoded URL path of a wiki link, which is always from the root; `?` is part of it."""
    if target.startswith(("#", "//")):
        return ""
    return _resolve_dots(unquote(target.partition("#")[0]).partition("#")[0])


def _get_markdown_url_path(target: str, file: str) -> str:
    if _URL_SCHEME.match(target) or target.startswith(("//", "\\")):
        return ""
    path = re.split(r"[#?]", target, maxsplit=1)[0]
    if not path:
        return ""
    folder = "" if path.startswith("/") else file.rpartition("/")[0]
    # A browser resolves the dots of a URL before it is decoded; %2e is a dot too.
    return unquote(_resolve_dots(f"{folder.replace('%', '%25')}/{re.sub('%2e', '.', path, flags=re.IGNORECASE)}"))


def _resolve_dots(path: str) -> str:
    """Resolve `.` and `..` as in a URL, which has nothing above its root."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _sanitize_name(path: str) -> str:
    """The name of the page at a URL path."""
    name = unicodedata.normalize("NFKC", path).removesuffix(DEFAULT_EXTENSION)
    return _REMOVED_CHARACTERS.sub("", name).lstrip("-/").strip()


def _clean_path(path: str, keeps_case: bool) -> str:
    clean = "/".join(part for part in path.split("/") if part)
    return clean if keeps_case else clean.lower()
