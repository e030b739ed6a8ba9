"""How a wiki's chunks lie in a collection: bare, for Wikiholt alone, or as readers of Otterwiki's collections expect.

Bare rows are named by chunk id and hold a vector, no text and no names. The seed's rows are named by page and number
and hold the text and what is known of its page; beside that, each says which chunk it is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from wikiholt.caches.background_worker import Cancelled
from wikiholt.caches.chroma.client import ChromaMetrics
from wikiholt.caches.chroma.rest_api import ChromaRow, CollectionRows, MetadataValue
from wikiholt.domain.index import FloatArray, IntArray, VectorRows
from wikiholt.domain.storage_protocols import WikiIndex

CHUNK_KEY = "wikiholt_chunk"


@dataclass(frozen=True, slots=True)
class ChromaRecords:
    """Rows as Chroma takes them."""

    ids: Sequence[str]
    vectors: FloatArray
    metadata: Sequence[Mapping[str, MetadataValue]] | None = None
    texts: Sequence[str] | None = None


class RecordLayout(Protocol):
    """How chunks become rows, and rows chunks again."""

    @property
    def name(self) -> str: ...

    @property
    def uses_metadata(self) -> bool:
        """Whether a row says which chunk it is by a mark; otherwise its id does."""

    def format_collection_name(self, wiki_id: str, slug: str) -> str:
        """The name of a wiki's collection."""

    def to_records(self, index: WikiIndex, rows: VectorRows) -> ChromaRecords:
        """The rows; chunks the index no longer has are left out."""

    def get_chunk_id(self, row: ChromaRow) -> int | None:
        """Which chunk a row is; None for one that Wikiholt did not write."""

    def build_selector(self, chunk_ids: IntArray) -> Mapping[str, object]:
        """How to name the rows of these chunks to Chroma."""


class VectorsOnlyLayout:
    """Bare rows."""

    name = "id"
    uses_metadata = False

    def format_collection_name(self, wiki_id: str, slug: str) -> str:  # noqa: ARG002
        return f"wikiholt_{wiki_id}"

    def to_records(self, index: WikiIndex, rows: VectorRows) -> ChromaRecords:  # noqa: ARG002
        return ChromaRecords([str(chunk_id) for chunk_id in rows.chunk_ids.tolist()], rows.vectors)

    def get_chunk_id(self, row: ChromaRow) -> int | None:
        return int(row.id) if row.id.isascii() and row.id.isdecimal() and len(row.id) < 19 else None

    def build_selector(self, chunk_ids: IntArray) -> Mapping[str, object]:
        return {"ids": [str(chunk_id) for chunk_id in chunk_ids.tolist()]}


class OtterwikiLayout:
    """Rows as the single-tenant plugin's readers know them, one collection a wiki."""

    name = "seed"
    uses_metadata = True

    def format_collection_name(self, wiki_id: str, slug: str) -> str:  # noqa: ARG002
        return f"otterwiki_pages_{slug}"

    def to_records(self, index: WikiIndex, rows: VectorRows) -> ChromaRecords:
        chunks = index.get_chunks(rows.chunk_ids.tolist())
        pages = index.get_pages(np.unique(rows.page_ids).tolist())
        ids: list[str] = []
        marks: list[Mapping[str, MetadataValue]] = []
        texts: list[str] = []
        kept: list[int] = []
        for place, (chunk_id, page_id) in enumerate(zip(rows.chunk_ids.tolist(), rows.page_ids.tolist(), strict=True)):
            chunk, page = chunks.get(chunk_id), pages.get(page_id)
            if chunk is None or page is None:
                continue
            kept.append(place)
            ids.append(f"{page.path}::chunk_{chunk.index}")
            texts.append(chunk.text)
            marks.append(
                {
                    "page_path": page.path,
                    "page_name": page.name,
                    "category": page.category or "",
                    "tags": ", ".join(page.tags),
                    "last_updated": page.last_updated.isoformat() if page.last_updated else "",
                    "chunk_index": chunk.index,
                    CHUNK_KEY: chunk_id,
                }
            )
        return ChromaRecords(ids, rows.vectors[kept], marks, texts)

    def get_chunk_id(self, row: ChromaRow) -> int | None:
        mark = row.metadata.get(CHUNK_KEY)
        return mark if isinstance(mark, int) else None

    def build_selector(self, chunk_ids: IntArray) -> Mapping[str, object]:
        return {"where": {CHUNK_KEY: {"$in": chunk_ids.tolist()}}}


LAYOUTS: Mapping[str, RecordLayout] = {"id": VectorsOnlyLayout(), "seed": OtterwikiLayout()}


# Rows go into a collection and out of it, some at a time.


UPSERT_BATCH_ROWS = 100
"""Rows in one request: while Chroma writes them, searches wait."""
DELETE_BATCH_ROWS = 1000

ShouldStop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class CollectionWriter:
    """Writes the rows of one index in one layout; each may be written twice."""

    index: WikiIndex
    layout: RecordLayout
    metrics: ChromaMetrics

    def upsert(self, collection: CollectionRows, rows: VectorRows, should_stop: ShouldStop) -> None:
        for part in iter_slices(len(rows.chunk_ids), UPSERT_BATCH_ROWS, should_stop):
            some = VectorRows(rows.chunk_ids[part], rows.page_ids[part], rows.vectors[part])
            records = self.layout.to_records(self.index, some)
            if records.ids:
                collection.upsert(records.ids, records.vectors, records.metadata, records.texts)
                self.metrics.add("rows_written", len(records.ids))

    def delete(self, collection: CollectionRows, chunk_ids: IntArray, should_stop: ShouldStop) -> None:
        for part in iter_slices(len(chunk_ids), DELETE_BATCH_ROWS, should_stop):
            collection.delete(self.layout.build_selector(chunk_ids[part]))
        self.metrics.add("rows_removed", len(chunk_ids))


def iter_slices(count: int, size: int, should_stop: ShouldStop) -> Iterator[slice]:
    """Ranges of so many, until told to stop."""
    for start in range(0, count, size):
        if should_stop():
            raise Cancelled
        yield slice(start, start + size)
