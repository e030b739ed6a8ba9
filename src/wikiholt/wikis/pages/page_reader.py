"""Reads one page from git, with its links from the index."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from wikiholt.domain.git import Commit, EntryKind
from wikiholt.domain.page import Page, PageContent, PageLinks, PageProblem
from wikiholt.domain.protocols import Source
from wikiholt.errors import IndexUnavailable, InputTooLarge, InvalidPage, PageNotFound, SourceCorrupt
from wikiholt.index.pipeline import TextPipeline
from wikiholt.text.charset import decode_bytes
from wikiholt.text.frontmatter import split_frontmatter
from wikiholt.text.page_names import make_page_name
from wikiholt.wikis.pages.indexed_pages import IndexedPages
from wikiholt.wikis.pages.page_locator import (
    IndexOpener,
    PageFile,
    PageLocator,
    get_candidate_files,
    get_new_file,
    validate_path,
)


@dataclass(frozen=True, slots=True)
class RawPage:
    """The bytes of a page file, and its text for editing."""

    data: bytes
    text: str


class PageReader(PageLocator):
    """Reads the pages of one wiki."""

    def __init__(self, source: Source, pipeline: TextPipeline, open_index: IndexOpener) -> None:
        super().__init__(source, pipeline, open_index)
        self._indexed_pages = IndexedPages(open_index)

    def read(self, path: str, revision: str | None = None) -> PageContent:
        """The page at HEAD, or, also by its later name, at a revision that is an ancestor of HEAD."""
        read_at, page_file = self._resolve(path, revision)
        raw = read_text(self._source, page_file, self._pipeline.max_bytes)
        last = self._find_last_commit(page_file.file, read_at)
        page = self.get_pipeline().parse(page_file.file, page_file.blob, raw.data, last.date if last else None)
        if isinstance(page, PageProblem):
            raise InvalidPage(f"the page {page_file.path} cannot be shown: {page.detail}", hint="read it with git")
        return self._build_content(page_file, page, raw.text, last, read_at)

    def read_draft(self, path: str, text: str) -> PageContent:
        """The page as it would be with this text, which is not saved. `revision` is empty if there is no page yet."""
        head = self._read_head()
        page_file = self._find_page(path, head) or PageFile(get_new_file(path), "")
        last = self._find_last_commit(page_file.file, head) if head and page_file.blob else None
        page = self.get_pipeline().parse(page_file.file, "", text.encode("utf-8", "replace"), None)
        if isinstance(page, PageProblem):
            raise InvalidPage(f"the page {page_file.path} cannot be shown: {page.detail}", hint="change the text")
        return self._build_content(page_file, page, text, last, "")

    def _find_last_commit(self, file: str, revision: str) -> Commit | None:
        """The commit that last changed the file; None if the history cannot be read so far: the page still can be."""
        with suppress(SourceCorrupt):
            return next(iter(self._source.read_history(file, 1, revision)), None)
        return None

    def _build_content(
        self, page_file: PageFile, page: Page, text: str, last: Commit | None, read_at: str
    ) -> PageContent:
        links, notes = self._load_links(page)
        return PageContent(
            name=page.name,
            path=page_file.path,
            file=page_file.file,
            content=text,
            metadata=page.metadata,
            frontmatter=split_frontmatter(text.removeprefix("\ufeff").replace("\r\n", "\n")).fields,
            words=page.words,
            length=page.length,
            blob=page_file.blob,
            revision=last.revision if last else read_at,
            last_commit=last,
            read_at=read_at,
            links_to=links.links_to,
            linked_from=links.linked_from,
            missing=links.missing,
            warnings=page.warnings,
            notes=notes,
            headings=page.headings,
        )

    def read_history(self, path: str, limit: int = 50) -> Sequence[Commit]:
        """The commits that changed the page, newest first, including its earlier names. Works for deleted pages."""
        head = self._read_head()
        page_file = self._find_page(path, head)
        if head is not None:
            for file in (page_file.file,) if page_file else get_candidate_files(validate_path(path)):
                commits = self._source.read_history(file, limit, head)
                if commits:
                    return commits
        raise PageNotFound(f"there never was a page {path[:200]!r}", hint="list the pages to see their paths")

    def resolve_path(self, path: str) -> str:
        """The exact path of the page."""
        return self._resolve(path, None)[1].path

    def _resolve(self, path: str, revision: str | None) -> tuple[str, PageFile]:
        """The full revision, and the page file there."""
        head = self._read_head()
        if head is None or revision is None:
            return head or "", self._get_page(path, head)
        full_revision = self._source.resolve_revision(revision)
        try:
            return full_revision, self._get_page(path, full_revision)
        except PageNotFound:
            former = self._find_former_file(path, head, full_revision)
            if former is None:
                raise
            return full_revision, former

    def _find_former_file(self, path: str, head: str, revision: str) -> PageFile | None:
        """The file that a page of HEAD was at the revision, before it was renamed."""
        page_file = self._find_page(path, head)
        if page_file is None:
            return None
        for file in self._source.get_former_files([page_file.file], head).get(page_file.file, ()):
            entry = self._source.find_file(file, revision)
            if entry is not None and entry.kind is EntryKind.FILE:
                return PageFile(file, entry.blob)
        return None

    def _load_links(self, page: Page) -> tuple[PageLinks, tuple[str, ...]]:
        try:
            return self._indexed_pages.resolve_links(page.path, page.links), ()
        except IndexUnavailable as error:
            return PageLinks(page.path), (f"its links are unavailable ({error.code})",)


def read_text(source: Source, page_file: PageFile, limit: int) -> RawPage:
    """Read the page's file. Raises InputTooLarge over the limit and InvalidPage if it is not text."""
    (blob,) = source.read_blobs([page_file.blob], limit)
    if blob.size > limit:
        raise InputTooLarge(
            f"the page {page_file.path} has {blob.size:,} bytes; the limit is {limit:,}",
            hint="raise page.max_bytes, or split it",
        )
    if blob.data is None:
        raise InvalidPage(
            f"the page {page_file.path} cannot be read", hint="check its permissions, or the repository with `git fsck`"
        )
    try:
        # Exactly as in the file, so that writing it back changes nothing.
        return RawPage(blob.data, blob.data.decode("utf-8"))
    except UnicodeDecodeError:
        decoded = decode_bytes(blob.data)
    if decoded is None:
        raise InvalidPage(f"the page {page_file.path} contains binary data, not text", hint="read it with git")
    return RawPage(blob.data, decoded.text)


def parse_name_and_warnings(file: str, data: bytes, pipeline: TextPipeline) -> tuple[str, tuple[str, ...]]:
    """The name of a page with this content, and its warnings."""
    page = pipeline.parse(file, "", data, None)
    return (make_page_name(file), (page.detail,)) if isinstance(page, PageProblem) else (page.name, page.warnings)
