"""One page, read from git, with the links the index knows of."""

from collections.abc import Sequence
from dataclasses import dataclass

from wikiholt.contents.linking import Linking
from wikiholt.contents.locating import Located, Locator, checked_path, files_of
from wikiholt.errors import IndexFault, InvalidPage, PageNotFound, TooLarge
from wikiholt.model import Commit, LogEntry, Page, PageContent, PageLinks, Problem
from wikiholt.pages import Pipeline
from wikiholt.ports import Source
from wikiholt.text.decoding import decode
from wikiholt.text.frontmatter import split
from wikiholt.text.page import file_name, parse_page


@dataclass(frozen=True, slots=True)
class Read:
    """A page file's bytes, and its text as somebody may edit it."""

    data: bytes
    text: str


class Reading:
    """Reads the pages of one wiki."""

    def __init__(self, source: Source, pipeline: Pipeline, locator: Locator, linking: Linking) -> None:
        self._source = source
        self._pipeline = pipeline
        self._locator = locator
        self._linking = linking

    def read(self, path: str, revision: str | None) -> PageContent:
        at, place = self._at(path, revision)
        found = read_text(self._source, place, self._pipeline.max_bytes)
        commits = self._source.history(place.file, 1, at)
        last = commits[0] if commits else None
        page = parse_page(place.file, place.blob, found.data, last.date if last else None, self._pipeline.anchors)
        if isinstance(page, Problem):
            raise InvalidPage(f"{place.path} cannot be shown: {page.detail}", hint="read it with git")
        links, notes = self._links(page)
        return PageContent(
            name=page.name,
            path=place.path,
            file=place.file,
            content=found.text,
            metadata=page.metadata,
            frontmatter=split(found.text.removeprefix("\ufeff").replace("\r\n", "\n")).fields,
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

    def history(self, path: str, limit: int) -> Sequence[Commit]:
        head = self._locator.head()
        place = self._locator.find(path, head)
        if head is not None:
            for file in (place.file,) if place else files_of(checked_path(path)):
                commits = self._source.history(file, limit, head)
                if commits:
                    return commits
        raise PageNotFound(f"there is no page {path[:200]!r}, nor was there", hint="list the pages to see their paths")

    def changelog(self, limit: int, skip: int) -> Sequence[LogEntry]:
        return self._source.log(limit, skip)

    def known_path(self, path: str) -> str:
        """The path of the page that is meant."""
        return self._at(path, None)[1].path

    def _at(self, path: str, revision: str | None) -> tuple[str, Located]:
        """The revision that is meant, and the page there."""
        head = self._locator.head()
        if head is None or revision is None:
            return head or "", self._locator.page(path, head)
        at = self._source.resolve(revision)
        return at, self._locator.page(path, at)

    def _links(self, page: Page) -> tuple[PageLinks, tuple[str, ...]]:
        try:
            return self._linking.links_of(page.path, page.links), ()
        except IndexFault as error:
            return PageLinks(page.path), (f"its links are not known now ({error.code})",)


def read_text(source: Source, place: Located, limit: int) -> Read:
    """The page's file; raises TooLarge for one over the limit and InvalidPage for one that is no text."""
    (blob,) = source.read([place.blob], limit)
    if blob.size > limit:
        raise TooLarge(
            f"{place.path} has {blob.size:,} bytes; the limit is {limit:,}", hint="raise page.max_bytes, or split it"
        )
    if blob.data is None:
        raise InvalidPage(f"git could not read {place.path}", hint="look at the repository with `git fsck`")
    try:
        # As it is in the file, so that writing it back changes nothing.
        return Read(blob.data, blob.data.decode("utf-8"))
    except UnicodeDecodeError:
        decoded = decode(blob.data)
    if decoded is None:
        raise InvalidPage(f"{place.path} holds binary data, not text", hint="read it with git")
    return Read(blob.data, decoded.text)


def read_blob(source: Source, place: Located, limit: int) -> bytes | None:
    """The bytes of the page's file, as far as they can be read and are not over the limit."""
    (blob,) = source.read([place.blob], limit)
    return blob.data


def name_and_warnings(file: str, data: bytes, pipeline: Pipeline) -> tuple[str, tuple[str, ...]]:
    """What a page with this content is called, and what is odd about it."""
    page = parse_page(file, "", data, None, pipeline.anchors)
    return (file_name(file), (page.detail,)) if isinstance(page, Problem) else (page.name, page.warnings)
