"""How the chunks of a wiki become records of its Chroma collection."""

from collections.abc import Mapping, Sequence

import numpy as np

from wikiholt.domain.index import IntArray
from wikiholt.index.chroma.client import Metadata
from wikiholt.index.sqlite.index import SqliteIndex

_CHUNK_KEY = "wikiholt_chunk"


class IdLayout:
    """Records have the chunk id as their id, and neither text nor names."""

    name = "id"
    columns: Sequence[str] = ()
    """The columns that tell the chunk of a record, besides its id."""

    def format_collection_name(self, wiki_id: str, slug: str) -> str:  # noqa: ARG002
        return f"wikiholt_{wiki_id}"

    def format_record_ids(self, index: SqliteIndex, chunk_ids: IntArray, page_ids: IntArray) -> list[str]:  # noqa: ARG002
        """Return the record ids of all chunks (sorted ids). Raises KeyError if the index has changed since."""
        return list(map(str, chunk_ids.tolist()))

    def get_chunk_id(self, record_id: str, metadata: object = None) -> int:  # noqa: ARG002
        """Return the chunk that a record was written for; -1 if Wikiholt did not write it."""
        return int(record_id) if record_id.isascii() and record_id.isdecimal() and len(record_id) < 19 else -1

    def read_contents(
        self,
        index: SqliteIndex,  # noqa: ARG002
        record_ids: Sequence[str],  # noqa: ARG002
        chunk_ids: Sequence[int],  # noqa: ARG002
    ) -> tuple[Sequence[Metadata] | None, Sequence[str] | None]:
        """Return the metadata and the texts of the records of these chunks. Raises KeyError likewise."""
        return None, None


class OtterwikiLayout(IdLayout):
    """Records as the single-tenant Otterwiki plugin writes them, one collection per wiki."""

    name = "seed"
    columns = ("metadatas",)

    def format_collection_name(self, wiki_id: str, slug: str) -> str:  # noqa: ARG002
        return f"otterwiki_pages_{slug}"

    def format_record_ids(self, index: SqliteIndex, chunk_ids: IntArray, page_ids: IntArray) -> list[str]:  # noqa: ARG002
        # The chunks of a page are numbered in the order of their ids.
        pages = index.get_pages(np.unique(page_ids).tolist())
        counts: dict[int, int] = {}
        record_ids = []
        for page_id in page_ids.tolist():
            counts[page_id] = counts.get(page_id, -1) + 1
            record_ids.append(f"{pages[page_id].path}::chunk_{counts[page_id]}")
        return record_ids

    def get_chunk_id(self, record_id: str, metadata: object = None) -> int:  # noqa: ARG002
        chunk_id = metadata.get(_CHUNK_KEY) if isinstance(metadata, dict) else None
        return chunk_id if isinstance(chunk_id, int) else -1

    def read_contents(
        self, index: SqliteIndex, record_ids: Sequence[str], chunk_ids: Sequence[int]
    ) -> tuple[Sequence[Metadata] | None, Sequence[str] | None]:
        chunks = index.get_chunks(chunk_ids)
        pages = index.get_pages(list({chunk.page_id for chunk in chunks.values()}))
        metadatas: list[Metadata] = []
        for record_id, chunk_id in zip(record_ids, chunk_ids, strict=True):
            page = pages[chunks[chunk_id].page_id]
            metadatas.append(
                {
                    "page_path": page.path,
                    "page_name": page.name,
                    "category": page.category or "",
                    "tags": ", ".join(page.tags),
                    "last_updated": page.last_updated.isoformat() if page.last_updated else "",
                    "chunk_index": int(record_id.rpartition("_")[2]),
                    _CHUNK_KEY: chunk_id,
                }
            )
        return metadatas, [chunks[chunk_id].text for chunk_id in chunk_ids]


LAYOUTS: Mapping[str, IdLayout] = {"id": IdLayout(), "seed": OtterwikiLayout()}
