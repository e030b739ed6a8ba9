"""What a search answers, as a document."""

from typing import Literal

# Not typing's: before Python 3.12 only this form can be turned into a schema.
from typing_extensions import TypedDict

from wikiholt.model import SearchResult, Hit
from wikiholt.search.slips import format_as_typed
from wikiholt.surfaces.documents.moments import format_date
from wikiholt.surfaces.documents.names import STORED_PATHS, PathStyle


class HitDocument(TypedDict):
    """A page with its best passage."""

    name: str
    path: str
    url: str
    snippet: str
    matches: list[list[int]]
    sentence: list[int] | None
    distance: float | None
    score: float
    confidence: Literal["high", "medium", "low"]
    channels: list[str]
    heading_path: list[str]
    anchor: str
    lines: list[int]
    chunk_index: int
    category: str | None
    tags: list[str]
    last_updated: str | None
    text: str
    section: str | None
    section_path: str | None
    total_chunks: int
    page_word_count: int


class SearchResultDocument(TypedDict):
    """What was found, how fresh it is, and whether something had to be gone around."""

    query: str
    did_you_mean: str | None
    as_typed: str | None
    mode: Literal["hybrid", "semantic", "keyword"]
    results: list[HitDocument]
    total: int
    considered: int
    took_ms: float
    indexed_revision: str | None
    head_revision: str | None
    stale: bool
    degraded: bool
    reranked: bool
    nothing_relevant: bool
    notes: list[str]


def build_result_document(result: SearchResult, path_style: PathStyle = STORED_PATHS) -> SearchResultDocument:
    return {
        "query": result.query,
        "did_you_mean": result.did_you_mean or None,
        "as_typed": format_as_typed(result.query, result.did_you_mean) if result.did_you_mean else None,
        "mode": result.mode.value,
        "results": [build_hit_document(hit, path_style) for hit in result.hits],
        "total": len(result.hits),
        "considered": result.total,
        "took_ms": result.took_ms,
        "indexed_revision": result.indexed_revision,
        "head_revision": result.head_revision,
        "stale": result.stale,
        "degraded": result.degraded,
        "reranked": result.reranked,
        "nothing_relevant": result.nothing_relevant,
        "notes": list(result.notes),
    }


def build_hit_document(hit: Hit, path_style: PathStyle = STORED_PATHS) -> HitDocument:
    return {
        "name": path_style.to_display_title(hit.name, hit.path),
        "path": path_style.to_display_path(hit.path),
        "url": path_style.to_url(hit.url),
        "snippet": hit.snippet.text,
        "matches": [[span.start, span.end] for span in hit.snippet.matches],
        "sentence": [hit.snippet.sentence.start, hit.snippet.sentence.end] if hit.snippet.sentence else None,
        "distance": hit.distance,
        "score": hit.score,
        "confidence": hit.confidence.value,
        "channels": list(hit.channels),
        "heading_path": list(hit.heading_path),
        "anchor": hit.anchor,
        "lines": [hit.first_line, hit.last_line],
        "chunk_index": hit.chunk_index,
        "category": hit.category,
        "tags": list(hit.tags),
        "last_updated": format_date(hit.last_updated),
        "text": hit.text,
        "section": hit.heading_path[-1] if hit.heading_path else None,
        "section_path": " > ".join(hit.heading_path) or None,
        "total_chunks": hit.total_chunks,
        "page_word_count": hit.page_words,
    }
