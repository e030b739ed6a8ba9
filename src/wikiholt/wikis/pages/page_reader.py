"""One page, read from git, with the links the index knows of."""

from collections.abc import Sequence
from dataclasses import dataclass

from wikiholt.domain.git import Commit, LogEntry
from wikiholt.domain.page import Page, PageContent, PageLinks, PageProblem
from wikiholt.domain.protocols import Source
from wikiholt.errors import IndexUnavailable, InputTooLarge, InvalidPage, PageNotFound
from wikiholt.indexing.pipeline import TextPipeline
from wikiholt.text.charset import decode_bytes
from wikiholt.text.frontmatter import split_frontmatter
from wikiholt.text.page_names import make_page_name
from wikiholt.text.page_parser import parse_page
from wikiholt.wikis.pages.indexed_pages import IndexedPages
from wikiholt.wikis.pages.page_locator import PageFile, PageLocator, get_candidate_files, validate_path


@dataclass(frozen=True, slots=True)
class RawPage:
    """A page file's bytes, and its text as somebody may edit it."""

    data: bytes
    text: str


class PageReader:
    """Reads the pages of one wiki."""

    def __init__(
        self, source: Source, pipeline: TextPipeline, locator: PageLocator, indexed_pages: IndexedPages
    ) -> None:
        self._source = source
        self._pipeline = pipeline
        self._locator = locator
        self._indexed_pages = indexed_pages

    def read(self, path: str, revision: str | None) -> PageContent:
        at, place = self._resolve(path, revision)
        found = read_text(self._source, place, self._pipeline.max_bytes)
        commits = self._source.read_history(place.file, 1, at)
        last = commits[0] if commits else None
        page = parse_page(place.file, place.blob, found.data, last.date if last else None, self._pipeline.anchors)
        if isinstance(page, PageProblem):
            raise InvalidPage(f"{place.path} cannot be shown: {page.detail}", hint="read it with git")
        links, notes = self._load_links(page)
        return PageContent(
            name=page.name,
            path=place.path,
            file=place.file,
            content=found.text,
            metadata=page.metadata,
            frontmatter=split_frontmatter(found.text.removeprefix("\ufeff").replace("\r\n", "\n")).fields,
            words=page.words,
            length=page.length,
            blob=place.blob,
            revision=last.revision if last else at,
            last_commit=last,
            read_at=at,
            links_to=links.links_to,
            linked_from=links.linked_from,
            missing=links.missing,
            warnings=page.warnings,
            notes=notes,
            headings=page.headings,
        )

    def read_history(self, path: str, limit: int) -> Sequence[Commit]:
        head = self._locator.get_head()
        place = self._locator.find_page(path, head)
        if head is not None:
            for file in (place.file,) if place else get_candidate_files(validate_path(path)):
                commits = self._source.read_history(file, limit, head)
                if commits:
                    return commits
        raise PageNotFound(f"there is no page {path[:200]!r}, nor was there", hint="list the pages to see their paths")

    def read_changelog(self, limit: int, skip: int) -> Sequence[LogEntry]:
        return self._source.read_log(limit, skip)

    def resolve_path(self, path: str) -> str:
        """The path of the page that is meant."""
        return self._resolve(path, None)[1].path

    def _resolve(self, path: str, revision: str | None) -> tuple[str, PageFile]:
        """The revision that is meant, and the page there."""
        head = self._locator.get_head()
        if head is None or revision is None:
            return head or "", self._locator.get_page(path, head)
        at = self._source.resolve_revision(revision)
        return at, self._locator.get_page(path, at)

    def _load_links(self, page: Page) -> tuple[PageLinks, tuple[str, ...]]:
        try:
            return self._indexed_pages.resolve_links(page.path, page.links), ()
        except IndexUnavailable as error:
            return PageLinks(page.path), (f"its links are not known now ({error.code})",)


def read_text(source: Source, page_file: PageFile, limit: int) -> RawPage:
    """The page's file; raises TooLarge for one over the limit and InvalidPage for one that is no text."""
    (blob,) = source.read_blobs([page_file.blob], limit)
    if blob.size > limit:
        raise InputTooLarge(
            f"{page_file.path} has {blob.size:,} bytes; the limit is {limit:,}",
            hint="raise page.max_bytes, or split it",
        )
    if blob.data is None:
        raise InvalidPage(f"git could not read {page_file.path}", hint="look at the repository with `git fsck`")
    try:
        # As it is in the file, so that writing it back changes nothing.
        return RawPage(blob.data, blob.data.decode("utf-8"))
    except UnicodeDecodeError:
        decoded = decode_bytes(blob.data)
    if decoded is None:
        raise InvalidPage(f"{page_file.path} holds binary data, not text", hint="read it with git")
    return RawPage(blob.data, decoded.text)


def read_blob(source: Source, page_file: PageFile, limit: int) -> bytes | None:
    """The bytes of the page's file, as far as they can be read and are not over the limit."""
    (blob,) = source.read_blobs([page_file.blob], limit)
    return blob.data


def parse_name_and_warnings(file: str, data: bytes, pipeline: TextPipeline) -> tuple[str, tuple[str, ...]]:
    """What a page with this content is called, and what is odd about it."""
    page = parse_page(file, "", data, None, pipeline.anchors)
    return (make_page_name(file), (page.detail,)) if isinstance(page, PageProblem) else (page.name, page.warnings)
