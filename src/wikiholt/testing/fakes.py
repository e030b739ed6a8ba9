"""Fakes for tests: an embedder, a reranker, and pages ready to be stored. Fast and deterministic."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from wikiholt.domain.index import CosineScale, FloatArray, PageEntry
from wikiholt.domain.page import Chunk, Link, Page, PageMetadata, PageTerms
from wikiholt.text.links import resolve_link_paths

_TOKEN_PATTERN = re.compile(r"\w+|[^\w\s]")


class FakeEmbedder:
    """Embeds a text as the sum of random word vectors, so that texts with common words are close."""

    def __init__(self, dimensions: int = 32, name: str = "fake", max_tokens: int = 254) -> None:
        self.fingerprint = f"{name}/{dimensions}"
        self.model = name
        self.precision = ""
        self.dimensions = dimensions
        self.scale = CosineScale()
        self.max_tokens = max_tokens
        self.embedded: list[str] = []
        """Every embedded passage, for tests to count."""

    def get_token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return [match.span() for match in _TOKEN_PATTERN.finditer(text)]

    def is_known_word(self, word: str) -> bool:  # noqa: ARG002
        """It knows no words."""
        return False

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        self.embedded += texts
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        return np.stack([self._embed(text) for text in texts])

    def embed_query(self, text: str) -> FloatArray:
        return self._embed(text)

    def run_self_test(self) -> None:
        """Nothing to prove."""

    def _embed(self, text: str) -> FloatArray:
        total = np.full(self.dimensions, 1e-3, np.float32)
        for word in _TOKEN_PATTERN.findall(text.lower()):
            total += _make_word_vector(word, self.dimensions)
        return np.asarray(total / np.linalg.norm(total), np.float32)


@lru_cache(maxsize=100_000)
def _make_word_vector(word: str, dimensions: int) -> FloatArray:
    seed = int.from_bytes(blake2b(word.encode("utf-8", "replace"), digest_size=8).digest())
    return np.random.default_rng(seed).standard_normal(dimensions).astype(np.float32)


_WORD_PATTERN = re.compile(r"\w+")


class FakeReranker:
    """Scores a text by the share of the query's words in it."""

    name = "fake"

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        """Every query with its texts, for tests to inspect."""

    def score(self, query: str, texts: Sequence[str], timeout_s: float) -> Sequence[float] | None:
        self.calls.append((query, tuple(texts)))
        if timeout_s <= 0:
            return None
        query_words = set(_WORD_PATTERN.findall(query.casefold()))
        return [
            12 * len(query_words & set(_WORD_PATTERN.findall(text.casefold()))) / max(1, len(query_words)) - 6
            for text in texts
        ]

    def run_self_test(self) -> None:
        """Nothing to prove."""


def make_entry(
    file: str,
    texts: Sequence[str],
    embedder: FakeEmbedder,
    *,
    tags: Sequence[str] = (),
    category: str | None = None,
    updated: datetime | None = None,
    links: Sequence[str] = (),
    metadata: PageMetadata | None = None,
    warnings: Sequence[str] = (),
) -> PageEntry:
    """A page with these chunks, made without a parser or a model; its terms are the lower-case words of the text.

    Each of `links` is the target of a wiki link, or of a Markdown link if it ends in `.md`, on a line of its own.
    `metadata` has the metadata besides tags, category and date.
    """
    body = "\n\n".join(texts)
    path = file.removesuffix(".md")
    metadata = replace(metadata or PageMetadata(), category=category, tags=tuple(tags), last_updated=updated)
    name, size = path.rsplit("/", 1)[-1], len(body)
    page_links = tuple(_make_link(target, line, file) for line, target in enumerate(links, 1))
    page = Page(
        file, path, name, metadata, (), page_links, body, 1, tuple(warnings), words=len(body.split()), length=size
    )
    chunks = tuple(Chunk(i, text, ("Heading",), "heading", i + 1, i + 1, 0, len(text)) for i, text in enumerate(texts))
    hashes = tuple(blake2b(text.encode(), digest_size=16).digest() for text in texts)
    terms = PageTerms(page.name.lower(), "heading", " ".join(body.lower().split()))
    blob = blake2b(f"{body}{tags}{category}{updated}{links}{metadata}".encode(), digest_size=20).hexdigest()
    return PageEntry(blob, page, chunks, hashes, embedder.embed_passages(texts), terms)


def _make_link(target: str, line: int, file: str) -> Link:
    wiki = not target.endswith(".md")
    return Link(target, "text", line, wiki, resolve_link_paths((target,), wiki, file))
