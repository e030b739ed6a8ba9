"""The index of a wiki: status, reindex, change notification and backups."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field
from typing_extensions import TypedDict

from wikiholt.api.documents.admin_documents import (
    ActivityDocument,
    BackupDocument,
    ErrorDocument,
    IndexStatusDocument,
    ReindexEstimateDocument,
    build_backup_document,
    build_index_status,
)
from wikiholt.api.documents.common import build_document
from wikiholt.api.operations.operation import Caching, OperationTable
from wikiholt.api.operations.parameters import Flag, Parameters, Until
from wikiholt.api.public_messages import get_public_message
from wikiholt.domain.wiki import Scope
from wikiholt.errors import IndexMissing, NothingIndexed, WikiholtError
from wikiholt.sync.reindex_job import ReindexJob, ReindexState
from wikiholt.sync.scheduler import Scheduler
from wikiholt.wikis.session import WikiSession

_STATUS_BY_STATE: dict[ReindexState, Literal["idle", "in_progress", "complete", "error"]] = {
    ReindexState.NONE: "idle",
    ReindexState.QUEUED: "in_progress",
    ReindexState.RUNNING: "in_progress",
    ReindexState.COMPLETE: "complete",
    ReindexState.FAILED: "error",
}
_FAILED_MESSAGE = "The reindex failed; the service log has the reason."
_ESTIMATE_TIME_LIMIT_S = 15.0
"""How long a dry run reads pages; for a wiki that takes longer it extrapolates."""


@dataclass(frozen=True, slots=True)
class IndexControl:
    """The index of one wiki, and the scheduler that syncs it."""

    session: WikiSession
    scheduler: Scheduler


class ReindexParameters(Parameters):
    """Parameters of a reindex."""

    dry_run: Flag = Field(False, description="Only estimate the cost; nothing is written.")


class RestoreParameters(Parameters):
    """Parameters of a restore."""

    at: Until | None = Field(
        None,
        description="The newest backup up to this time: a date (end of day), a date with time, or 12h, 7d, 3w ago.",
    )


class IndexDocument(IndexStatusDocument):
    """Status of a wiki's index, with the sync state and the current activity."""

    slug: str
    activity: ActivityDocument | None
    waiting: bool
    missing: bool
    watched: bool


class ReindexJobDocument(TypedDict):
    """The last reindex; a superset of the fields of otterwiki-semantic-search."""

    status: Literal["idle", "in_progress", "complete", "error"]
    started_at: str | None
    completed_at: str | None
    pages_indexed: int
    pages_total: int
    chunks_created: int
    problems: int
    revision: str | None
    resumed: int
    error_message: str | None
    error_code: str | None


class ReindexStartedDocument(TypedDict):
    """The reindex has started."""

    status: Literal["started"]


class ChangeAcceptedDocument(TypedDict):
    """The notification is accepted; the wiki is synced before wikis that are only due."""

    status: Literal["accepted"]


class BackupsDocument(TypedDict):
    """A wiki's backups, newest first; `error` says why the last scheduled backup failed."""

    backups: list[BackupDocument]
    total: int
    error: ErrorDocument | None


INDEX_OPERATIONS = OperationTable("index")
BACKUP_OPERATIONS = OperationTable("backups", scope=Scope.ADMIN, caching=Caching.NEVER)


@INDEX_OPERATIONS.add("GET /status", "status")
def get_status(index: IndexControl, _: Parameters) -> IndexDocument:
    """Show what is indexed, how fresh it is, which pages have problems, and the current activity."""
    # The index is read last: if no sync waits or runs by then, its status contains what the last sync has done.
    wiki = index.session.wiki
    sync_state, activity = index.scheduler.get_sync_state(wiki.id), index.scheduler.get_activity(wiki.id)
    status = index.session.handle.get_status()
    error = status.error or sync_state.error
    if isinstance(error, IndexMissing | NothingIndexed):
        # A sync that failed says why. Before and during the first sync, a missing index is no error.
        error = sync_state.error or (None if activity or sync_state.waiting else error)
    return {
        "slug": wiki.slug,
        **build_index_status(status, _build_public_error_document(error)),
        "activity": build_document(ActivityDocument, activity) if activity else None,
        "waiting": sync_state.waiting,
        "missing": sync_state.missing,
        "watched": sync_state.watched,
    }


def _build_public_error_document(error: WikiholtError | None) -> ErrorDocument | None:
    if error is None:
        return None
    message, hint = get_public_message(error)
    return {"code": error.code, "message": message, "hint": hint}


@INDEX_OPERATIONS.add(
    "POST /reindex",
    "reindex",
    scope=Scope.ADMIN,
    caching=Caching.NEVER,
    errors=(409,),
    status=202,
    other_results={200: (ReindexEstimateDocument, "The estimated cost (dry_run).")},
    choose_status=lambda document: 202 if "status" in document else 200,
    location="/reindex/status",
)
def start_reindex(index: IndexControl, parameters: ReindexParameters) -> ReindexStartedDocument:
    """Rebuild the index; the old one answers until the new one is ready. With dry_run, estimate the cost."""
    if parameters.dry_run:
        estimate = index.session.handle.estimate_reindex(_ESTIMATE_TIME_LIMIT_S)
        return build_document(ReindexEstimateDocument, estimate)  # type: ignore[return-value]
    index.scheduler.reindex(index.session.wiki.id)
    return {"status": "started"}


@INDEX_OPERATIONS.add("GET /reindex/status", "reindex_status", caching=Caching.NEVER)
def get_reindex_status(index: IndexControl, _: Parameters) -> ReindexJobDocument:
    """Show the progress of the last reindex; it survives a restart of the service."""
    job: ReindexJob = index.scheduler.get_reindex_job(index.session.wiki.id)
    failed = job.state is ReindexState.FAILED
    return build_document(
        ReindexJobDocument,
        job,
        status=_STATUS_BY_STATE[job.state],
        completed_at=job.finished_at,
        pages_indexed=job.pages_done,
        chunks_created=job.chunks_embedded,
        error_message=_FAILED_MESSAGE if failed else None,
        error_code=job.error_code if failed else None,
    )


@INDEX_OPERATIONS.add("POST /wake", "wake", scope=Scope.WRITE, status=202)
def notify_changed(wiki: WikiSession, _: Parameters) -> ChangeAcceptedDocument:
    """Check the repository for changes now."""
    wiki.notify_changed()
    return {"status": "accepted"}


@BACKUP_OPERATIONS.add("GET /backups")
def list_backups(index: IndexControl, _: Parameters) -> BackupsDocument:
    """List the wiki's backups."""
    backups = [build_backup_document(backup) for backup in index.session.handle.backups.list()]
    error = index.scheduler.get_sync_state(index.session.wiki.id).backup_error
    return {"backups": backups, "total": len(backups), "error": _build_public_error_document(error)}


@BACKUP_OPERATIONS.add("POST /backup", "back_up", errors=(409,), status=201)
def create_backup(wiki: WikiSession, _: Parameters) -> BackupDocument:
    """Back up the index; searches and syncs continue meanwhile."""
    return build_backup_document(wiki.handle.backups.create())


@BACKUP_OPERATIONS.add("POST /restore", "restore", errors=(404, 409))
def restore_backup(wiki: WikiSession, parameters: RestoreParameters) -> BackupDocument:
    """Restore a backup, then sync it with the repository."""
    restored = wiki.handle.restore(parameters.at)
    wiki.notify_changed()
    return build_backup_document(restored)
