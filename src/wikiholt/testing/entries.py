"""Pages ready to be stored, made without a parser or a model."""

from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b

from wikiholt.model import Chunk, Metadata, Page, PageEntry, Words
from wikiholt.testing.embedder import FakeEmbedder


def entry(
    file: str,
    texts: Sequence[str],
    embedder: FakeEmbedder,
    *,
    tags: Sequence[str] = (),
    category: str | None = None,
    updated: datetime | None = None,
) -> PageEntry:
    """A page of these chunks; the words are simply the lower-case words of the text."""
    body = "\n\n".join(texts)
    path = file.removesuffix(".md")
    metadata = Metadata(category=category, tags=tuple(tags), last_updated=updated)
    page = Page(file, path, path.rsplit("/", 1)[-1], metadata, (), (), body, 1)
    chunks = tuple(Chunk(i, text, ("Heading",), "heading", i + 1, i + 1, 0, len(text)) for i, text in enumerate(texts))
    hashes = tuple(blake2b(text.encode(), digest_size=16).digest() for text in texts)
    words = Words(page.name.lower(), "heading", " ".join(body.lower().split()))
    blob = blake2b(f"{body}{tags}{category}{updated}".encode(), digest_size=20).hexdigest()
    return PageEntry(blob, page, chunks, hashes, embedder.passages(texts), words)
