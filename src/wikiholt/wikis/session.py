"""One opened wiki as the interfaces (HTTP, MCP, Otterwiki, web page) use it.

A session combines the wiki's handle with the granted scope, the path style of the caller and the commit author.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from threading import BoundedSemaphore
from typing import Protocol

from wikiholt.domain.git import Author
from wikiholt.domain.page import AttachmentResult, MovedFile, PageDeleteResult, PageRenameResult, PageWriteResult
from wikiholt.domain.search import PageFilter, SearchInterface, SearchResult
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import IndexMissing, WikiholtError
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.access import Grant
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import IndexSnapshot
from wikiholt.wikis.pages.bulk_writer import BulkLineResult, BulkOutcome
from wikiholt.wikis.pages.page_reader import get_new_file

_FRESH_WAITERS = BoundedSemaphore(16)
"""Limits the threads that wait for a fresh index, so that enough threads remain to answer requests."""


class PathStyle:
    """Translates page paths between git and the form that callers read and write. In this one both are the same."""

    __slots__ = ()

    def to_display_path(self, path: str) -> str:
        """A git path in the caller's form."""
        return path

    def to_display_title(self, name: str, path: str) -> str:  # noqa: ARG002 - other styles use it
        """The page title in the caller's form; a title set in the page itself stays unchanged."""
        return name

    def to_git_path(self, path: str) -> str:
        """The git path for a path in the caller's form."""
        return path

    def to_link_path(self, path: str) -> str | None:  # noqa: ARG002
        """The full path that links must use, or None if the last path segment is enough."""
        return None

    def to_url(self, url: str) -> str:
        """A page URL that the caller can open."""
        return url

    def to_git_prefix(self, prefix: str) -> str:
        """The git path prefix for a prefix in the caller's form."""
        return prefix


STORED_PATHS = PathStyle()


class ChangeKind(StrEnum):
    """What a commit did to a page."""

    SAVED = "saved"
    DELETED = "deleted"
    RENAMED = "renamed"
    ATTACHED = "attached"


@dataclass(frozen=True, slots=True)
class CommitEvent:
    """A commit that a request made. Paths and files are git paths.

    `files` lists the files that the commit wrote, or removed for a deleted page; the page's own file comes first.
    """

    kind: ChangeKind
    path: str
    files: tuple[str, ...]
    author: Author
    message: str
    new_path: str = ""
    moved: tuple[MovedFile, ...] = ()
    """The files that moved with a renamed page. They are not in `files`."""


CommitListener = Callable[[CommitEvent], None]
WriteResult = PageWriteResult | PageDeleteResult | PageRenameResult | AttachmentResult


def ignore_commit(_: CommitEvent) -> None:
    """The listener of a session without a host application."""


class SyncErrorSource(Protocol):
    """The part of a sync state that a session reads."""

    @property
    def error(self) -> WikiholtError | None: ...


class SyncScheduler(Protocol):
    """The part of the scheduler that a session uses."""

    def wait_until_fresh(self, wiki_id: str, timeout_s: float, /) -> object: ...

    def notify_changed(self, wiki_id: str, /) -> None: ...

    def get_sync_state(self, wiki_id: str, /) -> SyncErrorSource: ...


@dataclass(frozen=True, slots=True)
class WikiSession:
    """One wiki with the granted scope.

    `author` is the commit author set by the host application or the token, if any. A write waits up to `index_wait_s`
    seconds until the index contains it. `semantic_chunks_per_page` is the default of searches by meaning alone.
    """

    grant: Grant
    handle: WikiHandle
    fresh_timeout_s: float
    _scheduler: SyncScheduler
    path_style: PathStyle = STORED_PATHS
    author: Author | None = None
    on_commit: CommitListener = ignore_commit
    index_wait_s: float = 0.0
    semantic_chunks_per_page: int = 1
    interface: SearchInterface = SearchInterface.HTTP

    @property
    def wiki(self) -> Wiki:
        return self.grant.wiki

    @contextmanager
    def use_handle(self) -> Iterator[WikiHandle]:
        """Yield the handle. If the index is missing, raise the sync error that prevented it."""
        try:
            yield self.handle
        except IndexMissing as error:
            raise self._scheduler.get_sync_state(self.wiki.id).error or error from None

    @contextmanager
    def open_snapshot(self) -> Iterator[IndexSnapshot]:
        """Read the published index and HEAD once for a request. Raises like `use_handle`."""
        with self.use_handle() as handle, handle.open_snapshot() as snapshot:
            yield snapshot

    def wait_until_fresh(self) -> None:
        """Wait until the index reaches the current HEAD, up to `fresh_timeout_s` seconds; never raises on a timeout."""
        self._wait_until_fresh(self.fresh_timeout_s)

    def wait_for_revision(self, revision: str) -> None:
        """Wait until the index contains a commit, up to `fresh_timeout_s` seconds; never raises on a timeout."""
        if not (self.handle.get_indexed_revision(words_only=True) or "").startswith(revision):
            self.wait_until_fresh()

    def _wait_until_fresh(self, timeout_s: float) -> None:
        if _FRESH_WAITERS.acquire(blocking=False):
            try:
                self._scheduler.wait_until_fresh(self.wiki.id, timeout_s)
            finally:
                _FRESH_WAITERS.release()

    def search_past(self, at: str, request: SearchRequest) -> SearchResult:
        """Search the wiki as it was; waits up to `fresh_timeout_s` seconds for its index. Raises like PastViews."""
        waits = _FRESH_WAITERS.acquire(blocking=False)
        try:
            return self.handle.past.search(at, request, self.fresh_timeout_s if waits else 0, self.interface)
        finally:
            if waits:
                _FRESH_WAITERS.release()

    def notify_changed(self) -> None:
        """Schedule a sync of the wiki."""
        self._scheduler.notify_changed(self.wiki.id)

    def report_write(self, result: WriteResult, author: Author, message: str) -> None:
        """If the write made a commit: schedule a sync, notify the host application, and wait `index_wait_s`."""
        if isinstance(result, PageRenameResult):
            files = (result.file, *map(get_new_file, result.updated))
            event = CommitEvent(ChangeKind.RENAMED, result.old_path, files, author, message, result.path, result.moved)
        elif isinstance(result, PageDeleteResult):
            event = CommitEvent(ChangeKind.DELETED, result.path, (result.file,), author, message)
        elif isinstance(result, AttachmentResult):
            event = CommitEvent(ChangeKind.ATTACHED, result.path, (result.attachment.file,), author, message)
        elif result.changed:
            event = CommitEvent(ChangeKind.SAVED, result.path, (result.file,), author, message)
        else:
            return
        self.notify_changed()
        self.on_commit(event)
        if self.index_wait_s:
            self._wait_until_fresh(self.index_wait_s)

    def report_bulk_write(self, results: Iterable[BulkLineResult], author: Author, message: str) -> None:
        """If a batch made a commit: schedule a sync, and notify the host application of each page."""
        changes = [result for result in results if result.is_change]
        if changes:
            self.notify_changed()
        for result in changes:
            kind = ChangeKind.DELETED if result.outcome is BulkOutcome.DELETED else ChangeKind.SAVED
            self.on_commit(CommitEvent(kind, result.path, (result.file,), author, message))

    def to_git_filter(self, page_filter: PageFilter) -> PageFilter:
        """The filter with its path prefix as a git path."""
        if not page_filter.path_prefix:
            return page_filter
        return replace(page_filter, path_prefix=self.path_style.to_git_prefix(page_filter.path_prefix))
