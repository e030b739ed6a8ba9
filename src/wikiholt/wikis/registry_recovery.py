"""Detects that a registry was lost, from the data beside it.

A lost registry must not be silently replaced by an empty one: an empty registry never had a key, and without keys wikis
are open on the local machine.
"""

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wikiholt.errors import IndexCorrupt
from wikiholt.wikis.registry_schema import RECOVERY_HINT
from wikiholt.wikis.revoked_list import RevokedEntry

_WIKI_ID = re.compile(r"[a-z0-9]{8,64}")
_LABEL_WITH_WIKIS, _LABEL_WITH_KEYS = re.compile(r"w[1-9]"), re.compile(r"-k[1-9]")
"""Labels of registry backups that contain wikis, and keys."""


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

    def find(self, revoked: Collection[RevokedEntry]) -> str:
        """A short description of the data of wikis that were not removed; empty if there is none."""
        if self.owner and self.owner.exists():
            return ""
        if _has_wikis(self.indexes, revoked):
            return "indexes of wikis"
        return "backups of wikis" if _has_wikis(self.backups, revoked) else self.others()

    def has_backup_with_wikis(self) -> bool:
        """Whether a backup of the registry contains wikis or keys; damaged backups count too."""
        return self._has_backup(_LABEL_WITH_WIKIS) or self.had_keys()

    def had_keys(self) -> bool:
        """Whether a backup of the registry contains keys, according to its label; damaged backups count too."""
        return self._has_backup(_LABEL_WITH_KEYS)

    def _has_backup(self, pattern: re.Pattern[str]) -> bool:
        from wikiholt.index.backup_directory import BackupDirectory  # noqa: PLC0415 - rarely needed

        if self.owner and self.owner.exists():
            return False
        backups = BackupDirectory(self.backups / "registry").list_files()
        return any(pattern.search(backup.label) for backup in backups)


def _has_wikis(directory: Path, revoked: Collection[RevokedEntry]) -> bool:
    """Whether the directory has non-empty subdirectories named by other ids. Raises OSError if it is unreadable."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return any(
            _WIKI_ID.fullmatch(entry.name)
            and entry.name != "registry"
            and RevokedEntry.of_wiki(entry.name) not in revoked
            and any(entry.iterdir())
            for entry in directory.iterdir()
            if entry.is_dir()
        )
    return False


def make_lost_registry_error(where: str, remains: str) -> IndexCorrupt:
    """The error if there is no registry, or an empty one, with data of another."""
    return IndexCorrupt(f"{where} is missing or lists no wiki, but there are {remains}.", hint=RECOVERY_HINT)


def make_outdated_registry_error(where: str) -> IndexCorrupt:
    """The error for a registry from before the first key."""
    return IndexCorrupt(
        f"{where} never had a key, but its backups have: an older copy has replaced it.", hint=RECOVERY_HINT
    )
