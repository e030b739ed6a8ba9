"""Pages ready to be stored, made without a parser or a model."""

from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b

from wikiholt.model import Chunk, Link, PageMetadata, Page, PageEntry, PageTerms
from wikiholt.testing.embedder import FakeEmbedder
from wikiholt.text.links import resolve_link_paths


def make_entry(
    file: str,
    texts: Sequence[str],
    embedder: FakeEmbedder,
    *,
    tags: Sequence[str] = (),
    category: str | None = None,
    updated: datetime | None = None,
    links: Sequence[str] = (),
) -> PageEntry:
    """A page of these chunks; the words are simply the lower-case words of the text.

    Each of `links` is the target of a wiki link, or of a Markdown link if it ends in `.md`, on a line of its own.
    """
    body = "\n\n".join(texts)
    path = file.removesuffix(".md")
    metadata = PageMetadata(category=category, tags=tuple(tags), last_updated=updated)
    name, size = path.rsplit("/", 1)[-1], len(body)
    written = tuple(_make_link(target, line, file) for line, target in enumerate(links, 1))
    page = Page(file, path, name, metadata, (), written, body, 1, words=len(body.split()), length=size)
    chunks = tuple(Chunk(i, text, ("Heading",), "heading", i + 1, i + 1, 0, len(text)) for i, text in enumerate(texts))
    hashes = tuple(blake2b(text.encode(), digest_size=16).digest() for text in texts)
    words = PageTerms(page.name.lower(), "heading", " ".join(body.lower().split()))
    blob = blake2b(f"{body}{tags}{category}{updated}{links}".encode(), digest_size=20).hexdigest()
    return PageEntry(blob, page, chunks, hashes, embedder.embed_passages(texts), words)


def _make_link(target: str, line: int, file: str) -> Link:
    wiki = not target.endswith(".md")
    return Link(target, "text", line, wiki, resolve_link_paths((target,), wiki, file))
