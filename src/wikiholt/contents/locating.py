"""From the path somebody names to the page file there is."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from wikiholt.errors import IndexFault, InvalidPage, NoCommits, PageNotFound
from wikiholt.model import EntryKind
from wikiholt.ports import Source, WikiIndex
from wikiholt.text.links import folded, has_ending
from wikiholt.text.page import page_path

OpenIndex = Callable[[], AbstractContextManager[WikiIndex]]
"""Lends the wiki's index as it is published now; raises IndexMissing while there is none."""

MAX_PATH = 1000


@dataclass(frozen=True, slots=True)
class Located:
    """A page's file at a revision."""

    file: str
    blob: str

    @property
    def path(self) -> str:
        return page_path(self.file)


class Locator:
    """Finds the files of one wiki's pages."""

    def __init__(self, source: Source, index: OpenIndex) -> None:
        self._source = source
        self._index = index

    def head(self) -> str | None:
        """HEAD, or None before the first commit."""
        try:
            return self._source.head()
        except NoCommits:
            return None

    def page(self, path: str, revision: str | None) -> Located:
        """The page that a path names at the revision; raises PageNotFound."""
        found = self.find(path, revision)
        if found is None:
            raise PageNotFound(f"there is no page {path[:200]!r}", hint="list the pages to see their paths")
        return found

    def find(self, path: str, revision: str | None) -> Located | None:
        """The page that a path names: exactly, else as the only one that differs in case alone."""
        path = checked_path(path)
        if revision is None:
            return None
        for file in files_of(path):
            entry = self._source.find(file, revision)
            if entry is not None and entry.kind is EntryKind.FILE:
                return Located(file, entry.blob)
        alike = {file for file in self._files(path, revision) if _same(file, path)}
        if len(alike) != 1:
            return None
        (file,) = alike
        entry = self._source.find(file, revision)
        return Located(file, entry.blob) if entry is not None and entry.kind is EntryKind.FILE else None

    def _files(self, path: str, revision: str) -> Iterable[str]:
        """Files among which those of a like path are: by the index if it stands for the revision, else by the tree."""
        try:
            with self._index() as index:
                if index.state().revision == revision:
                    return [page.file for page in index.named([folded(path)])]
        except IndexFault:
            pass
        return self._source.tree(revision)


def checked_path(path: str) -> str:
    """The path without slashes around it; raises InvalidPage for what can be no path."""
    inner = path.strip("/")
    if not inner or len(inner) > MAX_PATH or not _is_text(inner):
        raise InvalidPage(
            f"{path[:80]!r} is no path of a page", hint="name it as in the list of pages, such as guides/backup"
        )
    return inner


def files_of(path: str) -> tuple[str, ...]:
    """The files a path may stand for, the likeliest first."""
    return (path, f"{path}.md") if has_ending(path) else (f"{path}.md",)


def new_file(path: str) -> str:
    """The file of a page that is yet to be."""
    return files_of(checked_path(path))[0]


def _same(file: str, path: str) -> bool:
    return path.casefold() in (file.casefold(), page_path(file).casefold())


def _is_text(path: str) -> bool:
    # git has files with line ends in their names; whether one may be written under a name is for the source to say
    return not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in path)
