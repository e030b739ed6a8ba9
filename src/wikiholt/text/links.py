"""Resolves links: from the target that an author wrote to page paths, and from a path to an existing page.

A Markdown link is relative to the directory of its page, or absolute from the root of the wiki if it begins with a
slash. A `[[wiki link]]` is a path from the root, or the last component of a path if no other page shares it. Case,
and spaces, hyphens or underscores between words, matter only if several pages match; `.md` may be omitted. If no page
has the path, it may be the alias of a page.

In a dialect that resolves by name, every link is also the end of a path, from any folder. If several pages match, it is
the one with exactly that path, else the one in the folder of the link, else the one with the shortest path.

On a static site, an absolute link is a route: the end of the path of a page or of a folder, or of another route of
the page such as its permalink. Of several pages, it leads to the one closest to the root. A relative link may also be
relative to the route of its page, where `guides/setup.md` is the folder `guides/setup/`.

In Otterwiki's dialects a link is exactly what Otterwiki makes of it (see `_resolve_otterwiki_link`).
"""

import posixpath
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from urllib.parse import unquote

from wikiholt.text.page_names import (
    DEFAULT_EXTENSION,
    get_page_path,
    has_link_extension,
    is_folder_page,
    strip_page_extension,
)

_URL_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_EXTERNAL_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|mailto:", re.IGNORECASE)
_OTHER_EXTENSION = re.compile(r"[^/]\.[A-Za-z][A-Za-z0-9]{0,4}\Z")
_MEDIA_EXTENSION = re.compile(
    r"\.(?:png|jpe?g|gif|svg|webp|bmp|avif|pdf|mp[34]|m4a|ogg|wav|flac|webm|mov|mkv|excalidraw|canvas|base)\Z",
    re.IGNORECASE,
)
_HEADING_OR_BLOCK = re.compile(r"[#^]")
_HTML_EXTENSION = re.compile(r"(?:(?<=/)index|(?<![^/])index)?\.html?\Z", re.IGNORECASE)
_SITE_FOLDERS = ("docs/", "blog/")
"""Folders in the addresses of a site that its pages may not have."""
_VERSION = re.compile(r"(?<=/)(?:next|latest|stable|v?\d+(?:\.\d+|\.x)*)/")
_WORD_SEPARATORS = re.compile(r"[\s_-]+")
_NO_ALIASES: Mapping[str, Iterable[str]] = {}


class LinkResolution(Enum):
    """How a link finds its page."""

    BY_PATH = "by-path"
    BY_NAME = "by-name"
    """A link finds a file by its name in any folder."""
    BY_ROUTE = "by-route"
    """As by path, or by the route of a page on a static site."""
    OTTERWIKI = "otterwiki"
    OTTERWIKI_WITH_CASE = "otterwiki-with-case"
    """As Otterwiki with RETAIN_PAGE_NAME_CASE."""

    @property
    def is_exact(self) -> bool:
        """Whether a link has only the paths that `resolve_link_paths` returns, the last one first."""
        return self in (LinkResolution.OTTERWIKI, LinkResolution.OTTERWIKI_WITH_CASE)

    @property
    def with_case(self) -> "LinkResolution":
        """The resolution that returns paths as written, such as those of attachments."""
        return LinkResolution.OTTERWIKI_WITH_CASE if self.is_exact else self


def fold_path(path: str) -> str:
    """The form in which paths are compared if no page has exactly the path of a link."""
    stem = strip_page_extension(path)
    if stem.isascii():
        return _WORD_SEPARATORS.sub("-", stem.lower())
    return _WORD_SEPARATORS.sub("-", unicodedata.normalize("NFC", unicodedata.normalize("NFC", stem).casefold()))


def get_other_names(path: str, aliases: Iterable[str] = ()) -> tuple[str, ...]:
    """The names of a page besides its path: its aliases, and its folder if it describes that."""
    folder = get_folder(path) if is_folder_page(path) else ""
    names = (alias.strip("/") for alias in aliases)
    return (*names, folder, get_last_part(folder)) if folder else (*names,)


def get_last_part(path: str) -> str:
    return path.rpartition("/")[2]


def get_folder(path: str) -> str:
    return path.rpartition("/")[0]


def resolve_link_paths(
    targets: Sequence[str], is_wiki_link: bool, file: str, resolution: LinkResolution = LinkResolution.BY_PATH
) -> tuple[str, ...]:
    """The possible page paths of a link on this page, in order; empty for an external or invalid target.

    By name, and for an absolute route, the second path is the one to look for in any folder. The last path of a link
    to a file of a static site has its extension.
    """
    if resolution.is_exact:
        return _resolve_otterwiki_link(targets[0], is_wiki_link, file, resolution is LinkResolution.OTTERWIKI_WITH_CASE)
    by_name = resolution is LinkResolution.BY_NAME
    if not is_wiki_link:
        if resolution is LinkResolution.BY_ROUTE:
            return _resolve_route(targets[0], file)
        path = _resolve_markdown_path(targets[0], file)
        if not by_name or not path:
            return (path,) if path else ()
        return tuple(dict.fromkeys(filter(None, (path, _resolve_markdown_path("/" + targets[0], "")))))
    paths = [_resolve_wiki_path(target, file) for target in targets]
    if by_name:
        paths = [paths[0], get_last_part(paths[0])]
    # If the target is a URL or a heading of this page, the other side is the text and not a path.
    return tuple(dict.fromkeys(path for path in paths if path)) if paths[0] else ()


def depends_on_file(targets: Sequence[str], is_wiki_link: bool) -> bool:
    """Whether `resolve_link_paths` may return other paths for a page elsewhere. Never wrong if it is False."""
    if is_wiki_link:
        return any("./" in target for target in targets)
    return not targets[0].startswith(("/", "#", "https://", "http://"))


def split_wiki_target(target: str) -> tuple[str, str]:
    """Split the target of a wiki link into the path and the heading (`#…`) or block id (`^…`)."""
    path = _HEADING_OR_BLOCK.split(target, maxsplit=1)[0]
    return path, target[len(path) :]


def get_fragment(target: str) -> str:
    """The heading of a link target, without `#`."""
    return unquote(target.partition("#")[2])


def is_attachment(path: str, is_wiki_link: bool) -> bool:
    """Whether a link that matches no page leads to a file that is not a page, judged by its extension."""
    if is_wiki_link:
        return bool(_MEDIA_EXTENSION.search(path))
    return bool(_OTHER_EXTENSION.search(path)) and not has_link_extension(path)


def _resolve_markdown_path(target: str, file: str) -> str:
    if _URL_SCHEME.match(target) or target.startswith(("//", "\\")):
        return ""
    path = unquote(target.partition("#")[0].partition("?")[0])
    return _resolve_path(path, "" if path.startswith("/") else file)


def _resolve_route(target: str, file: str) -> tuple[str, ...]:
    if _URL_SCHEME.match(target) or target.startswith(("//", "\\")):
        return ()
    written = unquote(target.partition("#")[0].partition("?")[0])
    path = _HTML_EXTENSION.sub("", written) or (written and ".")
    is_file = path != written or has_link_extension(path)
    path = path.removeprefix("@site") if path.startswith("@site/") else path
    is_folder = path.endswith("/")
    path = path.rstrip("/")
    if path.startswith("/"):
        stem = strip_page_extension(path)
        path = get_folder(path) if is_folder_page(path) and stem.count("/") > 1 else path
        paths = [_resolve_path(path, "")]
        paths.append(get_last_part(paths[0]))
    else:
        route = get_folder(file) if is_folder_page(file) else strip_page_extension(file)
        paths = [_resolve_path(path, file)]
        if not is_file:
            paths.append(_resolve_path(path, f"{route}/"))
        elif "/" in path and not path.startswith("."):
            paths.append(_resolve_path(path, ""))
        if is_folder:
            paths.reverse()
    if has_link_extension(path) and not is_folder and paths[0]:
        paths.append(f"{strip_page_extension(paths[0])}{DEFAULT_EXTENSION}")
    return tuple(dict.fromkeys(filter(None, paths)))


def _resolve_wiki_path(target: str, file: str) -> str:
    if _EXTERNAL_URL.match(target):
        return ""
    path = split_wiki_target(target)[0].strip()
    return _resolve_path(path, file if path.startswith(("./", "../")) else "")


def _resolve_path(path: str, file: str) -> str:
    """Resolve a path relative to the directory of `file`; empty if it is outside the wiki."""
    if not path.strip("/") or "\0" in path:
        return ""
    parts = file.split("/")[:-1]
    for part in path.split("/"):
        if part == "..":
            if not parts:
                return ""
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return get_page_path("/".join(parts))


class PageNameIndex:
    """Finds pages of a wiki by the paths that links use."""

    def __init__(
        self,
        paths: Iterable[str],
        *,
        resolution: LinkResolution = LinkResolution.BY_PATH,
        aliases: Mapping[str, Iterable[str]] = _NO_ALIASES,
    ) -> None:
        """`aliases` are the other names of pages, by path."""
        self._paths = frozenset(paths)
        self._is_exact = resolution.is_exact
        self._by_name = resolution is LinkResolution.BY_NAME
        self._by_route = resolution is LinkResolution.BY_ROUTE
        self._by_path: defaultdict[str, list[str]] = defaultdict(list)
        self._by_last_part: defaultdict[str, list[str]] = defaultdict(list)
        for path in () if self._is_exact else self._paths:
            self._by_path[fold_path(path)].append(path)
            self._by_last_part[fold_path(get_last_part(path))].append(path)
        self._routes: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        """The other routes of pages, and the pages, by the last part of the route."""
        for path in sorted(filter(is_folder_page, self._paths if self._by_route else ())):
            folder = fold_path(get_folder(path))
            self._routes[get_last_part(folder)].append((folder, path))
        self._by_alias: defaultdict[str, set[str]] = defaultdict(set)
        for path, names in aliases.items():
            for name in names:
                key = fold_path(name.strip("/"))
                self._by_alias[key].add(path)
                if self._by_route:
                    self._routes[get_last_part(key)].append((key, path))

    def find_page(self, paths: Sequence[str], is_wiki_link: bool, folder: str = "") -> str | None:
        """The page for the first of these paths that matches: exactly, or as the only page with that folded path.

        If links are resolved by name, `folder` is the folder of the page with the link. If no path matches, the only
        page with such an alias.
        """
        if self._is_exact:
            return next((path for path in reversed(paths) if path in self._paths), None)
        if self._by_name and is_wiki_link:
            paths = paths[:1]  # the second is only the key under which the link is stored
        is_file = has_link_extension(paths[-1]) if paths else False
        if self._by_route and len(paths) > 1:
            paths = paths[:-1] if is_file else paths
            if len(paths) > 1 and paths[1] == get_last_part(paths[0]):
                paths = paths[:1]
        for path in paths:
            page = path if path in self._paths else self._find_similar(path, is_wiki_link, folder)
            if page is not None:
                return page
        for path in paths if self._by_alias else ():
            pages = self._by_alias.get(fold_path(path), ())
            if len(pages) == 1:
                return next(iter(pages))
        if self._by_route and not is_wiki_link:
            return next(filter(None, (self._find_route(fold_path(path), folder, is_file) for path in paths)), None)
        return None

    def _find_similar(self, path: str, is_wiki_link: bool, folder: str) -> str | None:
        key = fold_path(path)
        if self._by_name:
            pages = self._by_last_part.get(get_last_part(key), ())
            ranks = [_rank_match(page, key, folder) for page in pages if f"/{fold_path(page)}".endswith(f"/{key}")]
            return min(ranks)[-1] if ranks else None
        similar = (
            self._by_path.get(key) or (self._by_last_part.get(key) if is_wiki_link and "/" not in path else None) or ()
        )
        return similar[0] if len(similar) == 1 else None

    def _find_route(self, key: str, folder: str, is_file: bool) -> str | None:
        """The page with a route that ends so, or else with a route that the key ends with, or for any version."""
        last = get_last_part(key)
        routes: list[tuple[str, str]] = [
            *((fold_path(page), page) for page in self._by_last_part.get(last, ())),
            *(() if is_file else self._routes.get(last, ())),
        ]
        pages = [page for route, page in routes if f"/{route}".endswith(f"/{key}")]
        if pages:
            is_name = "/" not in key
            ranks: list[tuple[bool, int, int, str]] = [
                (
                    is_name and get_folder(page) != folder,
                    page.count("/"),
                    -len(posixpath.commonprefix((page, f"{folder}/"))),
                    page,
                )
                for page in pages
            ]
            return min(ranks)[3]
        # The link may begin with the address of the site, and the route of a page with the folder of a plugin.
        ends = [
            (len(route), page)
            for route, page in routes
            if key.endswith(f"/{route}") and ("/" in route or key.removesuffix(route) in _SITE_FOLDERS)
        ]
        if ends:
            return max(ends)[1]
        plain = _VERSION.sub("", key)
        return self._find_route(plain, folder, is_file) if plain != key else None


def _rank_match(page: str, key: str, folder: str) -> tuple[bool, bool, int, int, str]:
    """Orders the pages that a link on a page in this folder may mean; the last item is the page."""
    return fold_path(page) != key, get_folder(page) != folder, page.count("/"), len(page), page


# Links in Otterwiki, by the rules of its router and of its rename. Otterwiki makes a URL of the link. The path of that
# URL, decoded, names the page: without certain characters, in lower case unless the wiki retains the case. Its rename
# looks for the same path, but keeps those characters.

_OTTERWIKI_URL_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_REMOVED_CHARACTERS = re.compile(r"[?|$.!#\\]")


def _resolve_otterwiki_link(target: str, is_wiki_link: bool, file: str, keeps_case: bool) -> tuple[str, ...]:
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
    if _OTTERWIKI_URL_SCHEME.match(target) or target.startswith(("//", "\\")):
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
