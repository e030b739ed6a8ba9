"""What may be done with the pages of one wiki."""

from collections.abc import Sequence

from wikiholt.domain.git import Author, Commit, LogEntry
from wikiholt.domain.page import (
    AttachmentList,
    AttachmentResult,
    Facets,
    PageContent,
    PageDeleteResult,
    PageGraph,
    PageLinks,
    PageList,
    PageRenameResult,
    PageWriteResult,
)
from wikiholt.domain.protocols import Source
from wikiholt.domain.search import PageFilter, StoredPage
from wikiholt.indexing.pipeline import TextPipeline
from wikiholt.wikis.pages.indexed_pages import IndexedPages
from wikiholt.wikis.pages.page_attachments import PageAttachments
from wikiholt.wikis.pages.page_locator import IndexOpener, PageLocator
from wikiholt.wikis.pages.page_reader import PageReader
from wikiholt.wikis.pages.page_writer import PageRenamer, PageWriter

_NO_FILTER = PageFilter()


class WikiPages:
    """The pages of one wiki, bound to its source and its index. Safe to use from many threads.

    A page is named by its path: exactly, else by the only path that differs in case alone; `.md` may be written. Where
    there is none, PageNotFound is raised. A write makes one commit by its author; `expected` is the revision (at least
    7 digits) that must be the last one to have changed the page, else RevisionMismatch says which one is.
    """

    def __init__(self, source: Source, pipeline: TextPipeline, open_index: IndexOpener) -> None:
        locator = PageLocator(source, open_index)
        self._indexed_pages = IndexedPages(open_index)
        self._reader = PageReader(source, pipeline, locator, self._indexed_pages)
        self._writer = PageWriter(source, pipeline, locator)
        self._renamer = PageRenamer(self._writer, open_index)
        self._attachments = PageAttachments(self._writer)

    def list(self, where: PageFilter = _NO_FILTER, limit: int | None = None, offset: int = 0) -> PageList:
        """The indexed pages that pass, by path; needs the index."""
        return self._indexed_pages.list(where, limit, offset)

    def get_facets(self, where: PageFilter = _NO_FILTER) -> Facets:
        """The categories, tags and top folders of the pages that pass, with counts; needs the index."""
        return self._indexed_pages.get_facets(where)

    def read(self, path: str, revision: str | None = None) -> PageContent:
        """The page at HEAD, or at a revision that HEAD descends from."""
        return self._reader.read(path, revision)

    def read_history(self, path: str, limit: int = 50) -> Sequence[Commit]:
        """The commits that changed the page, newest first, under its earlier names too; a deleted page has one."""
        return self._reader.read_history(path, limit)

    def read_changelog(self, limit: int = 50, skip: int = 0) -> Sequence[LogEntry]:
        """The commits that touched a page, newest first."""
        return self._reader.read_changelog(limit, skip)

    def get_links(self, path: str) -> PageLinks:
        """The page's links and the links to it; needs the index."""
        return self._indexed_pages.get_links(self._reader.resolve_path(path))

    def build_graph(self) -> PageGraph:
        """Every page and who links to whom; needs the index."""
        return self._indexed_pages.build_graph()

    def find_orphans(self) -> Sequence[StoredPage]:
        """The pages that no other page links to; needs the index."""
        return self._indexed_pages.find_orphans()

    def write(
        self,
        path: str,
        content: str,
        author: Author,
        message: str = "",
        *,
        expected: str | None = None,
        create_only: bool = False,
    ) -> PageWriteResult:
        """Make the page hold this content; raises PageExists where `create_only` and it is there already."""
        return self._writer.write(path, content, author, message, expected, create_only)

    def replace_text(
        self, path: str, old: str, new: str, author: Author, message: str = "", *, expected: str | None = None
    ) -> PageWriteResult:
        """Replace the one place where the page says `old`; raises InvalidPage where it says so nowhere or twice."""
        return self._writer.replace_text(path, old, new, author, message, expected)

    def append(
        self, path: str, text: str, author: Author, message: str = "", *, expected: str | None = None
    ) -> PageWriteResult:
        """Add text at the page's end, on a line of its own."""
        return self._writer.append(path, text, author, message, expected)

    def delete(self, path: str, author: Author, message: str = "", *, expected: str | None = None) -> PageDeleteResult:
        return self._writer.delete(path, author, message, expected)

    def rename(
        self,
        path: str,
        new_path: str,
        author: Author,
        message: str = "",
        *,
        expected: str | None = None,
        update_links: bool = True,
        link_path: str | None = None,
    ) -> PageRenameResult:
        """Give the page another path and let links follow, in one commit; raises PageExists where that path is taken.

        Links keep the form they were written in. Without `update_links` only the file moves. `spelled` is the new
        path as links write it, case aside the same, in a wiki whose links all name whole paths.
        """
        return self._renamer.rename(path, new_path, author, message, expected, update_links, link_path)

    def list_attachments(self, path: str) -> AttachmentList:
        """The files attached to the page: those in the directory of its name that are no pages."""
        return self._attachments.list(path)

    def read_attachment(self, path: str, filename: str) -> AttachmentResult:
        """One of them with its bytes; raises AttachmentNotFound, and TooLarge over the limit of a page."""
        return self._attachments.read(path, filename)

    def add_attachment(
        self, path: str, filename: str, data: bytes, author: Author, message: str = "", *, create_only: bool = False
    ) -> AttachmentResult:
        """Attach a file to the page, in the place of one of that name; raises PageExists where `create_only`."""
        return self._attachments.write(path, filename, data, author, message, create_only=create_only)

    def remove_attachment(self, path: str, filename: str, author: Author, message: str = "") -> AttachmentResult:
        """Delete a file that is attached to the page; raises AttachmentNotFound."""
        return self._attachments.delete(path, filename, author, message)
