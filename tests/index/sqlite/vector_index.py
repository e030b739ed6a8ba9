"""An index of pages with given vectors, and the answers that a search by brute force gives."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.index.brute_force_index import DIMENSIONS
from wikiholt.domain.index import FloatArray, IndexChange, IntArray, Recipe, VectorHits, round_vectors
from wikiholt.domain.search import PageFilter
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.index.sqlite.schema import create_index_file
from wikiholt.index.sqlite.vectors import CodesChoice, choose_quantized
from wikiholt.testing.fakes import FakeEmbedder, make_entry

EMBEDDER = FakeEmbedder()
_ALL = PageFilter()


class VectorIndex:
    """A real index, and the vectors of its pages in memory."""

    def __init__(self, directory: Path, dimensions: int = DIMENSIONS, choose: CodesChoice = choose_quantized) -> None:
        self.directory = directory
        self.file = directory / "g000001.sqlite"
        self._choose = choose
        self.pages: dict[str, FloatArray] = {}
        self._writes = 0
        create_index_file(self.file, directory.name, 1, Recipe("model", dimensions, "text"))
        self.index = self.open()

    def open(self) -> SqliteIndex:
        return SqliteIndex(self.file, choose_codes=self._choose)

    @property
    def vector_file(self) -> Path:
        """The newest file of vectors."""
        return max(self.directory.glob("g000001-*.vectors"), key=lambda file: int(file.stem.partition("-")[2]))

    def write(
        self, pages: Mapping[str, FloatArray], deleted: tuple[str, ...] = (), revision: str | None = None
    ) -> None:
        """Write pages with these vectors in one transaction."""
        entries = []
        self._writes += 1
        for file, vectors in pages.items():
            texts = [f"{file} {number} {self._writes}" for number in range(len(vectors))]
            entry = make_entry(file, texts, EMBEDDER)
            hashes = tuple(text.encode() for text in texts)
            entries.append(replace(entry, vectors=vectors, hashes=hashes))
        self.index.apply(IndexChange(tuple(entries), deleted, revision=revision))
        self.pages |= {file: round_vectors(vectors) for file, vectors in pages.items()}
        for file in deleted:
            del self.pages[file]

    def write_many(self, vectors: FloatArray, per_page: int = 10) -> None:
        """Write these vectors as pages of `per_page` chunks, and end with a revision, as a sync does."""
        parts = (vectors[start : start + per_page] for start in range(0, len(vectors), per_page))
        self.write({f"p{number}.md": part for number, part in enumerate(parts)})
        self.write({}, revision=f"r{self.index.get_version()}")

    def find_expected(self, vector: FloatArray, limit: int, page_ids: IntArray | None = None) -> VectorHits:
        """The nearest chunks by brute force."""
        ids, of_pages, vectors = [], [], []
        page_numbers = {page.file: page.page_id for page in self.index.list_pages(_ALL, None)[1]}
        all_chunks = self.index.get_page_chunks(list(page_numbers.values()))
        for file, rows in self.pages.items():
            chunks = all_chunks.get(page_numbers[file], ())
            if page_ids is None or page_numbers[file] in page_ids:
                ids += [chunk.chunk_id for chunk in chunks]
                of_pages += [page_numbers[file]] * len(chunks)
                vectors += list(rows)
        matrix = np.array(vectors, np.float32).reshape(len(vectors), len(vector))
        return VectorHits.rank(np.array(ids, np.int64), np.array(of_pages, np.int64), np.vecdot(matrix, vector), limit)

    def get_page_ids(self, *files: str) -> IntArray:
        return np.array(sorted(page.page_id for file in files if (page := self.index.find_page(file))), np.int64)


def flip_byte(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 0x10
    file.write_bytes(content)
