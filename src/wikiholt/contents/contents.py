"""What may be done with the pages of one wiki."""

from collections.abc import Sequence

from wikiholt.contents.attachments import Attaching
from wikiholt.contents.linking import Linking
from wikiholt.contents.locating import Locator, OpenIndex
from wikiholt.contents.reading import Reading
from wikiholt.contents.renaming import Renaming
from wikiholt.contents.writing import Writing
from wikiholt.model import (
    Attached,
    Attachments,
    Author,
    Commit,
    Deleted,
    Facets,
    Filter,
    LogEntry,
    PageContent,
    PageGraph,
    PageLinks,
    PageList,
    Renamed,
    StoredPage,
    Written,
)
from wikiholt.pages import Pipeline
from wikiholt.ports import Source

_EVERY = Filter()


class Contents:
    """The pages of one wiki, bound to its source and its index. Safe to use from many threads.

    A page is named by its path: exactly, else by the only path that differs in case alone; `.md` may be written. Where
    there is none, PageNotFound is raised. A write makes one commit by its author; `expected` is the revision (at least
    7 digits) that must be the last one to have changed the page, else RevisionMismatch says which one is.
    """

    def __init__(self, source: Source, pipeline: Pipeline, index: OpenIndex) -> None:
        locator = Locator(source, index)
        self._linking = Linking(index)
        self._reading = Reading(source, pipeline, locator, self._linking)
        self._writing = Writing(source, pipeline, locator)
        self._renaming = Renaming(self._writing, index)
        self._attaching = Attaching(self._writing)

    def list(self, where: Filter = _EVERY, limit: int | None = None, offset: int = 0) -> PageList:
        """The indexed pages that pass, by path; needs the index."""
        return self._linking.list(where, limit, offset)

    def facets(self, where: Filter = _EVERY) -> Facets:
        """The categories, tags and top folders of the pages that pass, with counts; needs the index."""
        return self._linking.facets(where)

    def read(self, path: str, revision: str | None = None) -> PageContent:
        """The page at HEAD, or at a revision that HEAD descends from."""
        return self._reading.read(path, revision)

    def history(self, path: str, limit: int = 50) -> Sequence[Commit]:
        """The commits that changed the page, newest first, under its earlier names too; a deleted page has one."""
        return self._reading.history(path, limit)

    def changelog(self, limit: int = 50, skip: int = 0) -> Sequence[LogEntry]:
        """The commits that touched a page, newest first."""
        return self._reading.changelog(limit, skip)

    def links(self, path: str) -> PageLinks:
        """The page's links and the links to it; needs the index."""
        return self._linking.links(self._reading.known_path(path))

    def graph(self) -> PageGraph:
        """Every page and who links to whom; needs the index."""
        return self._linking.graph()

    def orphans(self) -> Sequence[StoredPage]:
        """The pages that no other page links to; needs the index."""
        return self._linking.orphans()

    def put(
        self,
        path: str,
        content: str,
        author: Author,
        message: str = "",
        *,
        expected: str | None = None,
        create_only: bool = False,
    ) -> Written:
        """Make the page hold this content; raises PageExists where `create_only` and it is there already."""
        return self._writing.put(path, content, author, message, expected, create_only)

    def patch(
        self, path: str, old: str, new: str, author: Author, message: str = "", *, expected: str | None = None
    ) -> Written:
        """Replace the one place where the page says `old`; raises InvalidPage where it says so nowhere or twice."""
        return self._writing.patch(path, old, new, author, message, expected)

    def append(
        self, path: str, text: str, author: Author, message: str = "", *, expected: str | None = None
    ) -> Written:
        """Add text at the page's end, on a line of its own."""
        return self._writing.append(path, text, author, message, expected)

    def delete(self, path: str, author: Author, message: str = "", *, expected: str | None = None) -> Deleted:
        return self._writing.delete(path, author, message, expected)

    def rename(
        self,
        path: str,
        new_path: str,
        author: Author,
        message: str = "",
        *,
        expected: str | None = None,
        update_links: bool = True,
        spelled: str | None = None,
    ) -> Renamed:
        """Give the page another path and let links follow, in one commit; raises PageExists where that path is taken.

        Links keep the form they were written in. Without `update_links` only the file moves. `spelled` is the new
        path as links write it, case aside the same, in a wiki whose links all name whole paths.
        """
        return self._renaming.rename(path, new_path, author, message, expected, update_links, spelled)

    def attachments(self, path: str) -> Attachments:
        """The files attached to the page: those in the directory of its name that are no pages."""
        return self._attaching.list(path)

    def attachment(self, path: str, filename: str) -> Attached:
        """One of them with its bytes; raises AttachmentNotFound, and TooLarge over the limit of a page."""
        return self._attaching.read(path, filename)

    def attach(
        self, path: str, filename: str, data: bytes, author: Author, message: str = "", *, create_only: bool = False
    ) -> Attached:
        """Attach a file to the page, in the place of one of that name; raises PageExists where `create_only`."""
        return self._attaching.put(path, filename, data, author, message, create_only=create_only)

    def detach(self, path: str, filename: str, author: Author, message: str = "") -> Attached:
        """Delete a file that is attached to the page; raises AttachmentNotFound."""
        return self._attaching.delete(path, filename, author, message)
