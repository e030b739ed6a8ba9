"""Makes the mirror of a directory equal to the files on disk.

A scan reads only files whose stamp has changed. What it cannot take into the mirror is committed as a placeholder,
which becomes a problem of that file alone: files that cannot be read or are too large, and directories that cannot be
listed.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from wikiholt.directory.directory_files import (
    FileStamp,
    find_directory_stamps,
    find_stamp,
    is_ignored,
    iter_below,
    list_files,
    list_ignored_files,
    read_file,
    read_link,
    wait_until_quiet,
)
from wikiholt.directory.snapshot import SNAPSHOT_AUTHOR, FileRow, FileTable, SnapshotWriter, load_table
from wikiholt.domain.git import Author, EntryKind
from wikiholt.domain.protocols import never_stop
from wikiholt.errors import Busy, NoPages, NotWritable, StorageError
from wikiholt.git.mirror import (
    combine_packs,
    is_usable,
    make_bare_runner,
    mark_suspect,
    read_mirror_tip,
    remove_stale_files,
)
from wikiholt.git.objects import hash_object
from wikiholt.git.tree_editor import FILE_MODE
from wikiholt.git.worktree import open_parent

_MESSAGE = "Files changed on disk"
_LINK_MODE = "120000"
PLACEHOLDER_MODE = "160000"
"""The mode of an entry whose content is not in the mirror. Git does not look for the object of such an entry."""
_PLACEHOLDER_PREFIX = "0" * 16 + "1"
_SIZE_DIGITS = 12
_UNREADABLE_SIZE = "f" * _SIZE_DIGITS
SHA1_SAMPLE = "0" * 40
_LEFTOVER_AGE_S = 3600.0
_READ_ROUNDS = 3
"""How often a scan tries to read a file that is being modified, before it leaves it to the next scan."""
_MIN_SETTLED_AGE_S = 2.5
"""A file that was modified less than this before it was read may change again without changing its times, because some
file systems store them in steps of two seconds. It is read again by the next scan."""


def make_placeholder(path: str, size: int | None) -> str:
    """The id of a placeholder for a file of this size; None if the size is unknown because it cannot be read."""
    digits = _UNREADABLE_SIZE if size is None else f"{size:0{_SIZE_DIGITS}x}"
    rest = 40 - len(_PLACEHOLDER_PREFIX) - _SIZE_DIGITS
    return _PLACEHOLDER_PREFIX + digits + blake2b(os.fsencode(path)).hexdigest()[:rest]


def parse_placeholder(blob: str) -> int | None:
    """The size of the file behind a placeholder, -1 if it could not be read; None if it is no placeholder."""
    if not blob.startswith(_PLACEHOLDER_PREFIX) or len(blob) != len(SHA1_SAMPLE):
        return None
    digits = blob[len(_PLACEHOLDER_PREFIX) :][:_SIZE_DIGITS]
    return -1 if digits == _UNREADABLE_SIZE else int(digits, 16)


@dataclass(frozen=True, slots=True)
class DirectoryMirror:
    """The directory `root` and its mirror. Writing requires the mirror's lock."""

    root: Path
    mirror: Path
    is_page: Callable[[str], bool]
    is_pruned: Callable[[str], bool]
    max_bytes: int
    """Larger files are not read."""
    timeout_s: float

    def refresh(self, stop: Callable[[], bool] = never_stop) -> bool:
        """Scan the directory and commit what has changed; return whether anything has. Raises Busy after `stop`.

        Raises NoPages, and keeps the snapshot, if there is no page any more: the disk may not be mounted.
        """
        ignored = list_ignored_files(self.root, self.timeout_s)
        listing = list_files(
            self.root,
            lambda path: self.is_page(path) and path not in ignored,
            lambda path: self.is_pruned(path) or path in ignored or f"{path}/" in ignored,
        )
        table = self._open()
        self._remove_leftovers(listing.temporary)
        rows = {
            path: row
            for path, row in table.rows.items()
            if (entry := listing.entries.get(path)) and entry[1] == row.stamp
        }
        rows |= {path: table.rows[path] for path in iter_below(table.rows, listing.unreadable)}
        rows |= {_name_unreadable(path, table): _make_unreadable(path) for path in listing.unreadable}
        with closing(SnapshotWriter(make_bare_runner(self.mirror, self.timeout_s))) as writer:
            changed = {path: entry for path, entry in listing.entries.items() if path not in rows}
            missing = [path for path in table.rows if path not in rows and path not in changed]
            changed |= self._find_reappeared(path for path in missing if not is_ignored(path, ignored))
            for _ in range(_READ_ROUNDS):
                wait_until_quiet((stamp for _, stamp in changed.values()), stop)
                changed = self._read_changed(changed, table.rows, rows, writer, stop)
                if not changed:
                    break
            # Files that are still being modified: the previous version stays until the next scan.
            rows |= {path: table.rows[path] for path in changed if path in table.rows}
            if table.rows and not rows:
                raise NoPages(
                    f"There is no page in {self.root} any more.",
                    hint="Check that its disk is mounted. The index is kept; `wikiholt remove` deletes it.",
                )
            return self._commit(writer, table, rows, SNAPSHOT_AUTHOR, _MESSAGE)

    def refresh_files(
        self, paths: Iterable[str], author: Author = SNAPSHOT_AUTHOR, message: str = _MESSAGE, *, wait: bool = False
    ) -> bool:
        """Commit the current content of these files. With `wait`, somebody else may just be writing them."""
        table = self._open()
        stamps = {path: find_stamp(self.root, path) for path in paths}
        rows = {path: row for path, row in table.rows.items() if path not in stamps}
        changed = {path: (EntryKind.FILE, stamp) for path, stamp in stamps.items() if stamp is not None}
        with closing(SnapshotWriter(make_bare_runner(self.mirror, self.timeout_s))) as writer:
            if wait:
                wait_until_quiet((stamp for _, stamp in changed.values()), never_stop)
            unsettled = self._read_changed(changed, table.rows, rows, writer, never_stop)
            rows |= {path: table.rows[path] for path in unsettled if path in table.rows}
            return self._commit(writer, table, rows, author, message)

    def prepare(self) -> None:
        """Create the mirror if there is none or it is damaged."""
        if not is_usable(self.mirror, self.timeout_s):
            self._create()
        remove_stale_files(self.mirror)

    def _open(self) -> FileTable:
        """The table of the mirror's tip."""
        self.prepare()
        tip, table = read_mirror_tip(self.mirror, self.timeout_s), load_table(self.mirror)
        if tip is None and table.head is not None:  # the last commit is damaged
            self._create()
            table = FileTable()
        return table if table.head == tip else FileTable(tip, self._read_rows(tip, table.rows) if tip else {})

    def _find_reappeared(self, paths: Iterable[str]) -> dict[str, tuple[EntryKind, FileStamp]]:
        """Those of the missing files that are there a moment later: programs may replace a file in several steps."""
        missing = list(paths)
        wait_until_quiet(find_directory_stamps(self.root, missing), never_stop)
        stamps = {path: find_stamp(self.root, path) for path in missing if self.is_page(path)}
        return {path: (EntryKind.FILE, stamp) for path, stamp in stamps.items() if stamp is not None}

    def _remove_leftovers(self, paths: Iterable[str]) -> None:
        """Remove temporary files of writers that were killed, once no writer can be using them."""
        for path in paths:
            stamp = find_stamp(self.root, path)
            if stamp is not None and time.time_ns() - stamp.ctime_ns > _LEFTOVER_AGE_S * 1e9:
                with suppress(OSError, NotWritable), open_parent(self.root, path) as (directory, name):
                    os.unlink(name, dir_fd=directory)

    def _create(self) -> None:
        temporary = self.mirror.with_name("mirror.new")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(mode=0o700)
        result = make_bare_runner(temporary, self.timeout_s).run(
            "init", "--quiet", "--bare", "--template=", "--object-format=sha1", "--initial-branch=mirror"
        )
        if result.status != 0:
            raise result.to_error("create a mirror of the directory")
        shutil.rmtree(self.mirror, ignore_errors=True)
        temporary.rename(self.mirror)

    def _read_rows(self, tip: str, known: Mapping[str, FileRow]) -> dict[str, FileRow]:
        """The files at the tip, after the table was lost or a process was killed before it saved the table."""
        result = make_bare_runner(self.mirror, self.timeout_s).run("ls-tree", "-r", "-z", "--full-tree", tip)
        if result.status != 0:
            mark_suspect(self.mirror)
            raise result.to_error("list the files of the last snapshot")
        rows = {}
        for record in result.stdout.split(b"\0")[:-1]:
            description, _, raw = record.partition(b"\t")
            mode, _, blob = description.decode().split(" ")
            path = os.fsdecode(raw)
            row = known.get(path)
            rows[path] = row if row is not None and row.blob == blob else FileRow(mode, blob, 0)
        return rows

    def _read_changed(
        self,
        changed: Mapping[str, tuple[EntryKind, FileStamp]],
        old_rows: Mapping[str, FileRow],
        rows: dict[str, FileRow],
        writer: SnapshotWriter,
        stop: Callable[[], bool],
    ) -> dict[str, tuple[EntryKind, FileStamp]]:
        """Read the files and add their rows. Returns those that changed meanwhile, with their new stamps."""
        unsettled = {}
        for path, (kind, stamp) in changed.items():
            if stop():
                raise Busy("The scan of the directory was stopped.", hint="The next sync starts it again.")
            row = self._read_entry(path, kind, stamp, old_rows.get(path), writer)
            if row is not None:
                rows[path] = row
            elif (new_stamp := find_stamp(self.root, path)) is not None:
                unsettled[path] = (EntryKind.FILE, new_stamp)
        return unsettled

    def _read_entry(
        self, path: str, kind: EntryKind, stamp: FileStamp, old: FileRow | None, writer: SnapshotWriter
    ) -> FileRow | None:
        """The row of a file, whose content is written if it is new; None if the file changed meanwhile."""
        if kind is EntryKind.FILE and stamp.size > self.max_bytes:
            return FileRow(PLACEHOLDER_MODE, make_placeholder(path, stamp.size), stamp.mtime_ns)
        try:
            data = read_link(self.root, path) if kind is EntryKind.SYMLINK else read_file(self.root, path, stamp)
        except OSError:
            return _make_unreadable(path)
        if data is None:
            return None
        mode, blob = _LINK_MODE if kind is EntryKind.SYMLINK else FILE_MODE, hash_object(data, SHA1_SAMPLE)
        is_same = old is not None and (old.mode, old.blob) == (mode, blob)
        if not is_same:
            writer.add_blob(blob, data)
        changed_ns = old.changed_ns if old is not None and is_same and old.changed_ns else stamp.mtime_ns
        age_s = (time.time_ns() - stamp.mtime_ns) / 1e9
        is_settled = not 0 <= age_s < _MIN_SETTLED_AGE_S
        return FileRow(mode, blob, changed_ns, stamp) if is_settled else FileRow(mode, blob, changed_ns)

    def _commit(
        self, writer: SnapshotWriter, table: FileTable, rows: dict[str, FileRow], author: Author, message: str
    ) -> bool:
        """Commit the difference between two sets of rows, and save the table; return whether there is one."""
        changes: dict[str, FileRow | None] = {path: None for path in table.rows if path not in rows}
        for path, row in rows.items():
            old = table.rows.get(path)
            if old is None or (old.mode, old.blob) != (row.mode, row.blob):
                changes[path] = row
        head = table.head
        if changes:
            try:
                writer.commit(changes, head, author, message)
            except StorageError:
                mark_suspect(self.mirror)
                raise
            head = read_mirror_tip(self.mirror, self.timeout_s)
            combine_packs(self.mirror, self.timeout_s)
        if changes or rows != table.rows:
            FileTable(head, rows).save(self.mirror)
        return bool(changes)


def _name_unreadable(path: str, table: FileTable) -> str:
    """The path of the placeholder for a directory that cannot be listed, beside the files that are known in it."""
    return f"{path}/*" if any(iter_below(table.rows, {path: ""})) else path


def _make_unreadable(path: str) -> FileRow:
    return FileRow(PLACEHOLDER_MODE, make_placeholder(path, None), 0)
