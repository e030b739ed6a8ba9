"""The operations on the pages of one wiki."""

from wikiholt.domain.page import PageLinks
from wikiholt.domain.protocols import Source
from wikiholt.indexing.pipeline import TextPipeline
from wikiholt.wikis.pages.indexed_pages import IndexedPages
from wikiholt.wikis.pages.page_attachments import PageAttachments
from wikiholt.wikis.pages.page_locator import IndexOpener, PageFile, PageLocator
from wikiholt.wikis.pages.page_reader import PageReader
from wikiholt.wikis.pages.page_writer import PageRenamer, PageWriter
from wikiholt.wikis.pages.repository_files import RepositoryFiles


class WikiPages:
    """The pages of one wiki, bound to its source and its index. Safe to use from many threads.

    A page is named by its path: exactly, or by the only path that differs only in case; `.md` may be added. Raises
    PageNotFound if there is none. A write makes one commit by its author. `expected` is the revision (at least 7
    digits) that last changed the page; if it is another, RevisionMismatch is raised with the current one.
    """

    def __init__(self, source: Source, pipeline: TextPipeline, open_index: IndexOpener) -> None:
        self._locator = locator = PageLocator(source, pipeline, open_index)
        self.get_pipeline = locator.get_pipeline
        indexed_pages = self._indexed_pages = IndexedPages(open_index)
        reader = self._reader = PageReader(source, pipeline, locator, indexed_pages)
        writer = PageWriter(source, pipeline, locator)
        attachments = PageAttachments(writer)

        self.list = indexed_pages.list
        self.get_facets = indexed_pages.get_facets
        self.build_graph = indexed_pages.build_graph
        self.find_orphans = indexed_pages.find_orphans

        self.read = reader.read
        self.read_history = reader.read_history
        self.read_changelog = source.read_log

        self.write = writer.write
        self.replace_text = writer.replace_text
        self.append = writer.append
        self.delete = writer.delete
        self.rename = PageRenamer(writer, open_index).rename

        self.read_file = RepositoryFiles(source, locator, attachments, pipeline.max_bytes).read

        self.list_attachments = attachments.list
        self.read_attachment = attachments.read
        self.add_attachment = attachments.write
        self.remove_attachment = attachments.delete

    def find_file(self, path: str) -> PageFile | None:
        """The file of the page at HEAD, or None if there is no such page. Raises InvalidPage."""
        return self._locator.find_page(path, self._locator.get_head())

    def get_links(self, path: str) -> PageLinks:
        """The page's links and the links to it. Needs the index."""
        return self._indexed_pages.get_links(self._reader.resolve_path(path))
