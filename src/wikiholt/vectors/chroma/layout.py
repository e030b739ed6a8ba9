"""How a wiki's chunks lie in a collection: bare, for Wikiholt alone, or as readers of Otterwiki's collections expect.

Bare rows are named by chunk id and hold a vector, no text and no names. The seed's rows are named by page and number
and hold the text and what is known of its page; beside that, each says which chunk it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from wikiholt.model import Floats, Ints, VectorRows
from wikiholt.ports import WikiIndex
from wikiholt.vectors.chroma.api import Mark, Row

CHUNK = "wikiholt_chunk"


@dataclass(frozen=True, slots=True)
class Records:
    """Rows as Chroma takes them."""

    ids: Sequence[str]
    vectors: Floats
    marks: Sequence[Mapping[str, Mark]] | None = None
    texts: Sequence[str] | None = None


class Layout(Protocol):
    """How chunks become rows, and rows chunks again."""

    @property
    def name(self) -> str: ...

    @property
    def with_marks(self) -> bool:
        """Whether a row says which chunk it is by a mark; otherwise its id does."""

    def collection(self, wiki_id: str, slug: str) -> str:
        """The name of a wiki's collection."""

    def records(self, index: WikiIndex, rows: VectorRows) -> Records:
        """The rows; chunks the index no longer has are left out."""

    def chunk(self, row: Row) -> int | None:
        """Which chunk a row is; None for one that Wikiholt did not write."""

    def these(self, chunk_ids: Ints) -> Mapping[str, object]:
        """How to name the rows of these chunks to Chroma."""


class ById:
    """Bare rows."""

    name = "id"
    with_marks = False

    def collection(self, wiki_id: str, slug: str) -> str:  # noqa: ARG002
        return f"wikiholt_{wiki_id}"

    def records(self, index: WikiIndex, rows: VectorRows) -> Records:  # noqa: ARG002
        return Records([str(chunk_id) for chunk_id in rows.chunk_ids.tolist()], rows.vectors)

    def chunk(self, row: Row) -> int | None:
        return int(row.id) if row.id.isascii() and row.id.isdecimal() and len(row.id) < 19 else None

    def these(self, chunk_ids: Ints) -> Mapping[str, object]:
        return {"ids": [str(chunk_id) for chunk_id in chunk_ids.tolist()]}


class Seed:
    """Rows as the single-tenant plugin's readers know them, one collection a wiki."""

    name = "seed"
    with_marks = True

    def collection(self, wiki_id: str, slug: str) -> str:  # noqa: ARG002
        return f"otterwiki_pages_{slug}"

    def records(self, index: WikiIndex, rows: VectorRows) -> Records:
        chunks = index.stored_chunks(rows.chunk_ids.tolist())
        pages = index.stored_pages(np.unique(rows.page_ids).tolist())
        ids: list[str] = []
        marks: list[Mapping[str, Mark]] = []
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
                    CHUNK: chunk_id,
                }
            )
        return Records(ids, rows.vectors[kept], marks, texts)

    def chunk(self, row: Row) -> int | None:
        mark = row.marks.get(CHUNK)
        return mark if isinstance(mark, int) else None

    def these(self, chunk_ids: Ints) -> Mapping[str, object]:
        return {"where": {CHUNK: {"$in": chunk_ids.tolist()}}}


LAYOUTS: Mapping[str, Layout] = {"id": ById(), "seed": Seed()}
