"""Suggests existing pages for a path that was not found."""

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from wikiholt.domain.search import PageFilter
from wikiholt.errors import PageNotFound, WikiholtError
from wikiholt.text.comparison import find_close_matches
from wikiholt.wikis.session import WikiSession

_MAX_COMPARED_PAGES = 2000
_MAX_COMPARED_CHARS = 300
_MAX_SUGGESTIONS = 2
_MIN_SIMILARITY = 0.75


@contextmanager
def suggest_paths(wiki: WikiSession, requested: str) -> Iterator[None]:
    """Add similar paths to the hint of PageNotFound. Only for callers that may read the wiki."""
    try:
        yield
    except PageNotFound as error:
        if not error.current_path and (similar := find_similar_paths(wiki, error, requested)):
            error.hint = f"Did you mean {' or '.join(map(repr, similar))}?"
        raise


def find_similar_paths(wiki: WikiSession, error: PageNotFound, requested: str) -> list[str]:
    """Existing paths that are similar to one that was not found, in the path style of the caller.

    Compares a limited number of pages, so that a wrong path of a large wiki is cheap.
    """
    if error.current_path:
        return [wiki.path_style.to_display_path(error.current_path)]
    with suppress(WikiholtError):
        paths = [
            wiki.path_style.to_display_path(page.path)
            for page in wiki.handle.pages.list(PageFilter(), _MAX_COMPARED_PAGES).pages
        ]
        by_path = {_fold(path): path for path in paths}
        by_name = {path.rpartition("/")[2]: path for path in by_path}
        wanted = _fold(requested[:_MAX_COMPARED_CHARS])
        close = _find_close(wanted, list(by_path))
        names = _find_close(wanted.rpartition("/")[2], list(by_name))
        similar = [by_path[path] for path in (*close, *(by_name[name] for name in names))]
        return [path for path in dict.fromkeys(similar) if path != requested][:_MAX_SUGGESTIONS]
    return []


def _find_close(wanted: str, known: list[str]) -> list[str]:
    return find_close_matches(wanted, known, _MAX_SUGGESTIONS, _MIN_SIMILARITY)


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()
