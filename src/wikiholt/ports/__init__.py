"""What the core asks of the world. Each Protocol is bound to its scope when made: none takes a wiki beside a query."""

from wikiholt.ports.caches import Lexicon, VectorCache, VectorEngine, KeywordCache
from wikiholt.ports.embedding import Embedder, ModelInfo, Reranker, SupportsSentenceScoring
from wikiholt.ports.indexes import VectorSnapshot, IndexStore, WikiIndex
from wikiholt.ports.nodes import NodeMessage, DatabaseAdmin, NodeAssignments
from wikiholt.ports.queries import QueryLog
from wikiholt.ports.sources import RepositoryIdentities, Source

__all__ = [
    "NodeMessage",
    "DatabaseAdmin",
    "Embedder",
    "ModelInfo",
    "Lexicon",
    "QueryLog",
    "RepositoryIdentities",
    "Reranker",
    "NodeAssignments",
    "VectorSnapshot",
    "Source",
    "IndexStore",
    "VectorCache",
    "VectorEngine",
    "WikiIndex",
    "KeywordCache",
    "SupportsSentenceScoring",
]
