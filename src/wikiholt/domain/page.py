"""Values of pages: parsed pages, chunks, links, page content, and results of writes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, TypeAlias

from wikiholt.domain.git import Commit
from wikiholt.domain.search import Facet, PropertyFacets, StoredPage


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a page; the anchor is the fragment a browser jumps to."""

    level: int
    text: str
    anchor: str
    line: int


class Link(NamedTuple):
    """A link as written on a page: `[text](target)` or, if `wiki`, `[[target]]` or `[[text|target]]`.

    `paths` are the candidate page paths, relative to the root of the wiki; the first that exists is the target. Empty
    for a link that leaves the wiki or stays on its page.
    """

    target: str
    text: str
    line: int
    wiki: bool = False
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PageProperty:
    """A frontmatter property and its values as written; a single value is a list of one."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PageMetadata:
    """A page's frontmatter, normalized for search."""

    title: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    description: str | None = None
    last_updated: datetime | None = None
    language: str | None = None
    hidden: bool = False
    aliases: tuple[str, ...] = ()
    """Other names of the page."""
    boost: float = 1.0
    """The factor on the evidence by which a search orders pages."""
    pins: tuple[str, ...] = ()
    """Queries for which the page comes first."""
    properties: tuple[PageProperty, ...] = ()
    """All properties that can be filtered by."""


class MarkdownBlock(NamedTuple):
    """A block of a page's Markdown: `page.body[start:end]`, on these lines of the file (inclusive)."""

    kind: str
    start: int
    end: int
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Page:
    """One page, parsed from one git blob. `path` is the file without `.md`; lines count from 1 in the file."""

    file: str
    path: str
    name: str
    metadata: PageMetadata
    headings: tuple[Heading, ...]
    links: tuple[Link, ...]
    body: str
    body_line: int
    warnings: tuple[str, ...] = ()
    blocks: tuple[MarkdownBlock, ...] = ()
    name_in_content: bool = False
    """Whether the name comes from the blob (title or heading) and not from the file's name."""
    words: int = 0
    length: int = 0
    """Characters of the file, including the frontmatter."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a page that is stored with its vector, exactly `page.body[start:end]`.

    Its first `overlap` characters repeat the end of the previous chunk. A passage is the text of a chunk: what a model
    embeds, and what a search finds and shows.
    """

    index: int
    text: str
    heading_path: tuple[str, ...]
    anchor: str
    first_line: int
    last_line: int
    start: int
    end: int
    overlap: int = 0


@dataclass(frozen=True, slots=True)
class PageTerms:
    """The keyword index of a page: analysed terms separated by spaces, one string per field."""

    name: str
    headings: str
    body: str

    @property
    def fields(self) -> tuple[str, str, str]:
        return self.name, self.headings, self.body


@dataclass(frozen=True, slots=True)
class PageProblem:
    """A page that could not be indexed, and the reason."""

    file: str
    blob: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class PageWarnings:
    """A page that was indexed, though not everything in it could be read as it was meant."""

    file: str
    warnings: tuple[str, ...]


MAX_LISTED_WARNINGS = 100
"""Pages with warnings that a status or the report of a sync lists. One habit can cause a warning on every page."""


# Page content, links between pages, and results of writes.


FrontmatterValue: TypeAlias = "str | list[FrontmatterValue] | dict[str, FrontmatterValue] | None"
"""A frontmatter value. Scalars are kept as written."""


@dataclass(frozen=True, slots=True)
class PageRef:
    """A page's path and display name."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class PageLink:
    """A link seen from one of its pages: the page at the other end, and the link's text, anchor and line."""

    path: str
    name: str
    text: str
    anchor: str
    line: int
    aliases: tuple[str, ...] = ()
    """The other names of the page at the other end, if the link leads there."""


@dataclass(frozen=True, slots=True)
class PageLinks:
    """The links of one page in both directions; `missing` are link targets that do not exist."""

    path: str
    links_to: tuple[PageLink, ...] = ()
    linked_from: tuple[PageLink, ...] = ()
    missing: tuple[str, ...] = ()
    missing_lines: tuple[int, ...] = ()
    """The line of the first link to each missing target."""


@dataclass(frozen=True, slots=True)
class PageGraph:
    """All pages and the links between them, as distinct (from path, to path) pairs."""

    pages: tuple[PageRef, ...]
    edges: tuple[tuple[str, str], ...]
    missing: tuple[tuple[str, str], ...]
    """Links to pages that do not exist: (from path, target path)."""
    indexed_revision: str | None


@dataclass(frozen=True, slots=True)
class PageList:
    """One slice of the pages that match a filter, by path; `total` counts all of them."""

    pages: tuple[StoredPage, ...]
    total: int
    indexed_revision: str | None


MAX_FACET_VALUES = 1000
"""Values of a requested facet in a response. A property may have another value on every page."""


@dataclass(frozen=True, slots=True)
class Facets:
    """The values to filter by, most frequent first; folders are those directly below the path of the filter."""

    pages: int
    categories: tuple[Facet, ...]
    tags: tuple[Facet, ...]
    folders: tuple[Facet, ...]
    properties: tuple[PropertyFacets, ...] = ()
    """The values of the requested properties."""

    @property
    def requested(self) -> tuple[PropertyFacets, ...]:
        """The most frequent values of the requested properties; for `tags` also those in the text of pages."""
        return tuple(
            replace(facet, values=facet.values[:MAX_FACET_VALUES])
            if facet.name.casefold() not in ("tag", "tags")
            else replace(facet, values=self.tags[:MAX_FACET_VALUES])
            for facet in self.properties
        )


@dataclass(frozen=True, slots=True)
class PageContent:
    """One page as stored in git: `revision` last changed it, `read_at` is the commit it was read from."""

    name: str
    path: str
    file: str
    content: str
    metadata: PageMetadata
    frontmatter: Mapping[str, FrontmatterValue]
    words: int
    length: int
    blob: str
    revision: str
    last_commit: Commit | None
    read_at: str
    links_to: tuple[PageLink, ...] = ()
    linked_from: tuple[PageLink, ...] = ()
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Problems of the page itself."""
    notes: tuple[str, ...] = ()
    """Information that is not available, such as the links while there is no index."""
    headings: tuple[Heading, ...] = ()


@dataclass(frozen=True, slots=True)
class PageWriteResult:
    """A page after a write; `changed` is False if the page already had that content."""

    name: str
    path: str
    file: str
    revision: str
    created: bool
    changed: bool
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PageDeleteResult:
    """A page deleted by this commit."""

    path: str
    file: str
    revision: str


@dataclass(frozen=True, slots=True)
class MovedFile:
    """The old and new file of a sub-page or an attachment that moved with a page."""

    old: str
    new: str
    is_page: bool


@dataclass(frozen=True, slots=True)
class PageRenameResult:
    """A page renamed by this commit, the pages whose links it rewrote, and the files that moved with the page."""

    name: str
    path: str
    file: str
    old_path: str
    revision: str
    updated: tuple[str, ...]
    moved: tuple[MovedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file attached to a page, stored in the directory named like the page. `mime_type` is guessed from the name."""

    filename: str
    file: str
    size: int
    mime_type: str
    blob: str
    last_modified: datetime | None = None


@dataclass(frozen=True, slots=True)
class AttachmentList:
    """The files attached to a page, by name."""

    path: str
    files: tuple[Attachment, ...]


@dataclass(frozen=True, slots=True)
class AttachmentResult:
    """An attachment after a write or a read; `data` is set after a read."""

    path: str
    attachment: Attachment
    revision: str
    created: bool = False
    data: bytes = b""
