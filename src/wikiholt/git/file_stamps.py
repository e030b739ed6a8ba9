"""Stamps of files and directories: inode, size and times, by which a later change is noticed.

A file system may have coarse timestamps, and an inode is used again. So a stamp is trusted only if everything in it was
at rest for a while before: a second change at the same time cannot hide behind the first.
"""

import os
import stat
import struct
from collections.abc import Iterable

TIMESTAMP_GRANULARITY_NS = 2_000_000_000
"""FAT has the coarsest timestamps: two seconds."""
_STAMP = struct.Struct("=QQqq")


def compute_stamp(paths: Iterable[str]) -> bytes:
    """The stamps of these paths, without following links; zeros for what does not exist."""
    parts = []
    for path in paths:
        try:
            status = os.lstat(path)
        except OSError:
            parts.append(bytes(_STAMP.size))
        else:
            parts.append(_STAMP.pack(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return b"".join(parts)


def take_stamp(paths: Iterable[str], now_ns: int) -> bytes | None:
    """The stamps of these paths; None if one is a link, or was modified less than two seconds before `now_ns`."""
    paths = list(paths)
    stamp = compute_stamp(paths)
    rested = all(
        max(modified_ns, changed_ns) < now_ns - TIMESTAMP_GRANULARITY_NS
        for _, _, modified_ns, changed_ns in _STAMP.iter_unpack(stamp)
    )
    return stamp if rested and not any(map(_is_link, paths)) else None


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False
