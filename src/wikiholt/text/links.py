"""What links mean: from what an author wrote to the path of a page, and from a path to the page there is.

A Markdown link is relative to its page's directory, or absolute from the top of the wiki if it begins with a slash. A
`[[wiki link]]` is a path from the top, or the last part of a path that no other page has. Case does not matter unless
it has to, nor whether words are joined by spaces, hyphens or underscores, nor whether `.md` is written.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

_URL_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_EXTERNAL_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|mailto:", re.IGNORECASE)
_PAGE_EXTENSION = re.compile(r"(?<=[^/])\.(?:md|markdown|mdown|mkdn?)\Z", re.IGNORECASE)
_OTHER_EXTENSION = re.compile(r"[^/]\.[A-Za-z][A-Za-z0-9]{0,4}\Z")
_HEADING_OR_BLOCK = re.compile(r"[#^]")
_WORD_SEPARATORS = re.compile(r"[\s_-]+")


def fold_path(path: str) -> str:
    """A path as links compare it, where no page has exactly the path they name."""
    stem = _PAGE_EXTENSION.sub("", path)
    return _WORD_SEPARATORS.sub("-", unicodedata.normalize("NFC", unicodedata.normalize("NFC", stem).casefold()))


def get_last_part(path: str) -> str:
    return path.rpartition("/")[2]


def resolve_link_paths(targets: Sequence[str], is_wiki_link: bool, file: str) -> tuple[str, ...]:
    """The page paths that a link on this page may mean, in order; none if it leads elsewhere or nowhere."""
    if not is_wiki_link:
        path = _resolve_markdown_path(targets[0], file)
        return (path,) if path else ()
    paths = [_resolve_wiki_path(target, file) for target in targets]
    # What stands before an address or a heading of this page is its text and no path.
    return tuple(dict.fromkeys(path for path in paths if path)) if paths[0] else ()


def split_wiki_target(target: str) -> tuple[str, str]:
    """The path in the target of a wiki link, and its heading (`#`) or block (`^`) with the sign before it."""
    path = _HEADING_OR_BLOCK.split(target, maxsplit=1)[0]
    return path, target[len(path) :]


def get_fragment(target: str) -> str:
    """The heading a link leads to, without the sign before it."""
    return unquote(target.partition("#")[2])


def has_page_extension(path: str) -> bool:
    """Whether the path ends like the file of a page."""
    return bool(_PAGE_EXTENSION.search(path))


def is_attachment(path: str, is_wiki_link: bool) -> bool:
    """Whether a link that is no page's leads to a file of another kind, as far as its name tells."""
    return not is_wiki_link and bool(_OTHER_EXTENSION.search(path)) and not has_page_extension(path)


def remove_page_extension(path: str) -> str:
    """The path as pages bear it: without `.md`, but with any other ending of a page's file."""
    # The same rule as `page_path`: where the rest ends like a page's file again, or is dots, the whole is the path.
    odd = get_last_part(path) in (".md", "..md", "...md") or bool(_PAGE_EXTENSION.search(path[:-3]))
    return path[:-3] if path.endswith(".md") and not odd else path


def _resolve_markdown_path(target: str, file: str) -> str:
    if _URL_SCHEME.match(target) or target.startswith(("//", "\\")):
        return ""
    written = unquote(re.split(r"[#?]", target, maxsplit=1)[0])
    return _resolve_path(written, "" if written.startswith("/") else file)


def _resolve_wiki_path(target: str, file: str) -> str:
    if _EXTERNAL_URL.match(target):
        return ""
    written = split_wiki_target(target)[0].strip()
    return _resolve_path(written, file if written.startswith(("./", "../")) else "")


def _resolve_path(written: str, file: str) -> str:
    """The path from the top of what was written on a page's file; empty where it leads out of the wiki."""
    if not written.strip("/") or "\0" in written:
        return ""
    parts = file.split("/")[:-1]
    for part in written.split("/"):
        if part == "..":
            if not parts:
                return ""
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return remove_page_extension("/".join(parts))


class PageNameIndex:
    """The pages of a wiki, or those that some links may mean, by the ways links name them."""

    def __init__(self, paths: Iterable[str], *, full_paths_only: bool = False) -> None:
        """`whole`: links name pages by their whole paths alone."""
        self._paths = frozenset(paths)
        self._full_paths_only: defaultdict[str, list[str]] = defaultdict(list)
        self._by_last_part: defaultdict[str, list[str]] = defaultdict(list)
        for path in self._paths:
            self._full_paths_only[fold_path(path)].append(path)
            if not full_paths_only:
                self._by_last_part[fold_path(get_last_part(path))].append(path)

    def find_page(self, paths: Sequence[str], is_wiki_link: bool) -> str | None:
        """The page that a link means: the first of its paths that is one, by itself or by being the only one alike."""
        for path in paths:
            found = path if path in self._paths else self._find_similar(path, is_wiki_link)
            if found is not None:
                return found
        return None

    def _find_similar(self, path: str, is_wiki_link: bool) -> str | None:
        key = fold_path(path)
        alike = (
            self._full_paths_only.get(key)
            or (self._by_last_part.get(key) if is_wiki_link and "/" not in path else None)
            or ()
        )
        return alike[0] if len(alike) == 1 else None
