"""From a blob to a page ready to be embedded: the one way text takes, in sync, reindex and import alike."""

import json
import re
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from hashlib import blake2b
from typing import cast

from wikiholt.domain.git import Blob, EntryKind, TreeEntry
from wikiholt.domain.index import Recipe
from wikiholt.domain.page import Chunk, Page, PageProblem, PageTerms
from wikiholt.domain.protocols import Embedder, ModelInfo
from wikiholt.text.bm25 import build_page_terms
from wikiholt.text.chunking import build_chunks
from wikiholt.text.ignore_patterns import build_matcher
from wikiholt.text.markdown import AnchorStyle
from wikiholt.text.model_text import build_embedding_text
from wikiholt.text.page_parser import parse_page
from wikiholt.text.segmentation import MeteredTokenSpans, PageWorkLimitExceeded

TEXT_VERSION = 4
"""Raised when parsing, chunking or analysing changes what an index holds, so that indexes are built anew."""

_RECIPE_PATTERN = re.compile(
    r"text (?P<version>\d+), (?P<language>[\w+]+), (?P<anchors>\w+), up to (?P<bytes>\d+) bytes,"
    r" chunks (?P<target>\d+)/(?P<overlap>\d+)(?:, hiding (?P<hide>\[.*\]))?",
    re.DOTALL,
)

_WORK_PER_BYTE = 3
"""Characters the tokenizer may read for a page, per byte of `page.max_bytes`. Prose in any script takes at most 2.5."""
_MIN_WORK_LIMIT = 1_000_000
"""A page that takes less work than this is never refused, however small `page.max_bytes` is."""
_WORK_PER_LINE = 8
"""A line costs the chunker about as much time as the tokenizer needs for so many characters."""

_compile_patterns = cache(build_matcher)


@dataclass(frozen=True, slots=True)
class PreparedPage:
    """A page that lacks only its vectors; `texts` are what is embedded, chunk by chunk."""

    blob: str
    page: Page
    chunks: tuple[Chunk, ...]
    texts: tuple[str, ...]
    hashes: tuple[bytes, ...]
    terms: PageTerms


@dataclass(frozen=True, slots=True)
class TextPipeline:
    """How pages become chunks and words; part of an index's recipe."""

    target_tokens: int = 200
    overlap_tokens: int = 50
    language: str = "english"
    """The language words are stemmed in; the wiki's own first, where it has several (see `languages_of`)."""
    anchors: AnchorStyle = "github"
    max_bytes: int = 10 * 1024 * 1024
    hide: tuple[str, ...] = ()
    """Pages that no search shall find, by patterns (see `wikiholt.text.ignore_patterns`)."""

    def build_recipe(self, embedder: ModelInfo) -> Recipe:
        chunks = f"chunks {self.target_tokens}/{self.overlap_tokens}"
        text = f"text {TEXT_VERSION}, {self.language}, {self.anchors}, up to {self.max_bytes} bytes"
        made = f"{text}, {chunks}" + (f", hiding {json.dumps(self.hide)}" if self.hide else "")
        return Recipe(embedder.fingerprint, embedder.dimensions, made, embedder.model, embedder.precision)

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "TextPipeline | None":
        """The pipeline an index was made with; None when this version of Wikiholt has it no more."""
        found = _RECIPE_PATTERN.fullmatch(recipe.pipeline)
        if found is None or int(found["version"]) != TEXT_VERSION:
            return None
        target, overlap, most = (int(found[name]) for name in ("target", "overlap", "bytes"))
        hide = tuple(json.loads(found["hide"] or "[]"))
        return cls(target, overlap, found["language"], cast(AnchorStyle, found["anchors"]), most, hide)

    def prepare(
        self, file: str, blob: Blob, changed_at: datetime | None, embedder: Embedder
    ) -> PreparedPage | PageProblem:
        """The page in this blob, or why it cannot be one. A fault of ours is a problem of this page alone."""
        if blob.size > self.max_bytes:
            limit = f"{blob.size:,} bytes; the limit is {self.max_bytes:,} (page.max_bytes)"
            return PageProblem(file, blob.id, "too-large", limit)
        if blob.data is None:
            return PageProblem(file, blob.id, "unreadable", "git could not read this page's content")
        try:
            return self._prepare_page(file, blob.id, blob.data, changed_at, embedder)
        except PageWorkLimitExceeded:
            detail = (
                f"preparing this page takes more than {self._get_work_limit():,} steps of work (very short lines or"
                " very long words); split it into several pages, or raise page.max_bytes"
            )
            return PageProblem(file, blob.id, "too-costly", detail)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not harm another page
            return PageProblem(file, blob.id, "failed", f"{type(error).__name__}: {error}")

    def _prepare_page(
        self, file: str, blob: str, data: bytes, changed_at: datetime | None, embedder: Embedder
    ) -> PreparedPage | PageProblem:
        page = parse_page(file, blob, data, changed_at, self.anchors)
        if isinstance(page, PageProblem):
            return page
        if not page.metadata.hidden and self._is_hidden(file):
            page = replace(page, metadata=replace(page.metadata, hidden=True))
        if page.metadata.hidden:
            # Hidden pages are known but hold nothing that a search could find.
            return PreparedPage(blob, page, (), (), (), PageTerms("", "", ""))
        spans = MeteredTokenSpans(embedder.get_token_spans, self._get_work_limit())
        spans.spend(_WORK_PER_LINE * page.body.count("\n"))
        chunks = build_chunks(page, spans, target_tokens=self.target_tokens, overlap_tokens=self.overlap_tokens)
        texts = tuple(build_embedding_text(page, each, spans, embedder.max_tokens) for each in chunks)
        hashes = tuple(map(hash_text, texts))
        return PreparedPage(blob, page, chunks, texts, hashes, build_page_terms(page, self.language))

    def _get_work_limit(self) -> int:
        return max(_WORK_PER_BYTE * self.max_bytes, _MIN_WORK_LIMIT)

    def _is_hidden(self, file: str) -> bool:
        return bool(self.hide) and _compile_patterns(self.hide)(file)


def hash_text(text: str) -> bytes:
    """What stands for an embedded text wherever vectors are kept by it; a text that is no UTF-8 has one too."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def check_regular_file(file: str, entry: TreeEntry) -> PageProblem | None:
    """The problem with a tree entry that has a page's name but is no file."""
    if entry.kind is EntryKind.FILE:
        return None
    return PageProblem(file, entry.blob, str(entry.kind), f"this is a {entry.kind}, not a page")
