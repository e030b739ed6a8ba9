"""Wikis, how they stand, and what a sync did, as documents."""

from typing_extensions import TypedDict

from wikiholt.errors import WikiholtError
from wikiholt.handle import WikiStatus
from wikiholt.model import PageProblem, SyncReport, Wiki
from wikiholt.settings import WIKI_SETTINGS
from wikiholt.sources.address import redact_url
from wikiholt.surfaces.documents.health import IndexHealthDocument, build_health_document
from wikiholt.surfaces.documents.moments import format_date

HIDDEN_VALUE = "(hidden)"
_SECRET_SETTINGS = frozenset(setting.name for setting in WIKI_SETTINGS if setting.secret)


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
    health: IndexHealthDocument
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


def build_sync_document(wiki: Wiki, report: SyncReport) -> SyncDocument:
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
        "problems": [build_problem_document(problem) for problem in report.problems],
        "rebuilt": report.rebuilt,
        "seconds": round(report.seconds, 3),
    }


def build_problem_document(problem: PageProblem) -> ProblemDocument:
    return {"file": problem.file, "reason": problem.reason, "detail": problem.detail}


def build_wiki_document(wiki: Wiki) -> WikiDocument:
    return {
        "slug": wiki.slug,
        "source": redact_url(wiki.source),
        "settings": get_public_settings(wiki),
        "created_at": format_date(wiki.created_at),
    }


def get_public_settings(wiki: Wiki) -> dict[str, str]:
    """A wiki's settings as anybody may see them: of a secret only that there is one."""
    return {name: HIDDEN_VALUE if name in _SECRET_SETTINGS else text for name, text in wiki.settings.items()}


def build_status_document(status: WikiStatus) -> StatusDocument:
    state = status.state
    return {
        **build_wiki_document(status.wiki),
        "pages": state.pages if state else 0,
        "chunks": state.chunks if state else 0,
        "problems": [build_problem_document(problem) for problem in status.problems],
        "indexed_revision": state.revision if state else None,
        "head_revision": status.head,
        "stale": status.stale,
        "synced_at": format_date(state.synced_at) if state else None,
        "generation": state.generation if state else None,
        "version": state.version if state else None,
        "model": state.recipe.fingerprint if state else None,
        "disk_bytes": status.disk_bytes,
        "error": build_error_document(status.error) if status.error else None,
        "health": build_health_document(status.health),
        "set_aside": list(status.quarantined),
    }


def build_error_document(error: WikiholtError) -> ErrorDocument:
    return {"code": error.code, "message": error.message, "hint": error.hint}
