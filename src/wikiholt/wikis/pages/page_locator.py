"""Finds the page file for a path."""

import unicodedata
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from wikiholt.domain.git import EntryKind
from wikiholt.domain.protocols import Source
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import IndexUnavailable, InvalidPage, NoCommits, PageNotFound
from wikiholt.index.pipeline import TextPipeline
from wikiholt.text.links import fold_path
from wikiholt.text.page_names import get_page_path, has_link_extension

IndexOpener = Callable[[], AbstractContextManager[WikiIndex]]
"""Opens the published index of the wiki. Raises IndexMissing while there is none."""

MAX_PATH_CHARS = 1000


@dataclass(frozen=True, slots=True)
class PageFile:
    """A page's file at a revision."""

    file: str
    blob: str

    @property
    def path(self) -> str:
        return get_page_path(self.file)


class PageLocator:
    """Finds the files of one wiki's pages."""

    def __init__(self, source: Source, pipeline: TextPipeline, open_index: IndexOpener) -> None:
        self._source = source
        self._pipeline = pipeline
        self._open_index = open_index

    def get_pipeline(self) -> TextPipeline:
        """The pipeline of the wiki, with the dialect of its index if that was detected."""
        if not self._pipeline.detects_dialect:
            return self._pipeline
        try:
            with self._open_index() as index:
                return self._pipeline.with_dialect_of(index.get_state().recipe)
        except IndexUnavailable:
            return self._pipeline

    def _read_head(self) -> str | None:
        """HEAD, or None before the first commit."""
        try:
            return self._source.get_head()
        except NoCommits:
            return None

    def _get_page(self, path: str, revision: str | None) -> PageFile:
        """The page with this path at the revision. Raises PageNotFound."""
        page_file = self._find_page(path, revision)
        if page_file is None:
            current = self._find_current_path(path, revision)
            hint = f"{current!r} has this alias or former name" if current else "list the pages to see their paths"
            raise PageNotFound(f"there is no page {path[:200]!r}", hint=hint, current_path=current)
        return page_file

    def _find_page(self, path: str, revision: str | None) -> PageFile | None:
        """The page with this path, or else the only one whose path differs only in case or Unicode normalization."""
        path = validate_path(path)
        if revision is None:
            return None
        for file in get_candidate_files(path):
            entry = self._source.find_file(file, revision)
            if entry is not None and entry.kind is EntryKind.FILE:
                return PageFile(file, entry.blob)
        matches = {file for file in self._list_candidates(path, revision) if _is_same_path(file, path)}
        if len(matches) != 1:
            return None
        (file,) = matches
        entry = self._source.find_file(file, revision)
        return PageFile(file, entry.blob) if entry is not None and entry.kind is EntryKind.FILE else None

    def _find_current_path(self, path: str, revision: str | None) -> str:
        """The only page at the revision that has this path as an alias or former name; empty if there is none."""
        if revision is None:
            return ""
        key = fold_path(get_page_path(validate_path(path)))
        try:
            with self._open_index() as index:
                pages = [page for page in index.find_pages_by_key([key]) if key in map(fold_path, page.aliases)]
        except IndexUnavailable:
            return ""
        # The index may be older than the revision.
        is_there = len(pages) == 1 and self._source.find_file(pages[0].file, revision) is not None
        return pages[0].path if is_there else ""

    def _list_candidates(self, path: str, revision: str) -> Iterable[str]:
        """Files that may have this path, written otherwise: by the index if it has this revision, else by the tree."""
        try:
            with self._open_index() as index:
                if index.get_state().revision == revision:
                    return [page.file for page in index.find_pages_by_key([fold_path(path)])]
        except IndexUnavailable:
            pass
        return self._source.read_tree(revision)


def validate_path(path: str) -> str:
    """The path without surrounding slashes. Raises InvalidPage."""
    stripped = path.strip("/")
    if not stripped or len(stripped) > MAX_PATH_CHARS or not _is_text(stripped):
        message = f"{path[:80]!r} is not a page path" if stripped else "the page path is empty"
        raise InvalidPage(message, hint="use a path from the list of pages, such as guides/backup")
    return stripped


def is_below(path: str, prefix: str) -> bool:
    """Whether a path is the prefix, or below it as a folder. The prefix has no slash at its end."""
    return not prefix or path == prefix or path.startswith(f"{prefix}/")


def get_candidate_files(path: str) -> tuple[str, ...]:
    """The files that a path may name, the likeliest first."""
    return (path, f"{path}.md") if has_link_extension(path) else (f"{path}.md",)


def get_new_file(path: str) -> str:
    """The file of a page that does not exist yet."""
    return get_candidate_files(validate_path(path))[0]


def _is_same_path(file: str, path: str) -> bool:
    return fold_case(path) in (fold_case(file), fold_case(get_page_path(file)))


def fold_case(path: str) -> str:
    """A key that is equal for paths that differ only in case or Unicode normalization."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _is_text(path: str) -> bool:
    # File names in git may contain line breaks. The source decides which names may be written.
    return not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in path)
