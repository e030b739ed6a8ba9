"""A cache that follows the versions of one index: what the vector cache and the keyword cache have in common.

Any number of threads may search while one refreshes; concurrent refreshes wait for each other. A search uses one
immutable state from start to end. Merges and large builds run in one background thread, and the next refresh adopts
their result.
"""

import contextlib
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from wikiholt.caches.cache_file import CacheBroken, CacheDirectory, CacheFileName, CacheNotReady, MappedFile
from wikiholt.domain.storage_protocols import WikiIndex

Item = TypeVar("Item")
Result = TypeVar("Result")


class Cancelled(Exception):
    """The job was cancelled."""


class BackgroundWorker(Generic[Result]):
    """Runs one job in its own thread, or inline if `background` is false. Only one thread may start jobs."""

    def __init__(self, name: str, *, background: bool) -> None:
        self._name = name
        self._background = background
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._result: Result | None = None
        self._failure: Exception | None = None

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Callable[[], Result | None]) -> bool:
        """Start a job unless one is running or a result has not been taken. Returns whether it started."""
        has_result = self._result is not None or self._failure is not None
        if self.is_busy or has_result or self._stopping.is_set():
            return False
        if not self._background:
            self._run_job(job)
            return True
        self._thread = threading.Thread(target=self._run_job, args=(job,), name=self._name, daemon=True)
        self._thread.start()
        return True

    def take_result(self) -> tuple[Result | None, Exception | None]:
        """Return and clear the result or the failure of the last job. Both are None while a job runs."""
        if self.is_busy:
            return None, None
        outcome = self._result, self._failure
        self._result = self._failure = None
        return outcome

    def iter_until_stopped(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items. Raises Cancelled once the worker is stopped."""
        for item in items:
            if self._stopping.is_set():
                raise Cancelled
            yield item

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the running job. Returns whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.is_busy

    def stop(self, timeout_s: float) -> bool:
        """Cancel the running job, wait for it, and refuse new jobs. Returns whether it has ended."""
        self._stopping.set()
        return self.wait(timeout_s)

    def _run_job(self, job: Callable[[], Result | None]) -> None:
        try:
            self._result = job()
        except Cancelled:
            pass
        except Exception as error:  # noqa: BLE001 - kept for `take_result`
            self._failure = error


_LOG = logging.getLogger(__name__)

MAX_RETRY_DELAY_S = 60.0
_RETRY_DELAY_S = 0.5
_STOP_TIMEOUT_S = 10.0


class CacheState(Protocol):
    """One immutable state of a cache."""

    @property
    def version(self) -> int:
        """The version of the index that the state equals."""

    @property
    def file(self) -> MappedFile | None:
        """The file that the state reads; None if it is in memory."""


State = TypeVar("State", bound=CacheState)


class VersionedCache(ABC, Generic[State]):
    """Refreshes a state from the index: by applying changes, by opening a file, or by building."""

    def __init__(
        self,
        index: WikiIndex,
        directory: CacheDirectory,
        *,
        label: str,
        background: bool,
        inline_build_limit: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`label` names the cache in messages; an index larger than `inline_build_limit` is built in the background."""
        self._index = index
        self._directory = directory
        self._label = label
        self._background = background
        self._inline_build_limit = inline_build_limit
        self._state: State | None = None
        self._unverified_file: MappedFile | None = None
        self._clock = clock
        self._failure: Exception | None = None
        self._failure_count = 0
        self._failed_version: int | None = None
        self._retry_at = 0.0
        self._closed = False
        self._init_process()

    def _init_process(self) -> None:
        """Create the lock and the worker. A forked child needs its own."""
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._worker: BackgroundWorker[State] = BackgroundWorker(
            f"wikiholt-{self._directory.family}", background=self._background
        )

    @property
    def version(self) -> int | None:
        """The version of the index that the cache equals; None before it is ready."""
        state = self._state
        return None if state is None else state.version

    def refresh(self) -> None:
        """Bring the cache to the index's version: by the changes since, by a file on disk, or by building.

        Raises CacheNotReady if the cache was closed.
        """
        if self._process_id != os.getpid():
            self._init_process()
        with self._lock:
            if self._closed:
                raise CacheNotReady(f"The {self._label} was closed.")
            state = self._take_background_result(self._check_state(self._state))
            if state is None or state.version != self._index.get_version():
                state = self._bring_up_to_date(state)
            self._state = state = self._confirm(state)
            if state is not None:
                self._maintain(state)

    def verify(self) -> None:
        """Verify all checksums of the file. Removes a damaged file and raises CacheBroken."""
        state = self._state
        if state is not None and state.file is not None:
            self._directory.verify(state.file)

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        """Wait for the background job. Returns whether it has ended; the next refresh adopts its result."""
        return self._worker.wait(timeout_s)

    def close(self) -> None:
        """Stop the background job and release the file. A half-written file is removed."""
        self._closed = True
        if self._process_id == os.getpid() and not self._worker.stop(_STOP_TIMEOUT_S):
            _LOG.warning("the background job of the %s did not stop in time; it ends with the process", self._label)
        self._state = None

    def _get_state(self) -> State:
        """Return the current state. Raises CacheNotReady if there is none."""
        state = self._state
        if state is None:
            reason = f" The last attempt failed: {self._failure}" if self._failure else ""
            raise CacheNotReady(
                f"The {self._label} is not built yet.{reason}", hint="searches read the index in the meantime"
            )
        return state

    # ── what a kind of cache defines ─────────────────────────────────────────────────────────────

    @abstractmethod
    def _advance(self, state: State | None) -> State | None:
        """Apply the changes up to the index's version; None if that is not possible, or happens in the background."""

    @abstractmethod
    def _get_file_kind(self) -> str:
        """The kind of this cache's files."""

    @abstractmethod
    def _open_file(self, name: CacheFileName) -> State:
        """Open a file. Raises CacheBroken and OSError. Calls `_verify_later` unless all checksums were verified."""

    @abstractmethod
    def _build(self) -> State:
        """Build a state from the index. May run in the background."""

    @abstractmethod
    def _get_build_size(self) -> int:
        """The size of the index, to compare with `inline_build_limit`."""

    @abstractmethod
    def _start_maintenance(self, state: State) -> None:
        """Start the work that the state needs, such as a merge."""

    def _confirm(self, state: State | None) -> State | None:
        """Check a new state against the index; the default trusts it."""
        return state

    def _bring_up_to_date(self, state: State | None) -> State | None:
        """Return a state at the index's version; None while it is built in the background."""
        # Not `or`: an empty state is false.
        state = self._advance(state)
        if state is None:
            state = self._load_from_disk()
        return self._build_from_index() if state is None else state

    # ── files ────────────────────────────────────────────────────────────────────────────────────

    def _load_from_disk(self, after: int = -1) -> State | None:
        """Open the newest usable file with a version above `after` and advance it; None if there is none."""
        return self._advance(self._open_newest_file(after))

    def _open_newest_file(self, after: int = -1) -> State | None:
        """Open the newest usable file with a version above `after`. Removes unusable files."""
        self._directory.remove_abandoned()
        for name in self._directory.list_files(self._index.generation, self._get_file_kind()):
            if name.version <= after:
                return None
            try:
                if name.version > self._index.get_version():
                    raise CacheBroken("its version is from another history, such as that before a restored backup")
                return self._open_file(name)
            except FileNotFoundError:
                continue
            except (CacheBroken, OSError) as error:
                _LOG.warning("removing the cache file %s: %s", name, error)
                self._directory.remove(name)
        return None

    def _verify_later(self, file: MappedFile) -> None:
        """Verify all checksums in the background; at once, and raise CacheBroken, if there is no background."""
        if self._background:
            self._unverified_file = file
        else:
            file.verify_checksums()

    def _maintain(self, state: State) -> None:
        """Start to verify the state's file, or else the work that the state needs."""
        file = state.file
        if file is None or file is not self._unverified_file:
            self._unverified_file = None  # else it would keep the disk space of a removed file
            self._start_maintenance(state)
        elif self._worker.start(lambda: self._verify_file(file)):
            self._unverified_file = None

    # ── building and merging ─────────────────────────────────────────────────────────────────────

    def _take_background_result(self, state: State | None) -> State | None:
        """Return the advanced result of the last background job if it is newer than `state`."""
        result, failure = self._worker.take_result()
        if failure is not None:
            self._record_failure(failure)
        if result is None:
            return state
        self._clear_failures()
        advanced = self._advance(result)
        if advanced is None or (state is not None and advanced.version < state.version):
            return state
        return advanced

    def _build_from_index(self) -> State | None:
        """Build from the index: a small one inline, a large one in the background (None until it is done)."""
        if not self._can_build():
            return None
        if self._background and self._get_build_size() > self._inline_build_limit:
            self._worker.start(self._build)
            return None
        return self._build_inline()

    def _build_inline(self) -> State | None:
        try:
            state = self._build()
        except Exception as error:
            self._record_failure(error)
            raise
        self._clear_failures()
        return self._advance_built(state)

    def _advance_built(self, state: State) -> State | None:
        """Advance a state that was just built; the index may have changed in the meantime."""
        return self._advance(state)

    def _run_merge(self, state: State, merge: Callable[[], State | None]) -> None:
        """Start a merge of the current state. Without a background thread, adopt its result at once."""
        self._worker.start(merge)
        if not self._background:
            self._state = self._take_background_result(state)

    def _can_build(self) -> bool:
        """Whether a build may be tried: after the delay, or if another version may not have what made it fail."""
        return self._clock() >= self._retry_at or self._failed_version != self._index.get_version()

    def _record_failure(self, error: Exception) -> None:
        """Record the error and double the delay before the next attempt."""
        self._failure, self._failed_version = error, self._index.get_version()
        self._failure_count += 1
        self._retry_at = self._clock() + min(MAX_RETRY_DELAY_S, _RETRY_DELAY_S * 2.0**self._failure_count)
        _LOG.warning("the %s could not be built: %s", self._label, error)

    def _clear_failures(self) -> None:
        self._failure, self._failure_count, self._retry_at = None, 0, 0.0

    # ── damage ───────────────────────────────────────────────────────────────────────────────────

    def _check_state(self, state: State | None) -> State | None:
        """Return the state unless its file is invalid or changed, or the index went back to an older version."""
        if state is None or state.version > self._index.get_version():
            return None
        if state.file is not None:
            try:
                state.file.ensure_unchanged()
            except CacheBroken as error:
                self._directory.invalidate(state.file, error)
                return None
        return state

    def _invalidate(self, state: State, error: Exception) -> None:
        """Stop using the state's file, if it has one, and remove it."""
        if state.file is not None:
            self._directory.invalidate(state.file, error)
        else:
            _LOG.warning("the %s is damaged in memory: %s", self._label, error)

    def _verify_file(self, file: MappedFile) -> None:
        """Verify all checksums of a file as a background job; a damaged file is only marked and removed."""
        with contextlib.suppress(CacheBroken):
            self._directory.verify(file)
