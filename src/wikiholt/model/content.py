"""What pages are made of."""

from dataclasses import dataclass
from datetime import datetime


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
