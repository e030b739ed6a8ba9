"""The operations on the pages of one wiki."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from wikiholt.domain.git import EntryKind, TreeChange
from wikiholt.domain.page import Page, PageLinks, PageList
from wikiholt.domain.protocols import Source
from wikiholt.domain.search import PageFilter, StoredPage
from wikiholt.errors import IndexMissing, NoCommits, PageNotFound
from wikiholt.index.pipeline import TextPipeline
from wikiholt.text.navigation import (
    MAX_NAVIGATION_BYTES,
    WEIGHT_PROPERTIES,
    Navigation,
    find_navigation_files,
    parse_navigation,
)
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.pages.bulk_writer import BulkWriter
from wikiholt.wikis.pages.indexed_pages import IndexOpener
from wikiholt.wikis.pages.page_attachments import PageAttachments
from wikiholt.wikis.pages.page_reader import PageFile, is_below, validate_path
from wikiholt.wikis.pages.page_renamer import PageRenamer

_NO_FILTER = PageFilter()
_BATCH_PAGES = 200


class WikiPages(PageRenamer, PageAttachments, BulkWriter):
    """The pages of one wiki, bound to its source and its index. Safe to use from many threads.

    A page is named by its path: exactly, or by the only path that differs only in case or Unicode normalization;
    `.md` may be added. Raises PageNotFound if there is none. A write makes one commit by its author. `expected` is the
    revision (at least 7 digits) that last changed the page; if it is another, RevisionMismatch is raised with the
    current one.
    """

    def __init__(self, source: Source, pipeline: TextPipeline, open_index: IndexOpener) -> None:
        super().__init__(source, pipeline, open_index)
        self.get_facets = self._indexed_pages.get_facets
        self.build_graph = self._indexed_pages.build_graph
        self.find_orphans = self._indexed_pages.find_orphans
        self.read_changelog = source.read_log
        self._navigation: tuple[object, Navigation] = (None, Navigation())

    def list(self, where: PageFilter = _NO_FILTER, limit: int | None = None, offset: int = 0) -> PageList:
        """The pages that pass the filter, by path: of the index, or of HEAD until the first sync has ended."""
        try:
            indexed = self._indexed_pages.list(where, limit, offset)
            if indexed.indexed_revision is not None:
                return indexed
        except IndexMissing:
            pass
        head = self._read_head()
        if head is None:
            return PageList((), 0, None)
        return _list_pages_from_git(self._source, self.get_pipeline(), head, where, limit, offset)

    def read_navigation(self) -> Navigation:
        """The navigation of a static site at HEAD; empty for another wiki."""
        head = self._read_head() if self.get_pipeline().dialect.has_routes else None
        if head is None:
            return Navigation()
        key = head, self._indexed_pages.get_revision()
        known, navigation = self._navigation
        if known != key:
            navigation = self._load_navigation(head)
            self._navigation = key, navigation
        return navigation

    def _load_navigation(self, head: str) -> Navigation:
        tree, others = self._source.read_all_files(head)
        blobs: dict[str, str] = {}
        for file in find_navigation_files((*tree, *others)):
            folder, _, name = file.rpartition("/")
            attached = None if file in tree else self._source.list_attached_files(folder, head, hidden=True).get(name)
            if file in tree or attached:
                blobs[file] = attached.blob if attached else tree[file].blob
        contents = self._source.read_blobs(blobs.values(), MAX_NAVIGATION_BYTES)
        texts = {
            file: blob.data.decode("utf-8", "replace")
            for file, blob in zip(blobs, contents, strict=True)
            if blob.data is not None
        }
        listed = self.list()
        aliases = {page.path: page.aliases for page in listed.pages if page.aliases}
        is_indexed = listed.indexed_revision is not None
        numbers = self._indexed_pages.get_numbers(WEIGHT_PROPERTIES) if is_indexed else {}
        return parse_navigation(texts, [page.path for page in listed.pages], aliases, numbers)

    def find_file(self, path: str) -> PageFile | None:
        """The file of the page at HEAD, or None if there is no such page. Raises InvalidPage."""
        return self._find_page(path, self._read_head())

    def find_changes(self, old: str, new: str) -> Sequence[TreeChange] | None:
        """The page files that differ between two revisions; None if that is unknown."""
        return self._source.get_changes(old, new)

    def get_head(self) -> str | None:
        """The newest revision known without a fetch, or None before the first commit."""
        try:
            return self._source.get_last_known_head()
        except NoCommits:
            return None

    def get_links(self, path: str) -> PageLinks:
        """The page's links and the links to it, also of a page that is not written yet. Needs the index."""
        try:
            return self._indexed_pages.get_links(self.resolve_path(path))
        except PageNotFound:
            links = self._indexed_pages.get_links(validate_path(path))
            if not links.linked_from:
                raise
            return links


# The page list of a wiki whose first sync has not ended: complete, from git instead of the index.


def _list_pages_from_git(
    source: Source, pipeline: TextPipeline, head: str, where: PageFilter, limit: int | None, offset: int
) -> PageList:
    """The pages at HEAD that pass the filter, by path. Raises IndexMissing for a filter that needs the index."""
    if replace(where, categories=(), tags=(), path_prefix="", updated_since=None):
        raise IndexMissing("this wiki is not indexed yet", hint="list without this filter, or try again in a moment")
    blobs = {
        file: entry.blob
        for file, entry in sorted(source.read_tree(head).items(), key=lambda item: get_page_path(item[0]))
        if entry.kind is EntryKind.FILE and is_below(get_page_path(file), where.path_prefix.strip("/"))
    }
    end = None if limit is None else offset + limit
    files = list(blobs)
    if where == PageFilter(path_prefix=where.path_prefix):
        pages = tuple(_read_pages(source, pipeline, head, {file: blobs[file] for file in files[offset:end]}))
        return PageList(pages, len(files), None)
    matching = [page for page in _read_pages(source, pipeline, head, blobs) if _matches(page, where)]
    return PageList(tuple(matching[offset:end]), len(matching), None)


def _read_pages(source: Source, pipeline: TextPipeline, head: str, blobs: dict[str, str]) -> Iterator[StoredPage]:
    dates = source.get_change_dates(list(blobs), head, None) if blobs else {}
    remaining = iter(blobs.items())
    while batch := list(islice(remaining, _BATCH_PAGES)):
        contents = source.read_blobs((blob for _, blob in batch), pipeline.max_bytes)
        for (file, _), content in zip(batch, contents, strict=True):
            page = pipeline.parse(file, content.id, content.data, dates.get(file)) if content.data is not None else None
            if isinstance(page, Page):
                yield _to_stored_page(page)


def _to_stored_page(page: Page) -> StoredPage:
    data = page.metadata
    return StoredPage(
        0, page.file, page.path, page.name, data.category, data.tags, data.last_updated, 0, words=page.words
    )


def _matches(page: StoredPage, where: PageFilter) -> bool:
    tags = _fold(page.tags)
    return (
        (not where.categories or (page.category or "").casefold() in _fold(where.categories))
        and set(_fold(where.tags)) <= set(tags)
        and (
            where.updated_since is None or (page.last_updated is not None and page.last_updated >= where.updated_since)
        )
    )


def _fold(texts: Sequence[str]) -> list[str]:
    return [text.casefold() for text in texts]
