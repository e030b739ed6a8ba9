"""Brings the table of a directory's files to the state on disk. A scan reads only files whose stamp has changed.

What cannot be read is a row too, which becomes a problem of that file alone: files that cannot be read or are too
large, and directories that cannot be listed.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wikiholt.domain.git import EntryKind
from wikiholt.domain.protocols import never_stop
from wikiholt.errors import Busy, NoPages, NotWritable
from wikiholt.folder.file_table import FileRow, FileTable
from wikiholt.folder.files_on_disk import (
    TEMPORARY_PREFIX,
    FileStamp,
    find_stamp,
    hash_content,
    leads_to_directory,
    list_files,
    list_ignored_files,
    make_unread_id,
    read_file,
    wait_quiet_time,
)
from wikiholt.git.objects import PageFiles
from wikiholt.git.worktree import open_parent

_LISTINGS = 3
"""How often a scan waits for files that are being modified, before it leaves them to the next scan."""
_LEFTOVER_AGE_S = 3600.0
_MIN_SETTLED_AGE_S = 2.5
"""A file that was modified less than this before it was read may change again without changing its times, because some
file systems store them in steps of two seconds. It is read again by the next scan."""


@dataclass(frozen=True, slots=True)
class DirectoryScanner:
    """The directory `root` and the table of its files. Scans require the lock of the directory."""

    root: Path
    table: FileTable
    files: PageFiles
    has_exceptions: bool
    """Whether a file in an ignored directory may be a page, because a pattern includes it again."""
    max_bytes: int
    """Larger files are not read."""
    timeout_s: float

    def scan(self, stop: Callable[[], bool] = never_stop) -> bool:
        """Read what has changed; return whether the revision is a new one. Raises Busy after `stop`.

        Raises NoPages, and keeps the table, if there is no page any more: the disk may not be mounted.
        """
        saved, last_missing = self.table.read_rows(), None
        old = saved or {}
        for _ in range(_LISTINGS):
            entries, unreadable = self._list_pages()
            known = {path for path in old if path.startswith(tuple(f"{directory}/" for directory in unreadable))}
            changed = {path for path, (_, stamp) in entries.items() if path not in old or old[path].stamp != str(stamp)}
            missing = old.keys() - entries.keys() - known - unreadable
            # Programs may replace a file in several steps, so a file is gone if it is missing twice.
            if all(entries[path][1].is_quiet() for path in changed) and missing in (set(), last_missing):
                break
            last_missing = missing
            wait_quiet_time(stop)
        rows = {path: old[path] for path in known | (entries.keys() & old.keys())}
        for directory in unreadable:
            name = f"{directory}/*" if any(path.startswith(f"{directory}/") for path in known) else directory
            rows[name] = FileRow(EntryKind.FILE, make_unread_id(-1), 0)
        rows |= self._read_files({path: entries[path] for path in changed if entries[path][1].is_quiet()}, old, stop)
        if old and not rows:
            raise NoPages(
                f"There is no page in {self.root} any more.",
                hint="Check that its disk is mounted. The index is kept; `wikiholt remove` deletes it.",
            )
        return self.table.save(rows, saved)

    def rescan(self, paths: Iterable[str], *, wait: bool = False) -> None:
        """Read these files. With `wait`, somebody else may just be writing them."""
        if wait:
            wait_quiet_time(never_stop)
        saved, stamps = self.table.read_rows(), {path: find_stamp(self.root, path) for path in paths}
        old = saved or {}
        entries = {path: (EntryKind.FILE, stamp) for path, stamp in stamps.items() if stamp is not None}
        kept = {path: row for path, row in old.items() if stamps.get(path, True)}
        self.table.save(kept | self._read_files(entries, old, never_stop), saved)

    def _list_pages(self) -> tuple[dict[str, tuple[EntryKind, FileStamp]], set[str]]:
        """The pages, and the links that have a page's name or lead to a directory; and what cannot be listed."""
        ignored = list_ignored_files(self.root, self.timeout_s)

        def is_left_out(path: str) -> bool:
            is_ignored = not self.has_exceptions and self.files.is_ignored(f"{path}/")
            return is_ignored or path in ignored or f"{path}/" in ignored

        listing, pages = list_files(self.root, is_left_out), {}
        for path, entry in listing.entries.items():
            if entry.name.startswith(TEMPORARY_PREFIX):
                self._remove_leftover(path)
            is_link = entry.is_symlink()
            is_page = self.files.is_page(path) and path not in ignored and (is_link or entry.is_file())
            if is_page or (is_link and not is_left_out(path) and leads_to_directory(entry)):
                try:
                    stamp = FileStamp.from_status(entry.stat(follow_symlinks=False))
                    pages[path] = (EntryKind.SYMLINK if is_link else EntryKind.FILE, stamp)
                except FileNotFoundError:
                    continue  # removed meanwhile
                except OSError:
                    listing.unreadable.add(path)
        return pages, listing.unreadable

    def _remove_leftover(self, path: str) -> None:
        """Remove the temporary file of a writer that was killed, once no writer can be using it."""
        stamp = find_stamp(self.root, path)
        if stamp is not None and time.time_ns() - stamp.ctime_ns > _LEFTOVER_AGE_S * 1e9:
            with suppress(OSError, NotWritable), open_parent(self.root, path) as (directory, name):
                os.unlink(name, dir_fd=directory)

    def _read_files(
        self, entries: Mapping[str, tuple[EntryKind, FileStamp]], old: Mapping[str, FileRow], stop: Callable[[], bool]
    ) -> dict[str, FileRow]:
        """The rows of these files. Those that change meanwhile are left out."""
        rows: dict[str, FileRow] = {}
        for path, (kind, stamp) in entries.items():
            if stop():
                raise Busy("The scan of the directory was stopped.", hint="The next sync starts it again.")
            if kind is EntryKind.FILE and stamp.size > self.max_bytes:
                rows[path] = FileRow(kind, make_unread_id(stamp.size), stamp.mtime_ns)
                continue
            try:
                data = b"" if kind is EntryKind.SYMLINK else read_file(self.root, path, stamp)
            except OSError:
                rows[path] = FileRow(kind, make_unread_id(-1), 0)
                continue
            if data is None:
                continue
            known, blob = old.get(path), hash_content(data)
            row = known if known and known[:2] == (kind, blob) else FileRow(kind, blob, stamp.mtime_ns)
            is_settled = not 0 <= time.time_ns() - stamp.mtime_ns < _MIN_SETTLED_AGE_S * 1e9
            rows[path] = row._replace(stamp=str(stamp) if is_settled else "")
        return rows
