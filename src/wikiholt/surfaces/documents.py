"""Values as JSON documents: the same names and forms on every surface."""

from datetime import datetime
from typing import Any

from wikiholt.errors import WikiholtError
from wikiholt.handle import Status
from wikiholt.model import Answer, Hit, Problem, SyncReport, Wiki

Document = dict[str, Any]


def answer_document(answer: Answer) -> Document:
    return {
        "query": answer.query,
        "mode": str(answer.mode),
        "hits": [hit_document(hit) for hit in answer.hits],
        "total": answer.total,
        "took_ms": answer.took_ms,
        "indexed_revision": answer.indexed_revision,
        "head_revision": answer.head_revision,
        "stale": answer.stale,
        "degraded": answer.degraded,
        "nothing_relevant": answer.nothing_relevant,
        "notes": list(answer.notes),
    }


def hit_document(hit: Hit) -> Document:
    return {
        "name": hit.name,
        "path": hit.path,
        "url": hit.url,
        "snippet": hit.snippet.text,
        "matches": [[span.start, span.end] for span in hit.snippet.matches],
        "distance": hit.distance,
        "score": hit.score,
        "confidence": str(hit.confidence),
        "channels": list(hit.channels),
        "heading_path": list(hit.heading_path),
        "anchor": hit.anchor,
        "lines": [hit.first_line, hit.last_line],
        "chunk_index": hit.chunk_index,
        "category": hit.category,
        "tags": list(hit.tags),
        "last_updated": _moment(hit.last_updated),
    }


def sync_document(wiki: Wiki, report: SyncReport) -> Document:
    return {
        "wiki": wiki.slug,
        "revision": report.revision,
        "added": report.added,
        "changed": report.changed,
        "moved": report.moved,
        "deleted": report.deleted,
        "unchanged": report.unchanged,
        "chunks_embedded": report.chunks_embedded,
        "chunks_reused": report.chunks_reused,
        "problems": [problem_document(problem) for problem in report.problems],
        "rebuilt": report.rebuilt,
        "seconds": round(report.seconds, 3),
    }


def problem_document(problem: Problem) -> Document:
    return {"file": problem.file, "reason": problem.reason, "detail": problem.detail}


def wiki_document(wiki: Wiki) -> Document:
    return {
        "slug": wiki.slug,
        "source": wiki.source,
        "settings": dict(wiki.settings),
        "created_at": _moment(wiki.created_at),
    }


def status_document(status: Status) -> Document:
    state = status.state
    document = wiki_document(status.wiki) | {
        "pages": state.pages if state else 0,
        "chunks": state.chunks if state else 0,
        "problems": [problem_document(problem) for problem in status.problems],
        "indexed_revision": state.revision if state else None,
        "head_revision": status.head,
        "stale": status.stale,
        "synced_at": _moment(state.synced_at) if state else None,
        "generation": state.generation if state else None,
        "version": state.version if state else None,
        "model": state.recipe.fingerprint if state else None,
        "disk_bytes": status.disk_bytes,
    }
    return document | {"error": error_document(status.error) if status.error else None}


def error_document(error: WikiholtError) -> Document:
    return {"code": error.code(), "message": error.message, "hint": error.hint}


def _moment(when: datetime | None) -> str | None:
    return when.isoformat() if when else None
