"""Reads and writes the rows of the registry in a small store, and applies the list of revoked keys to it.

No row of a revoked key or of a removed wiki is ever returned, whichever copy of the registry is read.
"""

import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from wikiholt.errors import Busy, IndexCorrupt, StorageError
from wikiholt.wikis.registry_schema import (
    RECOVERY_HINT,
    RESTORE_HINT,
    TABLE_COLUMNS,
    RegistryRow,
    RegistryRows,
    compute_row_check,
    get_value,
)
from wikiholt.wikis.revoked_list import FIRST_KEY, RevokedEntry, RevokedList, make_lost_list_error
from wikiholt.wikis.small_store import SmallStore, StoreConnection, make_text_error

WIKI_ID_COLUMNS = {"wikis": "id", "hosts": "wiki_id", "keys": "wiki_id"}
"""The column with the id of the wiki a row belongs to; None for an operator's key."""


def is_revoked(table: str, row: RegistryRow, entries: Collection[RevokedEntry]) -> bool:
    """Whether the row is a revoked key, or belongs to a removed wiki."""
    if table not in WIKI_ID_COLUMNS:
        return False
    wiki_id = get_value(table, row, WIKI_ID_COLUMNS[table])
    if wiki_id is not None and RevokedEntry.of_wiki(wiki_id) in entries:
        return True
    return table == "keys" and RevokedEntry.of_key(str(get_value("keys", row, "digest"))) in entries


class RegistryReader:
    """The rows of a registry, verified and without those that are revoked."""

    def __init__(self, connection: StoreConnection, entries: Collection[RevokedEntry]) -> None:
        self.connection = connection
        self._entries = entries

    def select(self, table: str, column: str = "", value: str = "", *, limit: int | None = None) -> list[RegistryRow]:
        """The rows of a table, or those with that value in a column. Raises IndexCorrupt."""
        rows = self._select_all(table, column, value, limit)
        return [row for row in rows if not is_revoked(table, row, self._entries)]

    def has_fact(self, fact: RevokedEntry) -> bool:
        """Whether the list of revoked keys or the registry has this entry."""
        return fact in self._entries or any(tuple(row) == fact for row in self.select("revoked", "value", fact.value))

    def read_version(self) -> str:
        """A text that changes with every change of the registry."""
        return read_version(self.connection)

    def read_rows(self) -> RegistryRows:
        """Every row, in a fixed order."""
        return {table: sorted(self.select(table), key=repr) for table in TABLE_COLUMNS}

    def _select_all(self, table: str, column: str = "", value: str = "", limit: int | None = None) -> list[RegistryRow]:
        columns = ", ".join(TABLE_COLUMNS[table])
        where, values = (f" WHERE {column} = ?", (value,)) if column else ("", ())
        tail = where if limit is None else f"{where} LIMIT {limit:d}"
        found = self.connection.execute(f"SELECT {columns}, row_check FROM {table}{tail}", values)  # noqa: S608
        rows: list[RegistryRow] = []
        for *row, check in found:
            if check != compute_row_check(table, row):
                raise IndexCorrupt("A row of the registry is not the one that was written.", hint=RESTORE_HINT)
            rows.append(tuple(row))
        return rows


class RegistryCopy:
    """All rows of a shared registry at one version, in memory. Nothing in it changes."""

    def __init__(self, rows: RegistryRows, version: str) -> None:
        self.version = version
        self._rows = rows
        self._indexes: dict[tuple[str, str], dict[str | None, list[RegistryRow]]] = {}

    def select(self, table: str, column: str, value: str) -> list[RegistryRow]:
        """The rows of a table, or those with that value in a column."""
        if not column:
            return self._rows[table]
        index = self._indexes.get((table, column))
        if index is None:
            index = {}
            for row in self._rows[table]:
                index.setdefault(get_value(table, row, column), []).append(row)
            self._indexes[table, column] = index
        return index.get(value, [])


class CopyReader(RegistryReader):
    """The rows of a copy. What is not in it, another node may just have added: then the registry itself is asked."""

    def __init__(
        self,
        copy: RegistryCopy,
        entries: Collection[RevokedEntry],
        read_registry: Callable[[], AbstractContextManager[RegistryReader | None]],
    ) -> None:
        self._copy = copy
        self._entries = entries
        self._read_registry = read_registry

    def read_version(self) -> str:
        return self._copy.version

    def _select_all(self, table: str, column: str = "", value: str = "", limit: int | None = None) -> list[RegistryRow]:
        rows = self._copy.select(table, column, value)
        # A host that is not a wiki's own occurs in most requests: the copy decides.
        if rows or not column or table == "hosts":
            return rows[:limit]
        with self._read_registry() as reader:
            return reader.select(table, column, value) if reader is not None else []


class RegistryWriter(RegistryReader):
    """One write transaction."""

    def __init__(
        self, connection: StoreConnection, entries: Collection[RevokedEntry], revoked_list: RevokedList
    ) -> None:
        super().__init__(connection, entries)
        self._revoked_list = revoked_list

    def insert(self, table: str, row: RegistryRow) -> None:
        """Insert a row. Raises InvalidSetting for text that cannot be stored."""
        insert_row(self.connection, table, row)

    def delete(self, table: str, column: str, value: str) -> list[RegistryRow]:
        """Delete the rows with that value in a column and return them."""
        rows = self._select_all(table, column, value)
        self.connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (value,))  # noqa: S608
        return rows

    def revoke(self, entries: Collection[RevokedEntry]) -> None:
        """Add entries to the list, durably and forever."""
        self._revoked_list.append(entries)
        known = {tuple(row) for row in self._select_all("revoked")}
        for entry in set(entries) - known:
            self.insert("revoked", entry)

    def revoke_key(self, row: RegistryRow) -> None:
        """Revoke the key of this row."""
        digest = str(get_value("keys", row, "digest"))
        self.revoke([RevokedEntry.of_key(digest)])
        self.delete("keys", "digest", digest)

    def revoke_wiki(self, wiki_id: str) -> None:
        """Remove a wiki with its keys and hosts."""
        keys = self._select_all("keys", "wiki_id", wiki_id)
        digests = [str(get_value("keys", row, "digest")) for row in keys]
        self.revoke([RevokedEntry.of_wiki(wiki_id), *map(RevokedEntry.of_key, digests)])
        for table, column in WIKI_ID_COLUMNS.items():
            self.delete(table, column, wiki_id)

    def delete_revoked(self, entries: Collection[RevokedEntry]) -> None:
        """Delete the rows of these entries, which an older copy of the registry still has."""
        for table, columns in TABLE_COLUMNS.items():
            for row in self._select_all(table):
                if is_revoked(table, row, entries):
                    self.delete(table, columns[0], str(row[0]))


def read_version(connection: StoreConnection) -> str:
    """The version of a registry. Raises IndexCorrupt if it has none."""
    row = connection.execute("SELECT value FROM state WHERE name = 'version'").fetchone()
    if row is None:
        raise IndexCorrupt("The registry is damaged: it has no version.", hint=RESTORE_HINT)
    return str(row[0])


def write_version(connection: StoreConnection, version: str = "") -> None:
    """Give the registry this version or a new one, before the commit."""
    connection.execute("DELETE FROM state WHERE name = 'version'")
    statement = "INSERT INTO state (name, value) VALUES ('version', ?)"
    connection.execute(statement, (version or secrets.token_hex(16),))


def insert_row(connection: StoreConnection, table: str, row: RegistryRow) -> None:
    """Insert a row with its checksum. Raises InvalidSetting for text that cannot be stored."""
    try:
        values = (*row, compute_row_check(table, row))
    except UnicodeEncodeError as error:
        raise make_text_error() from error
    columns = ", ".join(TABLE_COLUMNS[table])
    placeholders = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} ({columns}, row_check) VALUES ({placeholders})", values)  # noqa: S608


def replace_rows(connection: StoreConnection, rows: RegistryRows, version: str = "") -> None:
    """Replace the rows of every table by these, as this version or a new one."""
    for table in TABLE_COLUMNS:
        connection.execute(f"DELETE FROM {table}")  # noqa: S608
        for row in rows[table]:
            insert_row(connection, table, row)
    write_version(connection, version)


class RegistryStore:
    """The registry in a small store. Safe to use from many threads and processes.

    It is checked when it is opened, and whenever another process has changed or replaced it.
    """

    def __init__(
        self, store: SmallStore, revoked_list: RevokedList, leftovers: "LeftoverData | None", *, where: str
    ) -> None:
        """`leftovers` finds data of an earlier registry; with None, an empty one counts as new. `where` names it."""
        self.store = store
        self.revoked_list = revoked_list
        self._leftovers = leftovers
        self._where = where
        self._verified: object = None
        self._version: str | None = None
        self._had_list = False
        self._checked: RegistryCopy | None = None
        """The rows of a shared registry when they were last checked."""
        self._copy: tuple[float, object, RegistryCopy] | None = None
        """The copy that is read, when it was last known to be current, and the last write of this process then."""
        self._max_copy_age_s = 0.0
        self._last_write = object()

    @contextmanager
    def read(self) -> Iterator[RegistryReader | None]:
        """A reader; None if there is no registry yet. Raises IndexCorrupt if it is damaged, outdated or lost.

        Reads the copy if `follow` keeps one. One that was not confirmed for too long is not read.
        """
        confirmed_at, last_write, copy = self._copy or (0.0, None, None)
        # A process reads what it has written itself.
        is_current = last_write is self._last_write and time.monotonic() - confirmed_at < self._max_copy_age_s
        if copy is not None and is_current:
            yield CopyReader(copy, self._load_entries(), self._read_store)
        else:
            with self._read_store() as reader:
                yield reader

    def follow(self, max_age_s: float) -> Callable[[], None]:
        """Keep a copy of a shared registry in memory and read it while it is at most `max_age_s` old.

        Returns the function that ends this.
        """
        self._max_copy_age_s = max_age_s
        return self.store.follow(self._refresh_copy, max_age_s / 4) if max_age_s else lambda: None

    def _refresh_copy(self) -> None:
        """Bring the copy to the current version, or confirm that it has it."""
        started, last_write = time.monotonic(), self._last_write
        version = self._check_version()
        if self._checked is not None and self._checked.version == version:
            self._copy = started, last_write, self._checked

    def read_snapshot(self) -> AbstractContextManager[RegistryReader | None]:
        """Like `read`, and all statements see the same state."""
        return self._read_with(self.store.read_snapshot)

    @contextmanager
    def write(self) -> Iterator[RegistryWriter]:
        """One exclusive write transaction, committed durably unless the block raises."""
        self._verify()
        self._version = None  # the next `get_version` also notices that the database was restored
        try:
            with self.store.write() as connection:
                writer = RegistryWriter(connection, self._load_entries(), self.revoked_list)
                yield writer
                write_version(connection)
        finally:  # a commit may be complete although it failed here
            self._last_write = object()
        if self._verified is not None:  # a change by this process needs no check
            self._verified = self.store.get_identity()

    def read_unchecked(self) -> RegistryRows | None:
        """All rows of a registry that may be outdated; None if it is damaged or missing."""
        with suppress(IndexCorrupt), self.store.read_snapshot() as connection:
            return RegistryReader(connection, ()).read_rows() if connection is not None else None
        return None

    def get_version(self) -> str | None:
        """The version of the registry; None if there is none. Takes over what other nodes have revoked.

        What is read afterwards is at least of this version.
        """
        version = self._check_version()
        if self._copy is not None and self._copy[2].version != version:
            self._last_write = object()
        return version

    def _check_version(self) -> str | None:
        """The version of the registry, which is checked if it has changed."""
        with self._read_store() as reader:
            version = reader.read_version() if reader else None
        if self.store.is_shared and version != self._version:
            self._verified = None
            self._verify()
        self._version = version
        return version

    def accept_empty(self) -> None:
        """Accept an empty registry as new despite leftover data."""
        self._leftovers = None

    def forget_checks(self) -> None:
        """Check the registry again before its next use."""
        self._verified = None
        self._last_write = object()

    def _read_store(self) -> AbstractContextManager[RegistryReader | None]:
        return self._read_with(self.store.read)

    @contextmanager
    def _read_with(
        self, read: Callable[[], AbstractContextManager[StoreConnection | None]]
    ) -> Iterator[RegistryReader | None]:
        self._verify()
        with read() as connection:
            yield RegistryReader(connection, self._load_entries()) if connection is not None else None

    def _load_entries(self) -> frozenset[RevokedEntry]:
        entries = self.revoked_list.load()
        if entries is None and self._had_list and not self.store.is_shared:
            raise make_lost_list_error(self.revoked_list.files[0], "missing")
        self._had_list = self._had_list or bool(entries and FIRST_KEY in entries)
        return entries or frozenset()

    def _verify(self) -> None:
        """Raise IndexCorrupt if the registry was lost or damaged, or is outdated; apply the list of revoked keys."""
        identity = self.store.get_identity()
        if identity is None:
            self._require_new()
        elif identity != self._verified:
            self._check(identity)

    def _require_new(self) -> None:
        entries = self._load_entries()
        remains = "keys that were revoked" if FIRST_KEY in entries else self._find_leftovers(entries)
        if not remains and self._leftovers and self._leftovers.has_backup_with_wikis():
            remains = "backups of the registry"
        if remains and self.store.get_identity() is None:  # no other process has created it in the meantime
            raise make_lost_registry_error(self._where, remains)

    def _find_leftovers(self, entries: Collection[RevokedEntry]) -> str:
        return self._leftovers.find(entries) if self._leftovers else ""

    def _check(self, identity: object) -> None:
        self.store.check()
        with self.store.read_snapshot() as connection:
            if connection is None:  # removed in the meantime
                return
            rows = RegistryReader(connection, ()).read_rows()
            version = read_version(connection)
        known = {RevokedEntry(*map(str, row)) for row in rows["revoked"]}
        listed = self.revoked_list.load()
        if FIRST_KEY not in known and self._leftovers and self._leftovers.had_keys():
            raise make_outdated_registry_error(self._where)
        if listed is None and FIRST_KEY in known and not self.store.is_shared:
            raise make_lost_list_error(self.revoked_list.files[0], "missing")
        if not rows["wikis"] and not known and (remains := self._find_leftovers(listed or ())):
            raise make_lost_registry_error(self._where, remains)
        with suppress(StorageError, Busy):  # readers filter the rows by the list in any case
            self._apply_list(known, listed or frozenset())
        self._checked = RegistryCopy(rows, version) if self.store.is_shared else None
        self._verified = identity if identity == self.store.get_identity() else None

    def _apply_list(self, known: Collection[RevokedEntry], listed: Collection[RevokedEntry]) -> None:
        """Make the list and the registry know the same entries. A registry that knows fewer is an older copy."""
        missing, unlisted = set(listed) - set(known), set(known) - set(listed)
        if unlisted:
            self.revoked_list.append(unlisted)
        if missing:
            with self.store.write() as connection:
                writer = RegistryWriter(connection, (), self.revoked_list)
                writer.revoke(missing)
                writer.delete_revoked(missing)
                write_version(connection)


# A lost registry must not be silently replaced by an empty one: an empty registry never had a key, and without keys
# wikis are open on the local machine. Data beside it shows that it was lost.

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
