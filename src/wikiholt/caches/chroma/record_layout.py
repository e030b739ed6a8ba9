"""Layouts of chunks as records of a Chroma collection, and the writer for them.

The basic layout uses the chunk id as record id and stores no text and no names. The Otterwiki layout uses the
ids, texts and metadata that readers of Otterwiki's collections expect, and adds the chunk id to the metadata.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wikiholt.caches.chroma.client import ChromaMetrics
from wikiholt.caches.chroma.rest_api import ChromaRow, CollectionRows, MetadataValue
from wikiholt.domain.index import FloatArray, IntArray, VectorRows
from wikiholt.domain.storage_protocols import WikiIndex

CHUNK_KEY = "wikiholt_chunk"

UPSERT_BATCH_ROWS = 100
"""Rows per request: searches wait while Chroma writes them."""
DELETE_BATCH_ROWS = 1000

ShouldStop = Callable[[], bool]


class Cancelled(Exception):
    """The job was cancelled."""


@dataclass(frozen=True, slots=True)
class ChromaRecords:
    """Records in the form that Chroma accepts."""

    ids: Sequence[str]
    vectors: FloatArray
    metadata: Sequence[Mapping[str, MetadataValue]] | None = None
    texts: Sequence[str] | None = None


class RecordLayout:
    """Converts chunks to records, and rows of Chroma to chunk ids. These records have no text and no metadata."""

    name = "id"
    uses_metadata = False
    """Whether the chunk id is in the metadata; otherwise it is the row id."""

    def format_collection_name(self, wiki_id: str, slug: str) -> str:  # noqa: ARG002
        """Return the name of a wiki's collection."""
        return f"wikiholt_{wiki_id}"

    def to_records(self, index: WikiIndex, rows: VectorRows) -> ChromaRecords:  # noqa: ARG002
        """Convert rows to records, without chunks that are no longer in the index."""
        return ChromaRecords([str(chunk_id) for chunk_id in rows.chunk_ids.tolist()], rows.vectors)

    def get_chunk_id(self, row: ChromaRow) -> int | None:
        """Return the chunk id of a row; None if Wikiholt did not write it."""
        return int(row.id) if row.id.isascii() and row.id.isdecimal() and len(row.id) < 19 else None

    def build_selector(self, chunk_ids: IntArray) -> Mapping[str, object]:
        """Return the filter that selects the rows of these chunks in Chroma."""
        return {"ids": [str(chunk_id) for chunk_id in chunk_ids.tolist()]}


class OtterwikiLayout(RecordLayout):
    """Records as the single-tenant Otterwiki plugin writes them, one collection per wiki."""

    name = "seed"
    uses_metadata = True

    def format_collection_name(self, wiki_id: str, slug: str) -> str:  # noqa: ARG002
        return f"otterwiki_pages_{slug}"

    def to_records(self, index: WikiIndex, rows: VectorRows) -> ChromaRecords:
        chunks = index.get_chunks(rows.chunk_ids.tolist())
        pages = index.get_pages(np.unique(rows.page_ids).tolist())
        ids: list[str] = []
        metadata: list[Mapping[str, MetadataValue]] = []
        texts: list[str] = []
        positions: list[int] = []
        for position, (chunk_id, page_id) in enumerate(
            zip(rows.chunk_ids.tolist(), rows.page_ids.tolist(), strict=True)
        ):
            chunk, page = chunks.get(chunk_id), pages.get(page_id)
            if chunk is None or page is None:
                continue
            positions.append(position)
            ids.append(f"{page.path}::chunk_{chunk.number}")
            texts.append(chunk.text)
            metadata.append(
                {
                    "page_path": page.path,
                    "page_name": page.name,
                    "category": page.category or "",
                    "tags": ", ".join(page.tags),
                    "last_updated": page.last_updated.isoformat() if page.last_updated else "",
                    "chunk_index": chunk.number,
                    CHUNK_KEY: chunk_id,
                }
            )
        return ChromaRecords(ids, rows.vectors[positions], metadata, texts)

    def get_chunk_id(self, row: ChromaRow) -> int | None:
        chunk_id = row.metadata.get(CHUNK_KEY)
        return chunk_id if isinstance(chunk_id, int) else None

    def build_selector(self, chunk_ids: IntArray) -> Mapping[str, object]:
        return {"where": {CHUNK_KEY: {"$in": chunk_ids.tolist()}}}


LAYOUTS: Mapping[str, RecordLayout] = {"id": RecordLayout(), "seed": OtterwikiLayout()}


@dataclass(frozen=True, slots=True)
class CollectionWriter:
    """Writes the rows of one index in one layout, in batches. Writing a row twice is harmless."""

    index: WikiIndex
    layout: RecordLayout
    metrics: ChromaMetrics

    def upsert(self, collection: CollectionRows, rows: VectorRows, should_stop: ShouldStop) -> None:
        for part in iter_slices(len(rows.chunk_ids), UPSERT_BATCH_ROWS, should_stop):
            batch = VectorRows(rows.chunk_ids[part], rows.page_ids[part], rows.vectors[part])
            records = self.layout.to_records(self.index, batch)
            if records.ids:
                collection.upsert(records.ids, records.vectors, records.metadata, records.texts)
                self.metrics.add("rows_written", len(records.ids))

    def delete(self, collection: CollectionRows, chunk_ids: IntArray, should_stop: ShouldStop) -> None:
        for part in iter_slices(len(chunk_ids), DELETE_BATCH_ROWS, should_stop):
            collection.delete(self.layout.build_selector(chunk_ids[part]))
        self.metrics.add("rows_removed", len(chunk_ids))


def iter_slices(count: int, size: int, should_stop: ShouldStop) -> Iterator[slice]:
    """Yield slices of at most `size`. Raises Cancelled once `should_stop` returns true."""
    for start in range(0, count, size):
        if should_stop():
            raise Cancelled
        yield slice(start, start + size)
