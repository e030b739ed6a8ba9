"""Watches the directories of wikis with inotify, so that a change is noticed at once. Other platforms only poll.

Events only say that something happened; the scan finds out what. Scheduled scans continue, so a missed event (a network
file system, a full queue) delays a change and never loses it.
"""

import ctypes
import errno
import logging
import os
import select
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread

from wikiholt.domain.wiki import Wiki

_LOG = logging.getLogger(__name__)

_QUIET_S = 0.3
"""A change is reported when nothing more has happened for this time."""
_MAX_DELAY_S = 2.0
"""A change is reported after this time, even if more happens all the time."""
_POLL_S, _IDLE_POLL_S = 0.1, 1.0
_EVENT_HEADER = struct.Struct("iIII")
_READ_BYTES = 1 << 16
_CLOSE_WRITE, _ATTRIB, _MOVED, _CREATE, _DELETE = 0x8, 0x4, 0xC0, 0x100, 0x200
_ONLY_DIRECTORIES, _DO_NOT_FOLLOW, _EXCLUDE_UNLINKED = 0x01000000, 0x02000000, 0x04000000
_QUEUE_OVERFLOW, _IGNORED, _IS_DIRECTORY = 0x4000, 0x8000, 0x40000000
_MASK = _CLOSE_WRITE | _ATTRIB | _MOVED | _CREATE | _DELETE | _ONLY_DIRECTORIES | _DO_NOT_FOLLOW | _EXCLUDE_UNLINKED


@dataclass(slots=True)
class _WatchedDirectory:
    """The directory of one wiki, with an inotify instance for all directories below it."""

    path: str
    descriptor: int
    """Negative if the system does not allow to watch it."""
    watch: int = -1
    changed_at: tuple[float, float] | None = (0.0, 0.0)
    """When the first and the last event happened that were not reported. It may have changed before it was watched."""

    def is_due(self, now: float) -> bool:
        if self.changed_at is None:
            return False
        return now - self.changed_at[1] >= _QUIET_S or now - self.changed_at[0] >= _MAX_DELAY_S

    def watch_tree(self) -> bool:
        """Watch the directories that are not watched yet, without following links. False if there are too many."""
        assert _INOTIFY is not None
        for path in _iter_directories(self.path):
            watch = _INOTIFY.inotify_add_watch(self.descriptor, os.fsencode(path), _MASK)
            if watch < 0 and ctypes.get_errno() in (errno.ENOSPC, errno.ENOMEM):
                return False
            self.watch = watch if path == self.path else self.watch
        return True

    def read_events(self, now: float) -> bool:
        """Note what has happened; False if the directory is gone."""
        try:
            events = list(_parse_events(os.read(self.descriptor, _READ_BYTES)))
        except BlockingIOError:
            return True
        self.changed_at = (self.changed_at[0] if self.changed_at else now, now)
        if any(mask & _QUEUE_OVERFLOW or (mask & _IS_DIRECTORY and mask & (_CREATE | _MOVED)) for _, mask in events):
            self.watch_tree()
        return not any(watch == self.watch and mask & _IGNORED for watch, mask in events)


class DirectoryWatcher:
    """Reports changes in the directories of wikis. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._directories: dict[str, _WatchedDirectory] = {}
        self._thread: Thread | None = None

    def start(self, on_change: Callable[[str], None]) -> None:
        """Report changes by the id of their wiki from now on. Does nothing where there is no inotify."""
        if _INOTIFY is not None:
            self._poll, self._wake = select.epoll(), os.eventfd(0)
            self._poll.register(self._wake, select.EPOLLIN)
            self._thread = Thread(target=self._run, args=(on_change,), name="directory-watcher", daemon=True)
            self._thread.start()

    def update(self, wikis: Sequence[Wiki]) -> None:
        """Watch the directories of these wikis and no others."""
        if self._thread is None:
            return
        wanted = {wiki.id: _get_root(wiki) for wiki in wikis if wiki.is_directory}
        with self._lock:
            for wiki_id in [known for known, watched in self._directories.items() if wanted.get(known) != watched.path]:
                self._remove(wiki_id)
            for wiki_id in wanted.keys() - self._directories.keys():
                self._add(wiki_id, wanted[wiki_id])

    def is_watching(self, wiki_id: str) -> bool:
        watched = self._directories.get(wiki_id)
        return watched is not None and watched.descriptor >= 0

    def close(self) -> None:
        """Stop watching."""
        thread, self._thread = self._thread, None
        if thread is not None:
            os.eventfd_write(self._wake, 1)
            thread.join()
            for wiki_id in list(self._directories):
                self._remove(wiki_id)
            self._poll.close()
            os.close(self._wake)

    def _add(self, wiki_id: str, path: str) -> None:
        assert _INOTIFY is not None
        watched = _WatchedDirectory(path, _INOTIFY.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        is_allowed = watched.descriptor >= 0 and watched.watch_tree()
        if is_allowed and watched.watch >= 0:
            self._directories[wiki_id] = watched
            self._poll.register(watched.descriptor, select.EPOLLIN)
            return
        if watched.descriptor >= 0:
            os.close(watched.descriptor)
        if not is_allowed:  # else it does not exist now
            self._directories[wiki_id] = _WatchedDirectory(path, -1, changed_at=None)
            _LOG.warning("%s is polled: it has too many directories to watch (fs.inotify.max_user_watches)", path)

    def _remove(self, wiki_id: str) -> None:
        watched = self._directories.pop(wiki_id)
        if watched.descriptor >= 0:
            os.close(watched.descriptor)

    def _run(self, on_change: Callable[[str], None]) -> None:
        while self._thread is not None:
            self._poll.poll(
                _POLL_S if any(each.changed_at for each in list(self._directories.values())) else _IDLE_POLL_S
            )
            now, due = time.monotonic(), []
            with self._lock:
                for wiki_id, watched in list(self._directories.items()):
                    if watched.descriptor >= 0 and not watched.read_events(now):
                        self._remove(wiki_id)  # the next update watches it again if it is back
                        due.append(wiki_id)
                    elif watched.is_due(now):
                        watched.changed_at = None
                        due.append(wiki_id)
            for wiki_id in due:
                on_change(wiki_id)


def _get_root(wiki: Wiki) -> str:
    return os.path.normpath(f"{wiki.source}/{wiki.settings.get('subdirectory', '')}")


def _iter_directories(top: str) -> Iterator[str]:
    """A directory and those below it, without hidden ones and those of installed packages."""
    pending = [top]
    while pending:
        path = pending.pop()
        yield path
        with suppress(OSError), os.scandir(path) as entries:
            names = (entry for entry in entries if not entry.name.startswith(".") and entry.name != "node_modules")
            pending += [entry.path for entry in names if entry.is_dir(follow_symlinks=False)]


def _parse_events(data: bytes) -> Iterator[tuple[int, int]]:
    """The watch and the mask of each event."""
    position = 0
    while position < len(data):
        watch, mask, _, name_bytes = _EVENT_HEADER.unpack_from(data, position)
        position += _EVENT_HEADER.size + name_bytes
        yield watch, mask


def _load_inotify() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "inotify_init1") else None


_INOTIFY = _load_inotify()
