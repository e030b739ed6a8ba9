"""What an index holds and how it changes."""

from dataclasses import dataclass, field
from datetime import datetime

from wikiholt.model.arrays import FloatArray, IntArray
from wikiholt.model.content import Chunk, Page, PageProblem, PageTerms


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
