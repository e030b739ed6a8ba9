"""What a search answers, as a document."""

from typing import Literal

# Not typing's: before Python 3.12 only this form can be turned into a schema.
from typing_extensions import TypedDict

from wikiholt.model import Answer, Hit
from wikiholt.search.slips import as_typed
from wikiholt.surfaces.documents.moments import moment
from wikiholt.surfaces.documents.names import AS_STORED, Names


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


class AnswerDocument(TypedDict):
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


def answer_document(answer: Answer, names: Names = AS_STORED) -> AnswerDocument:
    return {
        "query": answer.query,
        "did_you_mean": answer.did_you_mean or None,
        "as_typed": as_typed(answer.query, answer.did_you_mean) if answer.did_you_mean else None,
        "mode": answer.mode.value,
        "results": [hit_document(hit, names) for hit in answer.hits],
        "total": len(answer.hits),
        "considered": answer.total,
        "took_ms": answer.took_ms,
        "indexed_revision": answer.indexed_revision,
        "head_revision": answer.head_revision,
        "stale": answer.stale,
        "degraded": answer.degraded,
        "reranked": answer.reranked,
        "nothing_relevant": answer.nothing_relevant,
        "notes": list(answer.notes),
    }


def hit_document(hit: Hit, names: Names = AS_STORED) -> HitDocument:
    return {
        "name": names.titled(hit.name, hit.path),
        "path": names.shown(hit.path),
        "url": names.linked(hit.url),
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
        "last_updated": moment(hit.last_updated),
        "text": hit.text,
        "section": hit.heading_path[-1] if hit.heading_path else None,
        "section_path": " > ".join(hit.heading_path) or None,
        "total_chunks": hit.total_chunks,
        "page_word_count": hit.page_words,
    }
