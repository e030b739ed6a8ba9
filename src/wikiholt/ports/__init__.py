"""What the core asks of the world. Each Protocol is bound to its scope when made: none takes a wiki beside a query."""

from wikiholt.ports.caches import Lexicon, VectorCache, VectorEngine, WordCache
from wikiholt.ports.embedding import Embedder, Identity, Reranker, WordSense
from wikiholt.ports.indexes import Snapshot, Store, WikiIndex
from wikiholt.ports.nodes import Call, Databases, Shifts
from wikiholt.ports.queries import QueryLog
from wikiholt.ports.sources import Repositories, Source

__all__ = [
    "Call",
    "Databases",
    "Embedder",
    "Identity",
    "Lexicon",
    "QueryLog",
    "Repositories",
    "Reranker",
    "Shifts",
    "Snapshot",
    "Source",
    "Store",
    "VectorCache",
    "VectorEngine",
    "WikiIndex",
    "WordCache",
    "WordSense",
]
