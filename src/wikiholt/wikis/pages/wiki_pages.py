"""The operations on the pages of one wiki."""

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

    A page is named by its path: exactly, or by the only path that differs only in case; `.md` may be added. Raises
    PageNotFound if there is none. A write makes one commit by its author. `expected` is the revision (at least 7
    digits) that last changed the page; if it is another, RevisionMismatch is raised with the current one.
    """

    def __init__(self, source: Source, pipeline: TextPipeline, open_index: IndexOpener) -> None:
        locator = PageLocator(source, pipeline, open_index)
        self.get_pipeline = locator.get_pipeline
        self._indexed_pages = IndexedPages(open_index)
        self._reader = PageReader(source, pipeline, locator, self._indexed_pages)
        self._writer = PageWriter(source, pipeline, locator)
        self._renamer = PageRenamer(self._writer, open_index)
        self._attachments = PageAttachments(self._writer)

    def list(self, where: PageFilter = _NO_FILTER, limit: int | None = None, offset: int = 0) -> PageList:
        """The indexed pages that pass the filter, by path. Needs the index."""
        return self._indexed_pages.list(where, limit, offset)

    def get_facets(self, where: PageFilter = _NO_FILTER) -> Facets:
        """The categories, tags and top-level directories of the pages that pass, with counts. Needs the index."""
        return self._indexed_pages.get_facets(where)

    def read(self, path: str, revision: str | None = None) -> PageContent:
        """The page at HEAD, or at a revision that is an ancestor of HEAD."""
        return self._reader.read(path, revision)

    def read_history(self, path: str, limit: int = 50) -> Sequence[Commit]:
        """The commits that changed the page, newest first, including its earlier names. Works for deleted pages."""
        return self._reader.read_history(path, limit)

    def read_changelog(self, limit: int = 50, skip: int = 0) -> Sequence[LogEntry]:
        """The commits that changed any page, newest first."""
        return self._reader.read_changelog(limit, skip)

    def get_links(self, path: str) -> PageLinks:
        """The page's links and the links to it. Needs the index."""
        return self._indexed_pages.get_links(self._reader.resolve_path(path))

    def build_graph(self) -> PageGraph:
        """All pages and the links between them. Needs the index."""
        return self._indexed_pages.build_graph()

    def find_orphans(self) -> Sequence[StoredPage]:
        """The pages that no other page links to. Needs the index."""
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
        """Write the page. Raises PageExists if `create_only` and it exists."""
        return self._writer.write(path, content, author, message, expected, create_only)

    def replace_text(
        self, path: str, old: str, new: str, author: Author, message: str = "", *, expected: str | None = None
    ) -> PageWriteResult:
        """Replace the only occurrence of `old`. Raises InvalidPage if there is none or more than one."""
        return self._writer.replace_text(path, old, new, author, message, expected)

    def append(
        self, path: str, text: str, author: Author, message: str = "", *, expected: str | None = None
    ) -> PageWriteResult:
        """Append text to the page, on a new line."""
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
        """Move the page to another path and update links to it, in one commit. Raises PageExists if the path is taken.

        Links keep the form in which they were written. Without `update_links` only the file moves. `link_path` is the
        new path as written in links, which may differ in case, for a wiki whose links always use full paths.
        """
        return self._renamer.rename(path, new_path, author, message, expected, update_links, link_path)

    def list_attachments(self, path: str) -> AttachmentList:
        """The files attached to the page: those in the directory of its name that are not pages."""
        return self._attachments.list(path)

    def read_attachment(self, path: str, filename: str) -> AttachmentResult:
        """An attachment with its content. Raises AttachmentNotFound, and InputTooLarge over the page size limit."""
        return self._attachments.read(path, filename)

    def add_attachment(
        self, path: str, filename: str, data: bytes, author: Author, message: str = "", *, create_only: bool = False
    ) -> AttachmentResult:
        """Attach a file to the page, replacing one with the same name. Raises PageExists if `create_only`."""
        return self._attachments.write(path, filename, data, author, message, create_only=create_only)

    def remove_attachment(self, path: str, filename: str, author: Author, message: str = "") -> AttachmentResult:
        """Delete an attachment of the page. Raises AttachmentNotFound."""
        return self._attachments.delete(path, filename, author, message)
