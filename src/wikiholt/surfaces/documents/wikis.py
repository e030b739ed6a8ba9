"""Wikis, how they stand, and what a sync did, as documents."""

from typing_extensions import TypedDict

from wikiholt.errors import WikiholtError
from wikiholt.handle import Status
from wikiholt.model import Problem, SyncReport, Wiki
from wikiholt.settings import WIKI_SETTINGS
from wikiholt.sources.address import shown
from wikiholt.surfaces.documents.health import HealthDocument, health_document
from wikiholt.surfaces.documents.moments import moment

HIDDEN = "(hidden)"
_SECRETS = frozenset(setting.name for setting in WIKI_SETTINGS if setting.secret)


class ErrorDocument(TypedDict):
    """What is wrong and what to do about it."""

    code: str
    message: str
    hint: str


class ProblemDocument(TypedDict):
    """A page that could not be indexed, and why."""

    file: str
    reason: str
    detail: str


class WikiDocument(TypedDict):
    """A wiki as its operator sees it."""

    slug: str
    source: str
    settings: dict[str, str]
    created_at: str


class StatusDocument(WikiDocument):
    """How a wiki stands."""

    pages: int
    chunks: int
    problems: list[ProblemDocument]
    indexed_revision: str | None
    head_revision: str | None
    stale: bool
    synced_at: str | None
    generation: int | None
    version: int | None
    model: str | None
    disk_bytes: int
    error: ErrorDocument | None
    health: HealthDocument
    set_aside: list[str]


class SyncDocument(TypedDict):
    """What a sync did."""

    wiki: str
    revision: str
    added: int
    changed: int
    moved: int
    deleted: int
    unchanged: int
    chunks_embedded: int
    chunks_reused: int
    problems: list[ProblemDocument]
    rebuilt: bool
    seconds: float


def sync_document(wiki: Wiki, report: SyncReport) -> SyncDocument:
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


def problem_document(problem: Problem) -> ProblemDocument:
    return {"file": problem.file, "reason": problem.reason, "detail": problem.detail}


def wiki_document(wiki: Wiki) -> WikiDocument:
    return {
        "slug": wiki.slug,
        "source": shown(wiki.source),
        "settings": shown_settings(wiki),
        "created_at": moment(wiki.created_at),
    }


def shown_settings(wiki: Wiki) -> dict[str, str]:
    """A wiki's settings as anybody may see them: of a secret only that there is one."""
    return {name: HIDDEN if name in _SECRETS else text for name, text in wiki.settings.items()}


def status_document(status: Status) -> StatusDocument:
    state = status.state
    return {
        **wiki_document(status.wiki),
        "pages": state.pages if state else 0,
        "chunks": state.chunks if state else 0,
        "problems": [problem_document(problem) for problem in status.problems],
        "indexed_revision": state.revision if state else None,
        "head_revision": status.head,
        "stale": status.stale,
        "synced_at": moment(state.synced_at) if state else None,
        "generation": state.generation if state else None,
        "version": state.version if state else None,
        "model": state.recipe.fingerprint if state else None,
        "disk_bytes": status.disk_bytes,
        "error": error_document(status.error) if status.error else None,
        "health": health_document(status.health),
        "set_aside": list(status.aside),
    }


def error_document(error: WikiholtError) -> ErrorDocument:
    return {"code": error.code, "message": error.message, "hint": error.hint}
