"""The arrays numbers travel in."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.page import Chunk, Page, PageProblem, PageTerms

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]


# What an index holds and how it changes.


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A page ready to be stored: its chunks, the hash of each chunk's embedded text, and their vectors."""

    blob: str
    page: Page
    chunks: tuple[Chunk, ...]
    hashes: tuple[bytes, ...]
    vectors: FloatArray
    terms: PageTerms


@dataclass(frozen=True, slots=True)
class IndexChange:
    """What one transaction makes true. With a revision, the index then stands for that commit."""

    pages: tuple[PageEntry, ...] = ()
    deleted: tuple[str, ...] = ()
    problems: tuple[PageProblem, ...] = ()
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a generation is made: the model (whose vectors are never mixed with another's) and the text pipeline."""

    fingerprint: str
    dimensions: int
    pipeline: str
    model: str = field(default="", compare=False)
    precision: str = field(default="", compare=False)
    """By what the model can be loaded again, as long as it is there; `fingerprint` says whether it is the same."""


@dataclass(frozen=True, slots=True)
class CosineScale:
    """What a model's cosines mean: as near as passages that have nothing in common, and as near as question and answer.

    Some models put any two texts close together. On the common scale that is nought.
    """

    unrelated: float = 0.0
    related: float = 1.0

    def normalize(self, cosine: float) -> float:
        """How near in meaning: 0 for the unrelated, 1 for the alike, more for the same; the order stays."""
        return max(0.0, (cosine - self.unrelated) / (self.related - self.unrelated))


@dataclass(frozen=True, slots=True)
class IndexState:
    """Where an index stands. `version` grows with every committed change."""

    generation: int
    version: int
    recipe: Recipe
    revision: str | None
    synced_at: datetime | None
    pages: int
    chunks: int
    problems: int


@dataclass(frozen=True, slots=True)
class VectorRows:
    """Chunks as a vector cache sees them, row by row."""

    chunk_ids: IntArray
    page_ids: IntArray
    vectors: FloatArray


@dataclass(frozen=True, slots=True)
class VectorDelta:
    """What changed between two versions of an index: rows added and chunk ids dropped."""

    version: int
    added: VectorRows
    dropped: IntArray


@dataclass(frozen=True, slots=True)
class KeywordRow:
    """A page as a word cache sees it; `words` is empty for a page that is hidden from search."""

    page_id: int
    terms: PageTerms


@dataclass(frozen=True, slots=True)
class KeywordDelta:
    """Pages whose words changed between two versions, as they are now, and the ids of pages that are gone."""

    version: int
    changed: tuple[KeywordRow, ...]
    dropped: IntArray


@dataclass(frozen=True, slots=True)
class VectorHits:
    """Nearest chunks, nearest first; `distances` are cosine distances (1 - cosine)."""

    chunk_ids: IntArray
    page_ids: IntArray
    distances: FloatArray
    degraded: bool = False
    """Whether a cache found them in another way than it should have, since part of it is away. They are right."""


# Whether an index is whole, as far as that is known.


class HealthCondition(StrEnum):
    """`broken` once damage is noticed, `repairing` once the damaged index is set aside and until another stands."""

    OK = "ok"
    REPAIRING = "repairing"
    BROKEN = "broken"


class VerificationResult(StrEnum):
    """What comparing an index's bytes with those its last writer left has shown.

    `none` while there is no index, or it is being written; `too large` for one whose bytes are not compared; `changed`
    for one that is not as its last writer left it, and too large to be read at once to see whether that matters.
    """

    COMPARED = "compared"
    NONE = "none"
    TOO_LARGE = "too large"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """How an index is. `reason` says what was found, `since` when, `aside` where the damaged one was put."""

    condition: HealthCondition = HealthCondition.OK
    reason: str = ""
    since: datetime | None = None
    quarantined_as: str = ""
    checked_at: datetime | None = None
    """When every byte was last read and found right."""

    @property
    def is_ok(self) -> bool:
        return self.condition is HealthCondition.OK


# What a sync did, and what building an index anew would take.


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did."""

    revision: str
    added: int = 0
    changed: int = 0
    moved: int = 0
    deleted: int = 0
    unchanged: int = 0
    chunks_embedded: int = 0
    chunks_reused: int = 0
    problems: tuple[PageProblem, ...] = ()
    seconds: float = 0.0
    rebuilt: bool = False


@dataclass(frozen=True, slots=True)
class ReindexEstimate:
    """What building an index anew would take, on this machine and with the settings of now.

    `chunks_to_embed` are chunks with a text of their own: equal texts are embedded once. `reusable_vectors` is how many
    of these the present index has a vector for, made by the same model: a sync after a change of settings takes them
    over, a reindexing makes them anew.
    """

    pages: int
    chunks: int
    chunks_to_embed: int
    reusable_vectors: int
    seconds: float
    """Of a reindexing, which takes over nothing."""
    seconds_reusing: float
    """Of a sync, which takes over what it can."""
    disk_bytes: int
    """What the new index and its caches would take beside the present one."""
    disk_free: int
    exact: bool
    """Whether every page was read; otherwise counts are those of a fair sample, extrapolated."""
