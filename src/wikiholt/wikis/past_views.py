"""The wiki as it was: indexes of past commits, built when they are first searched, each in a directory of its own.

`past/<commit>/` in the wiki's directory is a store of files whose only wiki is this one. A view is built like any first
index: with the vectors of texts that today's index and other views have, words before meaning, under its write lock.
Views are few and can be deleted at any time. What is hidden today is hidden in them too.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from threading import BoundedSemaphore, Lock, Thread
from typing import TYPE_CHECKING, NamedTuple

from wikiholt.domain.answer import Answer
from wikiholt.domain.git import LaterFile, PastCommit
from wikiholt.domain.search import Hit, PageFilter, SearchInterface, SearchResult
from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import (
    Busy,
    IndexUnavailable,
    InvalidSetting,
    NoPages,
    RevisionNotFound,
    StorageError,
    ViewPending,
    WikiholtError,
)
from wikiholt.git.source import GitPast
from wikiholt.index.backup_directory import BackupPolicy
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.reconciler import ProgressCallback, SyncProgress, ignore_progress
from wikiholt.index.repair import OtherStores
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.search.hits import format_page_link
from wikiholt.search.request import SearchRequest
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.live_index import Components, WikiConfig

if TYPE_CHECKING:
    from wikiholt.wikis.handle import WikiHandle

_VIEWS_DIRECTORY = "past"
_USED_FILE = "used"
_REVISION = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SPECIAL_CHARACTERS = re.compile(r"([\\*?\[])")
_LOCK_WAIT_S = 3600.0
"""How long a build waits for another process that builds the same view."""
_POLL_S = 0.1
_BUILDS = BoundedSemaphore(1)
"""A process builds one view at a time, so that people who name many commits do not use all of it."""


@dataclass(frozen=True, slots=True)
class PastView:
    """A view on the disk. Without `pages` and `chunks` before its first build has begun, and if it cannot be read."""

    revision: str
    is_complete: bool
    pages: int | None
    chunks: int | None
    bytes: int
    used_at: datetime


class _OpenView(NamedTuple):
    """A view in this process."""

    handle: "WikiHandle"
    pipeline: TextPipeline
    checked_for: tuple[int, ...]
    """Generation and version of today's index, which says what is hidden, and the number of the view's directory,
    which another process may have deleted."""


class _Build(Future[None]):
    """A build in the background."""

    def __init__(self, revision: str) -> None:
        super().__init__()
        self.revision = revision
        self.progress: SyncProgress | None = None


class PastViews:
    """The views of one wiki. Safe to use from many threads and processes."""

    def __init__(
        self,
        wiki: Wiki,
        config: WikiConfig,
        components: Components,
        open_handle: Callable[[WikiConfig, Components, OtherStores], "WikiHandle"],
    ) -> None:
        """`open_handle` opens the wiki with another configuration and store."""
        self._wiki = wiki
        self._config = config
        self._components = components
        self._limits = components.view_limits
        self._open_handle = open_handle
        self._directory = components.store.get_directory(wiki.id) / _VIEWS_DIRECTORY
        self._views: dict[str, _OpenView] = {}  # the last used last
        self._build: _Build | None = None
        self._lock = Lock()

    @cached_property
    def _past(self) -> GitPast:
        return GitPast(self._config.source)

    def _find_commit(self, name: str) -> PastCommit:
        if not self._limits.max_views:
            raise InvalidSetting("Searching the past is turned off.", hint="Set past.views to 1 or more.")
        return self._past.find_commit(name)

    def search(
        self, name: str, request: SearchRequest, wait_s: float, interface: SearchInterface | None = None
    ) -> SearchResult:
        """Search the wiki as it was. A view that is not there is built in the background: raises ViewPending if pages
        cannot be found by their words within `wait_s` seconds. Raises RevisionNotFound, InvalidSource for a wiki
        without a past, and what a build raises."""
        commit = self._find_commit(name)
        result = self._open_current(commit, wait_s).search(request, interface=interface)
        return replace(result, at=commit, hits=self._trace_hits(result.hits, commit.revision))

    def ask(self, name: str, question: str, where: PageFilter, wait_s: float, *, explain: bool = False) -> Answer:
        """The sentences that answered a question at that time. Raises what `search` raises."""
        return self._open_current(self._find_commit(name), wait_s).ask(question, where=where, explain=explain)

    def _trace_hits(self, hits: Sequence[Hit], revision: str) -> tuple[Hit, ...]:
        files = {hit.file for hit in hits} | {place.file for hit in hits for place in hit.also_on}
        later = self._past.trace_files(sorted(files), revision)
        return tuple(self._trace_hit(hit, later) for hit in hits)

    def _trace_hit(self, hit: Hit, later: Mapping[str, LaterFile]) -> Hit:
        """The hit with what became of its page. Its address is that of the page today, if there is one."""

        def get_url(file: str, url: str) -> str:
            now = later.get(file)
            if now is None or now.file == file:
                return url
            return format_page_link(self._config.url, get_page_path(now.file)) if now.file is not None else ""

        others = tuple(replace(place, url=get_url(place.file, place.url)) for place in hit.also_on)
        return replace(hit, url=get_url(hit.file, hit.url), later=later.get(hit.file), also_on=others)

    def build(self, name: str, progress: ProgressCallback = ignore_progress, *, words_only: bool = False) -> None:
        """Build the view, if it is not complete, and remove what exceeds the limits. Raises the errors of a sync."""
        self._build_view(self._find_commit(name), progress, words_only=words_only)

    def _build_view(self, commit: PastCommit, progress: ProgressCallback, *, words_only: bool = False) -> None:
        handle = self._get_handle(commit.revision)
        if handle.get_indexed_revision(words_only=words_only) == commit.revision:
            return
        self._touch(commit.revision)
        try:
            handle.sync(progress, lock_timeout_s=_LOCK_WAIT_S, words_only=words_only)
        except NoPages as error:
            with suppress(Busy):
                self.remove(commit.revision)
            message = error.message.replace("at HEAD", f"at {commit.name}")
            raise RevisionNotFound(message, hint="name a later commit or date") from error
        self.remove_excess(keep=commit.revision)

    def _open_current(self, commit: PastCommit, wait_s: float) -> "WikiHandle":
        """The handle of a view whose pages are all found by their words at least. The rest is built in the background,
        for which a caller waits up to `wait_s` seconds."""
        deadline = time.monotonic() + wait_s
        while (handle := self._get_handle(commit.revision)).get_indexed_revision() != commit.revision:
            build = self._start_build(commit)
            if handle.get_indexed_revision(words_only=True) == commit.revision:
                break
            if build is None:
                raise ViewPending("another past commit is being indexed", hint="try again when it is ready")
            if time.monotonic() > deadline:
                done = build.progress
                pages = f" ({done.pages_done} of {done.pages_total} pages)" if done and done.pages_total else ""
                raise ViewPending(
                    f"the wiki at {commit.name} is being indexed{pages}", hint="try again in a few seconds"
                )
            with suppress(TimeoutError):
                build.result(_POLL_S)  # raises what has ended it
        self._touch(commit.revision)
        return handle

    def _start_build(self, commit: PastCommit) -> _Build | None:
        """The build of this view in this process; None while another view is built."""
        with self._lock:
            if self._build is not None and self._build.revision == commit.revision and not self._build.done():
                return self._build
            if not _BUILDS.acquire(blocking=False):
                return None
            self._build = build = _Build(commit.revision)

        def report(progress: SyncProgress) -> None:
            build.progress = progress

        def run() -> None:
            error = None
            try:
                self._build_view(commit, report)
            except BaseException as caught:  # noqa: BLE001 - the thread ends, and searches raise it
                error = caught
            _BUILDS.release()
            if error is not None:
                build.set_exception(error)
            else:
                build.set_result(None)

        Thread(target=run, name="past", daemon=True).start()
        return build

    def _get_handle(self, revision: str) -> "WikiHandle":
        """The view in this process, with the rules of today."""
        if revision not in self._views:
            self._remove_other_files(revision)
        with self._lock, closing(self._components.store.open(self._wiki.id)) as today:
            version = (today.generation, today.get_version(), self._make_directory(revision))
            view = self._views.get(revision)
            if view is None or view.checked_for != version:
                pipeline = self._build_pipeline(today, revision)
                if view is None or (view.pipeline, view.checked_for[-1]) != (pipeline, version[-1]):
                    self._close_view(revision)
                    view = _OpenView(self._make_handle(revision, pipeline), pipeline, version)
                view = view._replace(checked_for=version)
            self._views.pop(revision, None)
            self._views[revision] = view
            if len(self._views) > self._limits.max_views:
                self._close_view(next(iter(self._views)))
            return view.handle

    def _close_view(self, revision: str) -> None:
        view = self._views.pop(revision, None)
        if view is not None:
            view.handle.close()

    def _remove_other_files(self, revision: str) -> None:
        """Remove a view whose pages are not those that today's settings read, such as `ignore`. Raises Busy."""
        known: dict[str, str] | None = None
        with suppress(IndexUnavailable), closing(self._open_store(revision).open(self._wiki.id)) as index:
            if index.get_state().revision == revision:  # else its next build compares it with the tree
                known = {**{problem.file: problem.blob for problem in index.get_problems()}, **index.get_page_blobs()}
        if known is not None:
            tree = self._past.pin(revision).read_tree(revision)
            if known != {file: entry.blob for file, entry in tree.items()}:
                self.remove(revision)

    def _make_directory(self, revision: str) -> int:
        directory = self._open_store(revision).get_directory(self._wiki.id)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return directory.stat().st_ino
        except OSError as error:
            raise StorageError(f"{directory} cannot be written ({error.strerror})", hint="check the disk") from error

    def _make_handle(self, revision: str, pipeline: TextPipeline) -> "WikiHandle":
        components = replace(
            self._components,
            store=self._open_store(revision),
            keyword_cache=lambda *_: None,
            vector_engine=None,
            databases=None,
            open_copy=lambda _: None,
            query_log_writer=None,
            backup_policy=BackupPolicy(),
        )
        config = replace(self._config, source=self._past.pin(revision), pipeline=pipeline)
        return self._open_handle(config, components, lambda: self._list_other_stores(revision))

    def _build_pipeline(self, today: WikiIndex, revision: str) -> TextPipeline:
        """The pipeline of today, which also hides pages that are hidden today under the names that they had then."""
        pipeline = self._config.pipeline
        tree = self._past.pin(revision).read_tree(revision)
        empty = [page.file for page in today.list_pages(PageFilter(), None)[1] if not page.chunks]
        hidden = {file for file, contents in today.get_page_contents(empty).items() if contents.hidden}
        hidden |= self._past.find_former_files(sorted(hidden), revision)
        files = sorted(file for file in tree if file in hidden or pipeline.is_hidden(file))
        return replace(pipeline, hide=tuple("/" + _SPECIAL_CHARACTERS.sub(r"\\\1", file) for file in files))

    def _list_other_stores(self, revision: str) -> list[IndexStore]:
        """Those of today's index and of the other views."""
        others = (other for other in self._list_revisions() if other != revision)
        return [self._components.store, *map(self._open_store, others)]

    # Views on the disk

    def list_views(self) -> Sequence[PastView]:
        """The views, the last used first."""
        views = [self._read_view(revision) for revision in self._list_revisions()]
        return sorted(views, key=lambda view: view.used_at, reverse=True)

    def remove(self, revision: str) -> None:
        """Delete a view. Raises Busy while it is built."""
        store = self._open_store(revision)
        with store.write_lock(self._wiki.id, 0):
            with self._lock:
                self._close_view(revision)
            store.delete(self._wiki.id)
        shutil.rmtree(self._directory / revision, ignore_errors=True)

    def remove_excess(self, keep: str = "") -> None:
        """Delete the views that exceed the limits, the longest unused first, and those of commits that are gone."""
        views, total = 0, 0
        for view in sorted(self.list_views(), key=lambda view: view.revision != keep):
            fits = views < self._limits.max_views and total + view.bytes <= self._limits.max_bytes
            if view.revision == keep or (fits and self._is_in_history(view.revision)):
                views, total = views + 1, total + view.bytes
            else:
                with suppress(Busy, IndexUnavailable):
                    self.remove(view.revision)

    def _is_in_history(self, revision: str) -> bool:
        try:
            return bool(self._past.find_commit(revision))
        except RevisionNotFound:
            return False
        except WikiholtError:  # the repository cannot be read now
            return True

    def _read_view(self, revision: str) -> PastView:
        store, state, used_at = self._open_store(revision), None, 0.0
        with suppress(WikiholtError), closing(store.open(self._wiki.id)) as index:
            state = index.get_state()
        with suppress(OSError):
            used_at = (self._directory / revision / _USED_FILE).stat().st_mtime
        return PastView(
            revision,
            state is not None and state.revision == revision and not state.pending_chunks,
            state.pages if state is not None else None,
            state.chunks if state is not None else None,
            store.get_disk_bytes(self._wiki.id),
            datetime.fromtimestamp(used_at, UTC),
        )

    def _list_revisions(self) -> list[str]:
        with suppress(OSError):
            return sorted(name for name in os.listdir(self._directory) if _REVISION.fullmatch(name))  # noqa: PTH208
        return []

    def _open_store(self, revision: str) -> SqliteStore:
        return SqliteStore(self._directory / revision)

    def _touch(self, revision: str) -> None:
        """Record that a view is used now."""
        with suppress(OSError):
            (self._directory / revision / _USED_FILE).touch()

    def close(self) -> None:
        with self._lock:
            for revision in list(self._views):
                self._close_view(revision)
