"""What other processes are doing for a wiki, or left undone: read from its store, told by `wikiholt status`."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypedDict

from wikiholt.keeper.desk import read_activity
from wikiholt.keeper.entries import Activity
from wikiholt.keeper.jobs import Job, JobState, read_job, write_job
from wikiholt.model import SyncReport
from wikiholt.ports import Store
from wikiholt.surfaces.cli.output import Style, line
from wikiholt.surfaces.documents.moments import moment


class WorkDocument(TypedDict):
    """What is at work, and the reindexing that waits for somebody to go on with it, if one does."""

    activity: dict[str, object] | None
    unfinished_reindex: dict[str, object] | None


@dataclass(frozen=True, slots=True)
class Work:
    """What is being done for a wiki by whichever process, and its last job."""

    activity: Activity | None
    job: Job

    @property
    def left(self) -> bool:
        """Whether a reindexing is not finished and nobody is at it: it waits for its turn, or was cut off."""
        return self.job.open and self.activity is None


def work_at(store: Store, wiki_id: str) -> Work:
    return Work(read_activity(store, wiki_id), read_job(store, wiki_id))


def finish(store: Store, wiki_id: str, report: SyncReport) -> None:
    """A reindexing has come to its end here: one that a service was cut off in need not be gone on with."""
    job = read_job(store, wiki_id)
    if Work(read_activity(store, wiki_id), job).left:
        done = replace(job, state=JobState.COMPLETE, finished_at=datetime.now(UTC), pages_done=job.pages_total)
        write_job(store, wiki_id, replace(done, problems=len(report.problems), revision=report.revision))


def lines(work: Work, style: Style) -> list[str]:
    """For people; nothing where nothing is to be told."""
    told, job = [], work.job
    if work.activity is not None:
        far = f"{work.activity.pages_done} of {work.activity.pages_total} pages"
        told.append(f"  {work.activity.kind} at work since {work.activity.since:%Y-%m-%d %H:%M} UTC: {far}")
    elif work.left:
        begun = f"begun {job.started_at:%Y-%m-%d %H:%M} UTC, " if job.started_at else ""
        far = f"{job.pages_done} of {job.pages_total} pages" if job.pages_total else "nothing done yet"
        told.append(style.warn(f"  a reindexing is not finished ({begun}{far}); this index answers meanwhile"))
        told.append(
            "  hint: the service goes on with it, at the latest when it starts again; so does `wikiholt reindex`"
        )
    elif job.state is JobState.FAILED:
        told.append(style.warn(f"  the last reindexing failed: {line(job.error)}"))
    return told


def document(work: Work) -> WorkDocument:
    """The same as JSON."""
    now, job = work.activity, work.job
    return {
        "activity": None
        if now is None
        else {
            "kind": now.kind,
            "since": moment(now.since),
            "pages_done": now.pages_done,
            "pages_total": now.pages_total,
            "chunks_embedded": now.chunks_embedded,
        },
        "unfinished_reindex": {
            "started_at": moment(job.started_at) if job.started_at else None,
            "pages_done": job.pages_done,
            "pages_total": job.pages_total,
        }
        if work.left
        else None,
    }
