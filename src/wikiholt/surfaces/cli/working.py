"""What other processes are doing for a wiki, or left undone: read from its store, told by `wikiholt status`."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypedDict

from wikiholt.keeper.desk import read_activity
from wikiholt.keeper.entries import WikiActivity
from wikiholt.keeper.jobs import ReindexJob, ReindexState, read_job, write_job
from wikiholt.model import SyncReport
from wikiholt.ports import IndexStore
from wikiholt.surfaces.cli.output import TerminalStyle, to_safe_line
from wikiholt.surfaces.documents.moments import format_date


class WorkDocument(TypedDict):
    """What is at work, and the reindexing that waits for somebody to go on with it, if one does."""

    activity: dict[str, object] | None
    unfinished_reindex: dict[str, object] | None


@dataclass(frozen=True, slots=True)
class WikiWork:
    """What is being done for a wiki by whichever process, and its last job."""

    activity: WikiActivity | None
    job: ReindexJob

    @property
    def is_reindex_unfinished(self) -> bool:
        """Whether a reindexing is not finished and nobody is at it: it waits for its turn, or was cut off."""
        return self.job.is_open and self.activity is None


def read_wiki_work(store: IndexStore, wiki_id: str) -> WikiWork:
    return WikiWork(read_activity(store, wiki_id), read_job(store, wiki_id))


def finish_reindex_job(store: IndexStore, wiki_id: str, report: SyncReport) -> None:
    """A reindexing has come to its end here: one that a service was cut off in need not be gone on with."""
    job = read_job(store, wiki_id)
    if WikiWork(read_activity(store, wiki_id), job).is_reindex_unfinished:
        done = replace(job, state=ReindexState.COMPLETE, finished_at=datetime.now(UTC), pages_done=job.pages_total)
        write_job(store, wiki_id, replace(done, problems=len(report.problems), revision=report.revision))


def format_work(work: WikiWork, style: TerminalStyle) -> list[str]:
    """For people; nothing where nothing is to be told."""
    told, job = [], work.job
    if work.activity is not None:
        far = f"{work.activity.pages_done} of {work.activity.pages_total} pages"
        told.append(f"  {work.activity.kind} at work since {work.activity.since:%Y-%m-%d %H:%M} UTC: {far}")
    elif work.is_reindex_unfinished:
        begun = f"begun {job.started_at:%Y-%m-%d %H:%M} UTC, " if job.started_at else ""
        far = f"{job.pages_done} of {job.pages_total} pages" if job.pages_total else "nothing done yet"
        told.append(style.format_warning(f"  a reindexing is not finished ({begun}{far}); this index answers meanwhile"))
        told.append(
            "  hint: the service goes on with it, at the latest when it starts again; so does `wikiholt reindex`"
        )
    elif job.state is ReindexState.FAILED:
        told.append(style.format_warning(f"  the last reindexing failed: {to_safe_line(job.error)}"))
    return told


def build_work_document(work: WikiWork) -> WorkDocument:
    """The same as JSON."""
    now, job = work.activity, work.job
    return {
        "activity": None
        if now is None
        else {
            "kind": now.kind,
            "since": format_date(now.since),
            "pages_done": now.pages_done,
            "pages_total": now.pages_total,
            "chunks_embedded": now.chunks_embedded,
        },
        "unfinished_reindex": {
            "started_at": format_date(job.started_at) if job.started_at else None,
            "pages_done": job.pages_done,
            "pages_total": job.pages_total,
        }
        if work.is_reindex_unfinished
        else None,
    }
