"""What is done to registry files by hand: copies looked at and changed, one put in the place of another.

While a registry is replaced there is at every moment a file under its name, and until the last step it is one that
opens nothing: a registry without its log might be an older one, in which a revoked key still opens a wiki.
"""

import os
import re
import secrets
import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

from wikiholt.errors import IndexCorrupt
from wikiholt.indexing.backup_directory import BackupDirectory
from wikiholt.regular_files import is_irregular
from wikiholt.wikis import registry_schema

# Detects that a registry was lost or replaced by an older copy, by what lies beside it. A registry that is lost must
# not be replaced by an empty one without notice: in an empty registry no key was ever made, and then wikis are open
# on this machine.


_CHECKSUM = re.compile(r"[0-9a-f]{32}")
_WIKI_ID = re.compile(r"[a-z0-9]{8,64}")
_WIKIS, _KEYS = re.compile(r"w[1-9]"), re.compile(r"-k[1-9]")
"""What the label of a backup of the registry says when it holds wikis, and keys."""
EMPTY_CHECKSUM = registry_schema.compute_checksum({table: [] for table in registry_schema.TABLE_COLUMNS})
"""The seal of a registry without a row."""
RECOVERY_HINT = f"{registry_schema.RESTORE_HINT} Without a backup, `wikiholt restore --registry --empty` starts a new one, closed to all."


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


def read_file_checksum(file: Path) -> str | None:
    """The seal a copy bears, without a look at whether it is whole; None where there is none to be read."""
    if is_irregular(file):
        return None
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro&immutable=1", uri=True)
        ) as connection:
            return registry_schema.read_checksum(connection)
    except (sqlite3.Error, TypeError, UnicodeDecodeError):  # damage may look like text that is none
        return None


def delete_wikis(file: Path, wiki_ids: Collection[str]) -> bool:
    """Delete every byte of these wikis from a copy; whether one was in there."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        registry_schema.migrate_schema(connection)
        connection.execute("BEGIN IMMEDIATE")
        ledger = registry_schema.RegistryTransaction(connection)
        for wiki_id in wiki_ids:
            for table, column in (("wikis", "id"), ("hosts", "wiki_id"), ("keys", "wiki_id")):
                ledger.delete(table, column, wiki_id)
            ledger.delete("marks", "name", registry_schema.REPOSITORY_MARK + wiki_id)
        ledger.write_checksum()
        connection.execute("COMMIT")
        if ledger.has_deletions:
            connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return ledger.has_deletions


def replace_file(path: Path, rows: registry_schema.RegistryRows) -> str | None:
    """Write these rows as the registry; returns the name under which the one that was there lies now."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        draft.touch(0o600, exist_ok=False)
        write_file(draft, rows)
        aside = _quarantine_file(path)
        ChecksumFile(path).write(registry_schema.compute_checksum(rows))
        draft.replace(path)
        _fsync(path.parent)
    finally:
        draft.unlink(missing_ok=True)
    return aside


def write_file(file: Path, rows: registry_schema.RegistryRows) -> None:
    """Make a registry of these rows in a file that is empty or not there."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        registry_schema.create_tables(connection)
        connection.execute("BEGIN")
        ledger = registry_schema.RegistryTransaction(connection)
        ledger.replace_all(rows)
        ledger.write_checksum()
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _fsync(file)


def _quarantine_file(path: Path) -> str | None:
    """Leave an empty file, which is refused as damaged, where the registry was; what was there is kept beside it."""
    name = f"broken-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{path.name}"
    if not os.path.lexists(path):
        return None
    if is_irregular(path):
        path.rename(path.with_name(name))
    else:
        os.link(path, path.with_name(name))
    empty = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    empty.touch(0o600)
    empty.replace(path)
    # The log of one file must never be taken for that of another.
    for ending in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(path.with_name(name + ending))
    return name


def _fsync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
