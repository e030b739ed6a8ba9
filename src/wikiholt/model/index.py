"""What an index holds and how it changes."""

from dataclasses import dataclass, field
from datetime import datetime

from wikiholt.model.arrays import Floats, Ints
from wikiholt.model.content import Chunk, Page, Problem, Words


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A page ready to be stored: its chunks, the hash of each chunk's embedded text, and their vectors."""

    blob: str
    page: Page
    chunks: tuple[Chunk, ...]
    hashes: tuple[bytes, ...]
    vectors: Floats
    words: Words


@dataclass(frozen=True, slots=True)
class Change:
    """What one transaction makes true. With a revision, the index then stands for that commit."""

    pages: tuple[PageEntry, ...] = ()
    deleted: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
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
class Scale:
    """What a model's cosines mean: as near as passages that have nothing in common, and as near as question and answer.

    Some models put any two texts close together. On the common scale that is nought.
    """

    unrelated: float = 0.0
    alike: float = 1.0

    def meaning(self, cosine: float) -> float:
        """How near in meaning: 0 for the unrelated, 1 for the alike, more for the same; the order stays."""
        return max(0.0, (cosine - self.unrelated) / (self.alike - self.unrelated))


@dataclass(frozen=True, slots=True)
class State:
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

    chunk_ids: Ints
    page_ids: Ints
    vectors: Floats


@dataclass(frozen=True, slots=True)
class VectorDelta:
    """What changed between two versions of an index: rows added and chunk ids dropped."""

    version: int
    added: VectorRows
    dropped: Ints


@dataclass(frozen=True, slots=True)
class WordRow:
    """A page as a word cache sees it; `words` is empty for a page that is hidden from search."""

    page_id: int
    words: Words


@dataclass(frozen=True, slots=True)
class WordDelta:
    """Pages whose words changed between two versions, as they are now, and the ids of pages that are gone."""

    version: int
    changed: tuple[WordRow, ...]
    dropped: Ints


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Nearest chunks, nearest first; `distances` are cosine distances (1 - cosine)."""

    chunk_ids: Ints
    page_ids: Ints
    distances: Floats
    degraded: bool = False
    """Whether a cache found them in another way than it should have, since part of it is away. They are right."""
