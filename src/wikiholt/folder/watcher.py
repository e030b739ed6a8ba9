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
from threading import Lock, Thread

from wikiholt.domain.wiki import Wiki

_LOG = logging.getLogger(__name__)

_QUIET_S = 0.3
"""A change is reported when nothing more has happened for this time."""
_MAX_DELAY_S = 2.0
"""A change is reported after this time, even if more happens all the time."""
_EVENT_HEADER = struct.Struct("iIII")
_READ_BYTES = 1 << 16
_CLOSE_WRITE, _ATTRIB, _MOVED, _CREATE, _DELETE = 0x8, 0x4, 0xC0, 0x100, 0x200
_ONLY_DIRECTORIES, _DO_NOT_FOLLOW, _EXCLUDE_UNLINKED = 0x01000000, 0x02000000, 0x04000000
_UNMOUNTED, _QUEUE_OVERFLOW, _IGNORED, _IS_DIRECTORY = 0x2000, 0x4000, 0x8000, 0x40000000
_MASK = _CLOSE_WRITE | _ATTRIB | _MOVED | _CREATE | _DELETE | _ONLY_DIRECTORIES | _DO_NOT_FOLLOW | _EXCLUDE_UNLINKED


class _WatchLimitReached(Exception):
    """The system has no more watches or inotify instances for this user."""


class DirectoryWatcher:
    """Reports changes in the directories of wikis. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._roots: dict[str, str] = {}
        """The watched directory of each watched wiki."""
        self._refused: dict[str, str] = {}
        """Wikis whose directory has more subdirectories than the system allows to watch."""
        self._watches: dict[int, set[tuple[str, str]]] = {}
        """The wikis of each watch, and the directory. Wikis with a common directory share a watch."""
        self._changed: dict[str, tuple[float, float]] = {}
        """For each wiki with events that were not reported: the times of the first and of the last one."""
        self._descriptor = -1
        self._wake = (-1, -1)
        self._thread: Thread | None = None

    def start(self, on_change: Callable[[str], None]) -> None:
        """Report changes by the id of their wiki from now on. Does nothing where there is no inotify."""
        if _INOTIFY is None:
            return
        self._descriptor = _INOTIFY.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            _LOG.warning("directories are polled: %s", os.strerror(ctypes.get_errno()))
            return
        self._wake = os.pipe()
        self._thread = Thread(target=self._run, args=(on_change,), name="directory-watcher", daemon=True)
        self._thread.start()

    def update(self, wikis: Sequence[Wiki]) -> None:
        """Watch the directories of these wikis and no others."""
        if self._thread is None:
            return
        wanted = {wiki.id: _get_root(wiki) for wiki in wikis if wiki.is_directory}
        with self._lock:
            for wiki_id in [known for known, root in self._roots.items() if wanted.get(known) != root]:
                self._remove(wiki_id)
                self._changed.pop(wiki_id, None)
            self._refused = {known: root for known, root in self._refused.items() if wanted.get(known) == root}
            new = {known: root for known, root in wanted.items() if known not in self._roots | self._refused}
        for wiki_id, root in new.items():
            self._add(wiki_id, root)

    def is_watching(self, wiki_id: str) -> bool:
        return wiki_id in self._roots

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            os.write(self._wake[1], b"x")
            thread.join()
            for descriptor in (self._descriptor, *self._wake):
                os.close(descriptor)
            self._roots.clear()

    def _add(self, wiki_id: str, root: str) -> None:
        try:
            self._watch_tree(wiki_id, root)
        except _WatchLimitReached:
            with self._lock:
                self._remove(wiki_id)
                self._refused[wiki_id] = root
            _LOG.warning("%s is polled: it has too many directories to watch (fs.inotify.max_user_watches)", root)
            return
        with self._lock:
            if any((wiki_id, root) in owners for owners in self._watches.values()):
                self._roots[wiki_id] = root
                now = time.monotonic()
                self._changed[wiki_id] = (now, now)  # something may have changed before it was watched

    def _watch_tree(self, wiki_id: str, top: str) -> None:
        """Watch a directory and those below it, without following links. Directories that vanish are skipped."""
        assert _INOTIFY is not None
        for path in _iter_directories(top):
            watch = _INOTIFY.inotify_add_watch(self._descriptor, os.fsencode(path), _MASK)
            if watch >= 0:
                with self._lock:
                    self._watches.setdefault(watch, set()).add((wiki_id, path))
            elif ctypes.get_errno() in (errno.ENOSPC, errno.ENOMEM):
                raise _WatchLimitReached

    def _remove(self, wiki_id: str) -> None:
        """Stop watching a wiki. Requires the lock."""
        assert _INOTIFY is not None
        self._roots.pop(wiki_id, None)
        for watch, owners in list(self._watches.items()):
            owners -= {owner for owner in owners if owner[0] == wiki_id}
            if not owners:
                del self._watches[watch]
                _INOTIFY.inotify_rm_watch(self._descriptor, watch)

    def _run(self, on_change: Callable[[str], None]) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._wake[0], select.POLLIN)
        while self._thread is not None:
            with self._lock:
                waiting = bool(self._changed)
            if any(descriptor == self._wake[0] for descriptor, _ in poll.poll(100 if waiting else 1000)):
                return
            self._read_events()
            for wiki_id in self._take_quiet():
                on_change(wiki_id)

    def _read_events(self) -> None:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        now = time.monotonic()
        for watch, mask, name in _parse_events(data):
            if mask & _QUEUE_OVERFLOW:
                with self._lock:
                    for wiki_id in list(self._roots):
                        self._remove(wiki_id)  # the next update watches all of it again
                continue
            self._handle_event(watch, mask, name, now)

    def _handle_event(self, watch: int, mask: int, name: str, now: float) -> None:
        with self._lock:
            is_gone = bool(mask & (_IGNORED | _UNMOUNTED))
            owners = self._watches.pop(watch, set()) if is_gone else set(self._watches.get(watch, ()))
            for wiki_id, directory in owners:
                if is_gone and self._roots.get(wiki_id) == directory:  # it may come back
                    self._remove(wiki_id)
                first, _ = self._changed.get(wiki_id, (now, now))
                self._changed[wiki_id] = (first, now)
        if mask & _IS_DIRECTORY and mask & (_CREATE | _MOVED) and not _is_skipped(name):
            for wiki_id, directory in owners:
                with suppress(_WatchLimitReached):
                    self._watch_tree(wiki_id, f"{directory}/{name}")

    def _take_quiet(self) -> list[str]:
        """The wikis to report now."""
        now = time.monotonic()
        with self._lock:
            due = [
                wiki_id
                for wiki_id, (first, last) in self._changed.items()
                if now - last >= _QUIET_S or now - first >= _MAX_DELAY_S
            ]
            for wiki_id in due:
                del self._changed[wiki_id]
        return due


def _get_root(wiki: Wiki) -> str:
    return os.path.normpath(f"{wiki.source}/{wiki.settings.get('subdirectory', '')}")


def _iter_directories(top: str) -> Iterator[str]:
    pending = [top]
    while pending:
        path = pending.pop()
        yield path
        with suppress(OSError), os.scandir(path) as entries:
            pending += [
                entry.path for entry in entries if not _is_skipped(entry.name) and entry.is_dir(follow_symlinks=False)
            ]


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name == "node_modules"


def _parse_events(data: bytes) -> Iterator[tuple[int, int, str]]:
    """The watch, mask and file name of each event."""
    position = 0
    while position < len(data):
        watch, mask, _, length = _EVENT_HEADER.unpack_from(data, position)
        position += _EVENT_HEADER.size
        yield watch, mask, os.fsdecode(data[position : position + length].rstrip(b"\0"))
        position += length


def _load_inotify() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "inotify_init1") else None


_INOTIFY = _load_inotify()
