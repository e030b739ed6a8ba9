"""A copy of a large wiki's generation on this node, in the format of the file store.

A database takes too long to send the terms and the vectors of a large wiki for each search. The copy is a file of the
SQLite store, which is searched by that store's code. It is built in the background; until then the database answers. A
search takes over a few changes itself; many are taken over in the background, and the database answers meanwhile.
"""

import logging
import time
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock, Thread

from wikiholt.errors import Busy, IndexCorrupt, IndexMissing, IndexTooNew, StorageError, WikiholtError
from wikiholt.index.postgres.index import PostgresIndex
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.index.sqlite.vectors import CodesChoice, choose_quantized
from wikiholt.index.sqlite.wiki_directory import lock_file

_LOG = logging.getLogger(__name__)

COPY_MIN_PAGES = 500
"""The number of pages from which a node keeps a copy. Below, the database answers in a few milliseconds."""
COPY_MIN_CHUNKS = 10_000
"""The same, by chunks: the database compares a vector with all of them."""
_MAX_CHANGED_PAGES = 50
"""The number of changed pages that a search takes over itself, in a tenth of a second."""
_MAX_UPDATED_PAGES = 2_000
"""The number of changed pages above which the copy is built again."""
_FILE_PREFIX = "copy-"
_MAX_SEARCH_S = 600.0
"""No search in a replaced copy takes longer."""


class LocalCopy:
    """The copy of one generation. Safe to use from many threads; the processes of a node share the file."""

    def __init__(self, origin: PostgresIndex, directory: Path, choose_codes: CodesChoice = choose_quantized) -> None:
        """`choose_codes` as for `SqliteStore`."""
        self._origin = origin
        self._choose_codes = choose_codes
        self._file = directory / f"{_FILE_PREFIX}g{origin.generation:06d}.sqlite"
        self._opened: tuple[int, SqliteIndex] | None = None
        """The number of the file, which another process may replace, and its index."""
        self._retired: list[tuple[float, SqliteIndex]] = []
        """When indexes were replaced that searches may still use, and these indexes."""
        self._lock = Lock()
        self._update: Thread | None = None
        self._closed = False

    def get_current(self) -> SqliteIndex | None:
        """The copy at the version of the database; None while it is built or updated."""
        state = self._origin.get_state()
        with self._lock:
            try:
                index = self._open()
                if index is not None and (index.get_state() == state or self._take_over_changes()):
                    self._origin.release_keywords()
                    return self._open()
            except (IndexCorrupt, IndexTooNew) as error:
                _LOG.warning("%s: the copy of the index is built again: %s", self._origin.wiki_id, error)
                self._remove_files()
            except (StorageError, OSError) as error:
                _LOG.warning("%s: the copy of the index cannot be used: %s", self._origin.wiki_id, error)
                return None
            self._start_update()
        return None

    def refresh(self) -> None:
        """Bring the copy to the version of the database, or start to."""
        self.get_current()

    def verify(self) -> None:
        """Check every byte of the copy. A damaged one is built again."""
        with self._lock:
            opened = self._opened
        if opened is not None and (faults := opened[1].check()):
            _LOG.warning("%s: the copy of the index is damaged: %s", self._origin.wiki_id, faults[0])
            self._remove_files()

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until background work ends."""
        update = self._update
        if update is not None:
            update.join(timeout_s)
        return update is None or not update.is_alive()

    def close(self) -> None:
        self._closed = True
        self.wait_idle()
        with self._lock:
            self._retire()
            retired, self._retired = self._retired, []
        for _, index in retired:
            index.close()

    def _open(self) -> SqliteIndex | None:
        """The index of the file as it is now; None if there is none."""
        number = self._file.stat().st_ino if self._file.exists() else None
        if self._opened is not None and self._opened[0] != number:
            self._retire()
        if self._opened is None and number is not None:
            self._opened = number, self._open_file()
        return self._opened[1] if self._opened is not None else None

    def _open_file(self) -> SqliteIndex:
        return SqliteIndex(self._file, self._origin.wiki_id, choose_codes=self._choose_codes)

    def _retire(self) -> None:
        if self._opened is not None:
            while self._retired and time.monotonic() - self._retired[0][0] > _MAX_SEARCH_S:
                self._retired.pop(0)[1].close()
            self._retired.append((time.monotonic(), self._opened[1]))
            self._opened = None

    def _take_over_changes(self) -> bool:
        """Take over the changes of a few pages. Returns False if there are more, or another process is doing it."""
        with suppress(Busy), lock_file(self._lock_file, 0):
            return self._origin.update_index(self._file, _MAX_CHANGED_PAGES)
        return False

    def _start_update(self) -> None:
        if self._closed or (self._update is not None and self._update.is_alive()):
            return
        self._update = Thread(target=self._run_update, name="wikiholt-copy", daemon=True)
        self._update.start()

    def _run_update(self) -> None:
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with lock_file(self._lock_file, 0):
                if not self._file.exists() or not self._origin.update_index(self._file, _MAX_UPDATED_PAGES):
                    self._remove_files()
                    self._origin.write_index(self._file, lambda: self._closed)
                with closing(self._open_file()) as index:
                    index.update_codes()
        except (Busy, IndexMissing) as error:  # closed, built by another process, or another generation was published
            _LOG.debug("%s: the copy of the index is not built: %s", self._origin.wiki_id, error)
        except (WikiholtError, OSError) as error:
            _LOG.warning("%s: the index could not be copied: %s", self._origin.wiki_id, error)
            if isinstance(error, IndexCorrupt):
                self._remove_files()

    def _remove_files(self) -> None:
        """Remove the copies of all generations and what was built from them: only the published one is searched."""
        directory = self._file.parent
        for file in (*directory.glob(f"{_FILE_PREFIX}*"), *directory.glob("g*.keywords")):
            if file != self._lock_file:
                file.unlink(missing_ok=True)

    @property
    def _lock_file(self) -> Path:
        return self._file.with_name(f"{_FILE_PREFIX}lock")
