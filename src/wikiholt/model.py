"""The values that travel through Wikiholt: frozen, parsed once at the edge, the same names everywhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


# ── content ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a page; the anchor is the fragment a browser jumps to."""

    level: int
    text: str
    anchor: str
    line: int


@dataclass(frozen=True, slots=True)
class Link:
    """A link as written on a page: `[text](target)` or `[[target]]`."""

    target: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a page's frontmatter says, in the forms search needs."""

    title: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    description: str | None = None
    last_updated: datetime | None = None
    language: str | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Block:
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
    metadata: Metadata
    headings: tuple[Heading, ...]
    links: tuple[Link, ...]
    body: str
    body_line: int
    warnings: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    name_in_content: bool = False
    """Whether the name comes from the blob (title or first heading) and not from the file's name."""


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
class Words:
    """A page as the keyword index holds it: analysed terms, separated by spaces, one string a field."""

    name: str
    headings: str
    body: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A page that could not be indexed, and why."""

    file: str
    blob: str
    reason: str
    detail: str


# ── source ───────────────────────────────────────────────────────────────────────────────────────


class EntryKind(StrEnum):
    FILE = "file"
    SYMLINK = "symlink"
    SUBMODULE = "submodule"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A page's place in a tree: the blob it holds, or why it is not a file."""

    blob: str
    kind: EntryKind = EntryKind.FILE


@dataclass(frozen=True, slots=True)
class TreeChange:
    """A page file that differs between two trees; None where it is not there."""

    file: str
    old: TreeEntry | None
    new: TreeEntry | None


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob as read; `data` is None when it is larger than asked for or missing (`size` is -1 then)."""

    id: str
    size: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a file's history; `date` is when its author wrote it."""

    revision: str
    author: str
    email: str
    date: datetime
    message: str


# ── index ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A page ready to be stored: its chunks, the hash of each chunk's embedded text, and their vectors."""

    blob: str
    page: Page
    chunks: tuple[Chunk, ...]
    hashes: tuple[bytes, ...]
    vectors: Floats
    words: Words


@dataclass(frozen=True, slots=True)
class Change:
    """What one transaction makes true. With a revision, the index then stands for that commit."""

    pages: tuple[PageEntry, ...] = ()
    deleted: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a generation is made: the model (whose vectors are never mixed with another's) and the text pipeline."""

    fingerprint: str
    dimensions: int
    pipeline: str


@dataclass(frozen=True, slots=True)
class State:
    """Where an index stands. `version` grows with every committed change."""

    generation: int
    version: int
    recipe: Recipe
    revision: str | None
    synced_at: datetime | None
    pages: int
    chunks: int
    problems: int


@dataclass(frozen=True, slots=True)
class VectorRows:
    """Chunks as a vector cache sees them, row by row."""

    chunk_ids: Ints
    page_ids: Ints
    vectors: Floats


@dataclass(frozen=True, slots=True)
class VectorDelta:
    """What changed between two versions of an index: rows added and chunk ids dropped."""

    version: int
    added: VectorRows
    dropped: Ints


@dataclass(frozen=True, slots=True)
class WordRow:
    """A page as a word cache sees it; `words` is empty for a page that is hidden from search."""

    page_id: int
    words: Words


@dataclass(frozen=True, slots=True)
class WordDelta:
    """Pages whose words changed between two versions, as they are now, and the ids of pages that are gone."""

    version: int
    changed: tuple[WordRow, ...]
    dropped: Ints


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Nearest chunks, nearest first; `distances` are cosine distances (1 - cosine)."""

    chunk_ids: Ints
    page_ids: Ints
    distances: Floats


# ── search ───────────────────────────────────────────────────────────────────────────────────────


class Mode(StrEnum):
    HYBRID = "hybrid"
    SEMANTIC = "semantic"
    KEYWORD = "keyword"


class Confidence(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Filter:
    """Narrows the pages that may be found; an empty filter lets every page pass. All given parts must hold."""

    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    path_prefix: str = ""
    updated_since: datetime | None = None

    def __bool__(self) -> bool:
        return bool(self.categories or self.tags or self.path_prefix or self.updated_since)


@dataclass(frozen=True, slots=True)
class WordQuery:
    """A keyword query, analysed. Pages must hold every phrase, no excluded phrase, and at least one term.

    Each phrase is a tuple of terms that follow one another; `prefix` is the last word as typed so far.
    """

    terms: tuple[str, ...] = ()
    phrases: tuple[tuple[str, ...], ...] = ()
    excluded: tuple[tuple[str, ...], ...] = ()
    prefix: str = ""

    def __bool__(self) -> bool:
        return bool(self.terms or self.phrases or self.prefix)


@dataclass(frozen=True, slots=True)
class WordHit:
    """A page found by words; a larger BM25 score is better."""

    page_id: int
    score: float


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page as the index knows it, without its text."""

    page_id: int
    file: str
    path: str
    name: str
    category: str | None
    tags: tuple[str, ...]
    last_updated: datetime | None
    chunks: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as the index knows it."""

    chunk_id: int
    page_id: int
    index: int
    text: str
    heading_path: tuple[str, ...]
    anchor: str
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of characters of a snippet."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Snippet:
    text: str
    matches: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """A page with its best chunk."""

    name: str
    path: str
    url: str
    snippet: Snippet
    distance: float | None
    score: float
    confidence: Confidence
    channels: tuple[str, ...]
    heading_path: tuple[str, ...]
    anchor: str
    first_line: int
    last_line: int
    chunk_index: int
    category: str | None
    tags: tuple[str, ...]
    last_updated: datetime | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search returns; says how fresh it is and whether it had to make do."""

    query: str
    mode: Mode
    hits: tuple[Hit, ...]
    total: int
    took_ms: float
    indexed_revision: str | None
    head_revision: str | None
    stale: bool
    degraded: bool
    nothing_relevant: bool
    notes: tuple[str, ...] = ()


# ── sync ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did."""

    revision: str
    added: int = 0
    changed: int = 0
    moved: int = 0
    deleted: int = 0
    unchanged: int = 0
    chunks_embedded: int = 0
    chunks_reused: int = 0
    problems: tuple[Problem, ...] = ()
    seconds: float = 0.0
    rebuilt: bool = False


# ── wikis ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Wiki:
    """A wiki in the registry: its slug is what people type, its id is what names things on disk."""

    id: str
    slug: str
    source: str
    created_at: datetime
    settings: Mapping[str, str] = field(default_factory=dict)
