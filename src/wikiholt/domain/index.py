"""Values of an index: its entries, changes, state, health, precision of vectors, and reports of syncs."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.page import Chunk, Link, Page, PageProblem, PageTerms, PageWarnings

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]


# Entries and changes.


PENDING_HASH = bytes(16)
"""The hash of a chunk that is not embedded yet. Its vector is zero; no text has this hash."""


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A page ready to be stored: its chunks, the hash of each chunk's embedded text, and their vectors.

    The vectors are rounded to the precision of an index, so that every store returns what it was given.
    """

    blob: str
    page: Page
    chunks: tuple[Chunk, ...]
    hashes: tuple[bytes, ...]
    vectors: FloatArray
    terms: PageTerms

    def __post_init__(self) -> None:
        object.__setattr__(self, "vectors", round_vectors(self.vectors))

    @classmethod
    def make_pending(
        cls, blob: str, page: Page, chunks: tuple[Chunk, ...], dimensions: int, terms: PageTerms
    ) -> "PageEntry":
        """A page that is found by its words until its chunks are embedded."""
        vectors = np.zeros((len(chunks), dimensions), np.float32)
        return cls(blob, page, chunks, (PENDING_HASH,) * len(chunks), vectors, terms)


@dataclass(frozen=True, slots=True)
class PageContents:
    """What an index has of a page that a move may change. It is not checked for damage; `WikiIndex.apply` does that."""

    name: str
    hidden: bool
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    warnings: tuple[str, ...]
    properties: frozenset[str]
    """Folded names of its properties."""
    chunks: int
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class IndexedPageMove:
    """A page with the same content at another file: all that changes. Its chunks and vectors stay in the index."""

    old_file: str
    file: str
    path: str
    name: str
    aliases: tuple[str, ...]
    last_updated: datetime | None
    name_terms: str
    """The field `name` of its terms."""
    links: tuple[Link, ...] | None
    """None if they stay as they are."""


@dataclass(frozen=True, slots=True)
class IndexChange:
    """What one transaction writes. With a `revision`, the index matches that commit afterwards."""

    pages: tuple[PageEntry, ...] = ()
    deleted: tuple[str, ...] = ()
    problems: tuple[PageProblem, ...] = ()
    revision: str | None = None
    moved: tuple[IndexedPageMove, ...] = ()
    """Pages to move before others are written. A page that is not at its old file is left out."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a generation is built: the model and the text pipeline. Vectors of different models are never mixed."""

    fingerprint: str
    dimensions: int
    pipeline: str
    """The settings of the text pipeline as JSON."""
    model: str = field(default="", compare=False)
    precision: str = field(default="", compare=False)
    """`model` and `precision` load the model again, if it is still installed; `fingerprint` tells if it is the same."""


@dataclass(frozen=True, slots=True)
class CosineScale:
    """Calibrates a model's cosines: the typical value of unrelated texts, and of a question and its answer.

    Some models place any two texts close together; `normalize` maps that baseline to 0.
    """

    unrelated: float = 0.0
    related: float = 1.0

    def normalize(self, cosine: float) -> float:
        """Map a cosine to the common scale: 0 for unrelated, 1 for related, above 1 for near-identical. Monotonic."""
        return max(0.0, (cosine - self.unrelated) / (self.related - self.unrelated))


@dataclass(frozen=True, slots=True)
class IndexState:
    """A summary of an index. `version` grows with every committed change."""

    generation: int
    version: int
    recipe: Recipe
    revision: str | None
    synced_at: datetime | None
    pages: int
    chunks: int
    problems: int
    pending_chunks: int = 0
    """Chunks that are not embedded yet."""

    @property
    def embedded_share(self) -> float:
        """The share of the chunks that are embedded."""
        return 1 - self.pending_chunks / self.chunks if self.chunks else 1.0


@dataclass(frozen=True, slots=True)
class VectorRows:
    """Chunks with their vectors, row by row."""

    chunk_ids: IntArray
    page_ids: IntArray
    vectors: FloatArray


@dataclass(frozen=True, slots=True)
class VectorHits:
    """The nearest chunks, nearest first; `distances` are cosine distances (1 - cosine)."""

    chunk_ids: IntArray
    page_ids: IntArray
    distances: FloatArray
    degraded: bool = False
    """Whether a cache used its fallback because part of it was unavailable. The hits are correct."""

    @classmethod
    def rank(
        cls, chunk_ids: IntArray, page_ids: IntArray, cosines: FloatArray, limit: int | None = None
    ) -> "VectorHits":
        """The nearest of these rows, or all, by distance and then chunk id."""
        # A stored vector is rounded and may be a little longer than 1.
        distances = np.maximum(np.float32(1.0) - cosines, np.float32(0.0))
        order = np.lexsort((chunk_ids, distances))[:limit]
        return cls(chunk_ids[order], page_ids[order], distances[order])


_MIN_LENGTH = 1e-6


def compute_page_means(rows: VectorRows, page_ids: IntArray) -> FloatArray:
    """The mean of the rows of each page (sorted ids) as a unit vector; zeros for a page without rows.

    It says what a page as a whole is about.
    """
    means = np.zeros((len(page_ids), rows.vectors.shape[1]), np.float32)
    if not len(rows.page_ids):
        return means
    order = np.lexsort((rows.chunk_ids, rows.page_ids))
    # Rows of a cache mostly have this order already, and copying them takes as long as adding them.
    vectors = rows.vectors if bool((order[1:] > order[:-1]).all()) else rows.vectors[order]
    found, starts = np.unique(rows.page_ids[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    # In half of the time of `reduceat`.
    sums = np.stack([vectors[start:end].sum(axis=0) for start, end in zip(starts.tolist(), ends, strict=True)])
    lengths = np.maximum(np.sqrt(np.vecdot(sums, sums)), _MIN_LENGTH)
    means[np.searchsorted(page_ids, found)] = sums / lengths[:, None]
    return means


# Health.


class HealthCondition(StrEnum):
    """`broken` once damage is detected; `repairing` from the quarantine of the damaged index until it is rebuilt."""

    OK = "ok"
    REPAIRING = "repairing"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """The health of an index: `reason` is the fault, `quarantined_as` the name of the damaged index."""

    condition: HealthCondition = HealthCondition.OK
    reason: str = ""
    since: datetime | None = None
    quarantined_as: str = ""
    checked_at: datetime | None = None
    """When the last full check succeeded."""

    @property
    def is_ok(self) -> bool:
        return self.condition is HealthCondition.OK


# Reports.


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync changed."""

    revision: str
    added: int = 0
    changed: int = 0
    moved: int = 0
    deleted: int = 0
    unchanged: int = 0
    chunks_embedded: int = 0
    chunks_reused: int = 0
    problems: tuple[PageProblem, ...] = ()
    pages_with_warnings: int = 0
    """The number of pages that this sync indexed with warnings."""
    warnings: tuple[PageWarnings, ...] = ()
    """The first `MAX_LISTED_WARNINGS` of them."""
    seconds: float = 0.0
    rebuilt: bool = False
    pages: int = 0
    """The number of pages at the revision, also of those with problems."""
    history_warning: str = ""
    """Why dates may be wrong and former names missing."""


@dataclass(frozen=True, slots=True)
class ReindexEstimate:
    """What rebuilding an index would cost on this machine with the current settings.

    `chunks_to_embed` counts distinct texts: equal texts are embedded once. `reusable_vectors` counts those with a
    vector by the same model in the current index: a sync after a change of settings reuses them, a reindex does not.
    """

    pages: int
    chunks: int
    chunks_to_embed: int
    reusable_vectors: int
    seconds: float
    """Time of a reindex, which reuses no vectors."""
    seconds_reusing: float
    """Time of a sync, which reuses vectors."""
    disk_bytes: int
    """Disk space of the new index and its caches, in addition to the current ones."""
    disk_free: int
    exact: bool
    """Whether every page was read; otherwise the counts are extrapolated from a sample."""


# Precision of stored vectors: 16 bits for each number, and one exponent for the vector.

_ShortArray = NDArray[np.int16]

_NUMBER_BITS = 15
_MAX_NUMBER = 2**_NUMBER_BITS - 1
_MIN_EXPONENT = -100
"""Powers of two from here on are normal float32 numbers, before and after the shift by the bits of a number."""


def split_vectors(vectors: FloatArray) -> tuple[_ShortArray, _ShortArray]:
    """Split each vector into whole numbers and an exponent: a value is its number times 2 ** (exponent - 15)."""
    _, exponents = np.frexp(np.abs(vectors).max(axis=1, initial=0))
    exponents = np.maximum(exponents, _MIN_EXPONENT)
    numbers = np.rint(vectors * _get_power(_NUMBER_BITS - exponents))
    return np.clip(numbers, -_MAX_NUMBER, _MAX_NUMBER).astype(np.int16), exponents.astype(np.int16)


def join_vectors(numbers: _ShortArray, exponents: _ShortArray) -> FloatArray:
    """Inverse of `split_vectors`. Exact: a number has fewer bits than the fraction of a float32."""
    vectors = numbers.astype(np.float32)
    vectors *= _get_power(exponents.astype(np.int32) - _NUMBER_BITS)
    return vectors


def round_vectors(vectors: FloatArray) -> FloatArray:
    """Round vectors to the stored precision. Rounded vectors stay as they are."""
    return join_vectors(*split_vectors(np.asarray(vectors, np.float32)))


def _get_power(exponents: NDArray[np.int32]) -> FloatArray:
    """Powers of two as a column. Multiplying by one is exact."""
    return np.ldexp(np.float32(1), exponents)[:, None]
