"""Detects that a registry was lost or replaced by an older copy, by what lies beside it.

A registry that is lost must not be replaced by an empty one without notice: in an empty registry no key was ever made,
and then wikis are open on this machine.
"""

import os
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from wikiholt.backups import BackupDirectory
from wikiholt.errors import IndexCorrupt
from wikiholt.registry import schema

_CHECKSUM = re.compile(r"[0-9a-f]{32}")
_WIKI_ID = re.compile(r"[a-z0-9]{8,64}")
_WIKIS, _KEYS = re.compile(r"w[1-9]"), re.compile(r"-k[1-9]")
"""What the label of a backup of the registry says when it holds wikis, and keys."""
EMPTY_CHECKSUM = schema.compute_checksum({table: [] for table in schema.TABLE_COLUMNS})
"""The seal of a registry without a row."""
RECOVERY_HINT = f"{schema.RESTORE_HINT} Without a backup, `wikiholt restore --registry --empty` starts a new one, closed to all."


class ChecksumFile:
    """The seals that the registry may have, in a file beside it: one, or two while a write is being committed."""

    def __init__(self, registry: Path) -> None:
        self._registry = registry
        self._file = registry.with_name(f"{registry.name}-seal")

    def read(self) -> frozenset[str]:
        """The seals; none where the file is missing or damaged."""
        try:
            *seals, checksum = self._file.read_bytes().decode().split()
        except (OSError, ValueError):
            return frozenset()
        sound = checksum == _compute_checksum(seals) and all(map(_CHECKSUM.fullmatch, seals))
        return frozenset(seals) if sound else frozenset()

    def write(self, *seals: str) -> None:
        """Replace the file in one step, which a power cut does not take back. Raises OSError."""
        draft = self._registry.with_name(f".{self._registry.name}.{secrets.token_hex(8)}")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write("".join(f"{line}\n" for line in (*seals, _compute_checksum(seals))).encode())
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._file)
            directory = os.open(self._file.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        finally:
            draft.unlink(missing_ok=True)


def _compute_checksum(seals: Sequence[str]) -> str:
    return blake2b(" ".join(seals).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class LeftoverData:
    """What an earlier registry leaves behind: indexes and backups of wikis, and backups of the registry."""

    indexes: Path
    backups: Path
    """The directory of all backups; those of the registry are in the directory `registry` below it."""
    others: Callable[[], str] = str
    """Names what remains in other places; empty if nothing does."""
    owner: Path | None = None
    """Another registry here: while it is there, all of this is its own."""

    def find(self) -> str:
        """Name what there is, in a few words; empty if nothing is."""
        if self.owner and self.owner.exists():
            return ""
        if self._find_backups(_WIKIS, _KEYS):
            return "backups of the registry"
        if _has_wikis(self.indexes):
            return "indexes of wikis"
        return "backups of wikis" if _has_wikis(self.backups) else self.others()

    def had_keys(self) -> bool:
        """Whether a backup of the registry holds keys, by its name: damaged ones count too."""
        return not (self.owner and self.owner.exists()) and self._find_backups(_KEYS)

    def _find_backups(self, *patterns: re.Pattern[str]) -> bool:
        kept = BackupDirectory(self.backups / "registry").list_files()
        return any(pattern.search(each.label) for each in kept for pattern in patterns)


def _has_wikis(directory: Path) -> bool:
    """Whether directories named by ids of wikis are there. Raises OSError where that cannot be told."""
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
