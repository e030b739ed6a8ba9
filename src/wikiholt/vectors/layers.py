"""One consistent state of a cache: rows as they were built, less those dropped since, plus those added since.

A state never changes; a refresh makes another and puts it in its place, so a search sees one version from end to end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from wikiholt.cachefile.file import MappedFile
from wikiholt.model import Floats, Ints, Neighbours, VectorDelta, VectorRows
from wikiholt.vectors.added import Added, contains
from wikiholt.vectors.engine import Finder
from wikiholt.vectors.rows import NO_ROWS, Rows, best, require_unit

_GATHER = 4_000
_BLOCK = 8_192


@dataclass(frozen=True, slots=True)
class Built:
    """Rows as they were built at a version, from a file or in memory."""

    version: int
    rows: Rows
    finder: Finder | None
    file: MappedFile | None

    def watch(self) -> None:
        """Raise if the file under the rows is no longer what was opened."""
        if self.file is not None:
            self.file.watch()


@dataclass(frozen=True, slots=True)
class Layers:
    """Built rows, dropped rows and added rows: together the index at `version`."""

    version: int
    built: Built
    added: Added
    dropped: Ints

    @classmethod
    def over(cls, built: Built) -> "Layers":
        """The state that is just what was built."""
        return cls(built.version, built, Added.none(built.rows.vectors.shape[1]), NO_ROWS)

    def __len__(self) -> int:
        return len(self.built.rows) - len(self.dropped) + len(self.added)

    @property
    def changed(self) -> int:
        """How many rows differ from what was built."""
        return self.added.count + len(self.dropped)

    def after(self, delta: VectorDelta) -> "Layers":
        """The state after a change; a chunk that is both dropped and added is replaced."""
        require_unit(delta.added.vectors, delta.added.chunk_ids)
        gone = np.union1d(delta.dropped, delta.added.chunk_ids)
        dropped = np.union1d(self.dropped, self.built.rows.positions(gone))
        return replace(self, version=delta.version, added=self.added.with_change(delta.added, gone), dropped=dropped)

    def search(self, vector: Floats, limit: int, pages: Ints | None) -> Neighbours:
        """The nearest rows, of these pages only if given, by distance and then chunk id."""
        self.built.watch()
        built, scores = self._search_built(vector, limit, pages)
        self.built.watch()
        added_scores = self.added.scores(vector, pages)
        added = best(added_scores, limit)
        rows = self.built.rows
        chunk_ids = np.concatenate((rows.chunk_ids[built], self.added.chunk_ids[added]))
        page_ids = np.concatenate((rows.page_ids[built], self.added.page_ids[added]))
        cosines = np.concatenate((scores, added_scores[added]))
        distances = np.maximum(np.float32(1.0) - cosines, np.float32(0.0))
        order = np.lexsort((chunk_ids, distances))[:limit]
        return Neighbours(chunk_ids[order], page_ids[order], distances[order])

    def scored(self, vector: Floats, chunk_ids: Ints, limit: int) -> Neighbours:
        """The nearest of these chunks, by distance and then chunk id; chunks that are not here are left out."""
        self.built.watch()
        rows = self.built.rows
        built = np.setdiff1d(rows.positions(chunk_ids), self.dropped, assume_unique=True)
        scores = rows.scores(vector, built)
        added = np.setdiff1d(np.flatnonzero(np.isin(self.added.chunk_ids, chunk_ids)), self.added.gone)
        found = np.concatenate((rows.chunk_ids[built], self.added.chunk_ids[added]))
        page_ids = np.concatenate((rows.page_ids[built], self.added.page_ids[added]))
        cosines = np.concatenate((scores, np.vecdot(self.added.vectors[added], vector)))
        distances = np.maximum(np.float32(1.0) - cosines, np.float32(0.0))
        order = np.lexsort((found, distances))[:limit]
        return Neighbours(found[order], page_ids[order], distances[order])

    def sample(self, count: int, seed: int) -> VectorRows:
        """Some rows, drawn at random of those that were built and not dropped."""
        rows = self.built.rows
        drawn = np.random.default_rng(seed).permutation(len(rows))[: count + len(self.dropped)]
        chosen = np.sort(drawn[~np.isin(drawn, self.dropped)][:count])
        return VectorRows(rows.chunk_ids[chosen], rows.page_ids[chosen], rows.vectors[chosen])

    def blocks(self) -> Iterator[VectorRows]:
        """Every row of the state, for building anew."""
        rows = self.built.rows
        keep = np.ones(len(rows), np.bool_)
        keep[self.dropped] = False
        for start in range(0, len(rows), _BLOCK):
            self.built.watch()
            kept = start + np.flatnonzero(keep[start : start + _BLOCK])
            vectors = rows.vectors[kept]
            require_unit(vectors, rows.chunk_ids[kept])
            yield VectorRows(rows.chunk_ids[kept], rows.page_ids[kept], vectors)
        yield self.added.rows()

    def _search_built(self, vector: Floats, limit: int, pages: Ints | None) -> tuple[Ints, Floats]:
        """Positions among the built rows that may be among the nearest, with their exact scores."""
        rows, finder = self.built.rows, self.built.finder
        among = None if pages is None else rows.of_pages(pages)
        if among is not None and len(self.dropped):
            among = among[~contains(self.dropped, among)]
        if among is not None and len(among) <= _GATHER:
            positions = among
        elif finder is not None:
            positions = finder.find(vector, limit, among, self.dropped)
        else:
            scores = rows.all_scores(vector)
            scores[self.dropped] = -np.inf
            positions = best(scores, limit) if among is None else among[best(scores[among], limit)]
        return positions, rows.scores(vector, positions)
