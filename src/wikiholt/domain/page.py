"""What pages are made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from wikiholt.domain.git import Commit
from wikiholt.domain.search import StoredPage


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a page; the anchor is the fragment a browser jumps to."""

    level: int
    text: str
    anchor: str
    line: int


@dataclass(frozen=True, slots=True)
class Link:
    """A link as written on a page: `[text](target)` or, if `wiki`, `[[target]]` or `[[text|target]]`.

    `paths` are the page paths it may mean, counted from the top of the wiki, the first that is a page counts; none for
    a link that leads out of the wiki or stays on its page.
    """

    target: str
    text: str
    line: int
    wiki: bool = False
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PageMetadata:
    """What a page's frontmatter says, in the forms search needs."""

    title: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    description: str | None = None
    last_updated: datetime | None = None
    language: str | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A block of a page's Markdown: `page.body[start:end]`, on these lines of the file (both included)."""

    kind: str
    start: int
    end: int
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Page:
    """One page, read from one git blob. `path` is the file without `.md`; lines count from 1 in the file."""

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
    """Whether the name comes from the blob (title or first heading) and not from the file's name."""
    words: int = 0
    length: int = 0
    """Characters of the whole file."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage: exactly `page.body[start:end]`, its first `overlap` characters repeated from the one before."""

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
    """A page as the keyword index holds it: analysed terms, separated by spaces, one string a field."""

    name: str
    headings: str
    body: str


@dataclass(frozen=True, slots=True)
class PageProblem:
    """A page that could not be indexed, and why."""

    file: str
    blob: str
    reason: str
    detail: str


# Pages as their readers and writers see them: content, links between pages, commits made.


FrontmatterValue: TypeAlias = "str | list[FrontmatterValue] | dict[str, FrontmatterValue] | None"
"""A value of a frontmatter: every scalar is the text that was written."""


@dataclass(frozen=True, slots=True)
class PageRef:
    """A page by its two names."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class PageLink:
    """A link, seen from one of its pages: the page at the other end, and how and where the link is written."""

    path: str
    name: str
    text: str
    anchor: str
    line: int


@dataclass(frozen=True, slots=True)
class PageLinks:
    """The links of one page, in both directions; `missing` are the paths it links to that are no page."""

    path: str
    links_to: tuple[PageLink, ...] = ()
    linked_from: tuple[PageLink, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PageGraph:
    """All pages and who links to whom, as (from path, to path), each pair once."""

    pages: tuple[PageRef, ...]
    edges: tuple[tuple[str, str], ...]
    missing: tuple[tuple[str, str], ...]
    """Links to what is no page: (from path, path linked to)."""
    indexed_revision: str | None


@dataclass(frozen=True, slots=True)
class PageList:
    """Some of the pages that pass a filter, by path; `total` is how many do."""

    pages: tuple[StoredPage, ...]
    total: int
    indexed_revision: str | None


@dataclass(frozen=True, slots=True)
class Facet:
    """A value that filters may name, as it is mostly written, and how many pages have it."""

    value: str
    count: int


@dataclass(frozen=True, slots=True)
class Facets:
    """What there is to filter by, the most frequent first; folders are those at the top."""

    pages: int
    categories: tuple[Facet, ...]
    tags: tuple[Facet, ...]
    folders: tuple[Facet, ...]


@dataclass(frozen=True, slots=True)
class PageContent:
    """One page as git has it. `revision` is the commit that last changed it, `read_at` the commit it was read at."""

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
    """What is odd about the page itself."""
    notes: tuple[str, ...] = ()
    """What could not be said of it, such as its links while there is no index."""
    headings: tuple[Heading, ...] = ()


@dataclass(frozen=True, slots=True)
class PageWriteResult:
    """A page as it stands after a write; `changed` is False where it held that content already."""

    name: str
    path: str
    file: str
    revision: str
    created: bool
    changed: bool
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PageDeleteResult:
    """A page that was deleted by this commit."""

    path: str
    file: str
    revision: str


@dataclass(frozen=True, slots=True)
class PageRenameResult:
    """A page that has another path since this commit, and the pages whose links the commit rewrote."""

    name: str
    path: str
    file: str
    old_path: str
    revision: str
    updated: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file attached to a page: it lies in the directory of the page's name. `media_type` is guessed by its name."""

    filename: str
    file: str
    size: int
    media_type: str
    blob: str
    last_modified: datetime | None = None


@dataclass(frozen=True, slots=True)
class AttachmentList:
    """The files attached to a page, by name."""

    path: str
    files: tuple[Attachment, ...]


@dataclass(frozen=True, slots=True)
class AttachmentResult:
    """An attachment as it stands after a write; `data` is given where it was read."""

    path: str
    attachment: Attachment
    revision: str
    created: bool = False
    data: bytes = b""
