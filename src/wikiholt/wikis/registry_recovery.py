"""Detects that a registry was lost or replaced by an older copy, from the data beside it.

A lost registry must not be silently replaced by an empty one: an empty registry never had a key, and without keys wikis
are open on the local machine.
"""

import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from wikiholt.errors import IndexCorrupt
from wikiholt.regular_files import fsync_path, write_atomically
from wikiholt.wikis import registry_schema

EMPTY_CHECKSUM = registry_schema.compute_checksum({table: [] for table in registry_schema.TABLE_COLUMNS})
"""The checksum of a registry without rows."""
RECOVERY_HINT = (
    f"{registry_schema.RESTORE_HINT} Without a backup, `wikiholt restore --registry --empty` starts a new one, closed"
    " to all."
)
_CHECKSUM = re.compile(r"[0-9a-f]{32}")
_WIKI_ID = re.compile(r"[a-z0-9]{8,64}")
_LABEL_WITH_WIKIS, _LABEL_WITH_KEYS = re.compile(r"w[1-9]"), re.compile(r"-k[1-9]")
"""Labels of registry backups that contain wikis, and keys."""

_OLD_DRAFT_S = 600.0
"""A younger draft may still be in use by another process."""


def make_draft_path(registry: Path) -> Path:
    """The temporary name of a file that will replace the registry or its checksum file."""
    return registry.with_name(f".{registry.name}.{os.urandom(8).hex()}")


def remove_old_drafts(registry: Path) -> None:
    """Remove the drafts of killed processes. They contain what the registry contained."""
    with suppress(OSError):
        for draft in registry.parent.glob(f".{registry.name}.*"):
            if time.time() - draft.stat().st_mtime > _OLD_DRAFT_S:
                draft.unlink(missing_ok=True)


class ChecksumFile:
    """A file beside the registry with its valid checksums: one, or two while a write is being committed."""

    def __init__(self, registry: Path) -> None:
        self._registry = registry
        self._file = registry.with_name(f"{registry.name}-seal")

    def read(self) -> frozenset[str]:
        """The checksums; empty if the file is missing or damaged."""
        try:
            *checksums, own_checksum = self._file.read_bytes().decode().split()
        except (OSError, ValueError):
            return frozenset()
        is_valid = own_checksum == _hash_checksums(checksums) and all(map(_CHECKSUM.fullmatch, checksums))
        return frozenset(checksums) if is_valid else frozenset()

    def write(self, *checksums: str) -> None:
        """Replace the file atomically and durably. Raises OSError."""
        draft = make_draft_path(self._registry)
        lines = (*checksums, _hash_checksums(checksums))
        write_atomically(self._file, draft, "".join(f"{line}\n" for line in lines).encode(), 0o600)
        fsync_path(self._file.parent)


def _hash_checksums(checksums: Sequence[str]) -> str:
    return blake2b(" ".join(checksums).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class LeftoverData:
    """Finds the data of a lost registry: indexes and backups of wikis, and backups of the registry."""

    indexes: Path
    backups: Path
    """The directory of all backups; those of the registry are in its subdirectory `registry`."""
    others: Callable[[], str] = str
    """Describes leftover data in other places; returns "" if there is none."""
    owner: Path | None = None
    """The file of another registry here; while it exists, all of this data belongs to it."""

    def find(self) -> str:
        """A short description of the leftover data; empty if there is none."""
        if self.owner and self.owner.exists():
            return ""
        if self._has_backup(_LABEL_WITH_WIKIS, _LABEL_WITH_KEYS):
            return "backups of the registry"
        if _has_wikis(self.indexes):
            return "indexes of wikis"
        return "backups of wikis" if _has_wikis(self.backups) else self.others()

    def had_keys(self) -> bool:
        """Whether a backup of the registry contains keys, according to its label; damaged backups count too."""
        return not (self.owner and self.owner.exists()) and self._has_backup(_LABEL_WITH_KEYS)

    def _has_backup(self, *patterns: re.Pattern[str]) -> bool:
        from wikiholt.indexing.backup_directory import BackupDirectory  # noqa: PLC0415 - rarely needed

        backups = BackupDirectory(self.backups / "registry").list_files()
        return any(pattern.search(backup.label) for backup in backups for pattern in patterns)


def _has_wikis(directory: Path) -> bool:
    """Whether the directory has non-empty subdirectories named by wiki ids. Raises OSError if it is unreadable."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return any(
            _WIKI_ID.fullmatch(entry.name) and entry.name != "registry" and any(entry.iterdir())
            for entry in directory.iterdir()
            if entry.is_dir()
        )
    return False


def make_lost_registry_error(where: str, remains: str) -> IndexCorrupt:
    return IndexCorrupt(f"{where} is missing or lists no wiki, but there are {remains}.", hint=RECOVERY_HINT)


def make_outdated_registry_error(where: str) -> IndexCorrupt:
    return IndexCorrupt(
        f"{where} is not the one that was last written here: an older copy has replaced it, or its log was lost.",
        hint=RECOVERY_HINT,
    )
