"""The registry of wikis, shared by many processes: a small SQLite file, or tables in PostgreSQL."""

import base64
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from wikiholt.domain.wiki import Key, Wiki
from wikiholt.errors import IndexCorrupt, WikiExists, WikiNotFound
from wikiholt.wikis.registry_file import RegistryFile
from wikiholt.wikis.registry_recovery import LeftoverData
from wikiholt.wikis.registry_schema import (
    PURGE_MARK_PREFIX,
    REBUILT_MARK,
    REPOSITORY_COLUMN,
    REPOSITORY_MARK,
    RESTORE_HINT,
    TABLE_COLUMNS,
    RegistryConnection,
    RegistryDatabase,
    RegistryRow,
    RegistryRows,
    RegistryTransaction,
    get_value,
    has_mark,
    read_checksum,
    read_rows,
)
from wikiholt.wikis.slugs import parse_host_header, parse_hosts, validate_slug

if TYPE_CHECKING:
    from wikiholt.indexing.backup_directory import BackupPolicy
    from wikiholt.wikis.keys import KeyStore
    from wikiholt.wikis.oauth_grants import OAuthGrants
    from wikiholt.wikis.registry_backups import RegistryBackups
    from wikiholt.wikis.sign_ins import SignInStore

_UNIQUE_COLUMNS = {"wikis": ("id", "slug"), "hosts": ("host",), "keys": ("id",), "marks": ("name",)}
"""The columns that are unique within a table."""
_ROW_NOUNS = {"wikis": "wiki", "hosts": "host", "keys": "key"}
_WIKI_ID_COLUMNS = {"wikis": "id", "hosts": "wiki_id", "keys": "wiki_id"}
"""The column with the id of the wiki a row belongs to; None for an operator's key."""
_WIKI_COLUMNS = ", ".join((*TABLE_COLUMNS["wikis"], REPOSITORY_COLUMN))
_MAX_SHOWN_CHARS = 80
REPOSITORIES_DIRECTORY = "repositories"
"""The directory of the repositories of managed wikis, in a data directory."""
REGISTRY_FILE = "registry.sqlite"
"""The registry in a data directory."""


@dataclass(frozen=True, slots=True)
class RemovedWiki:
    """A removed wiki with its keys and hosts, and the names of its index files."""

    wiki: Wiki
    keys: tuple[Key, ...]
    hosts: tuple[str, ...]
    files: tuple[str, ...] = ()


class Registry:
    """All wikis by slug. Safe to use from many threads and processes; no error reveals another wiki."""

    def __init__(
        self,
        path: Path,
        *,
        timeout_s: float = 10.0,
        backups: "BackupPolicy | None" = None,
        database: RegistryDatabase | None = None,
        repositories: Path | None = None,
    ) -> None:
        """Uses the file `path`, or `database`. Backups are beside that path unless the policy names a directory.

        `repositories` is the directory of the repositories of managed wikis; by default it is beside that path too.
        """
        self._repositories = repositories or path.parent / REPOSITORIES_DIRECTORY
        self._backup_policy = backups
        self._backup_directory = (backups and backups.directory) or path.parent / "backups"
        leftovers = LeftoverData(path.parent / "wikis", self._backup_directory)
        self._database = database or RegistryFile(path, timeout_s, leftovers)
        self.bind: Callable[[Wiki], str] = lambda _: ""
        """Callback that marks the repository of a new wiki and returns what to record about it. Never raises."""

    # Imported on first use: a command that lists wikis needs neither, and should start at once.

    @cached_property
    def keys(self) -> "KeyStore":
        """The keys of all wikis."""
        from wikiholt.wikis.keys import KeyStore  # noqa: PLC0415

        return KeyStore(self._database)

    @cached_property
    def oauth(self) -> "OAuthGrants":
        """The clients and tokens of the authorization server for agents."""
        from wikiholt.wikis.oauth_grants import OAuthGrants  # noqa: PLC0415

        return OAuthGrants(self._database, self.keys)

    @cached_property
    def sign_ins(self) -> "SignInStore":
        """The browsers that are signed in."""
        from wikiholt.wikis.sign_ins import SignInStore  # noqa: PLC0415

        return SignInStore(self._database.open_sign_ins())

    @cached_property
    def backups(self) -> "RegistryBackups":
        """The backups of the registry."""
        from wikiholt.indexing.backup_directory import BackupPolicy  # noqa: PLC0415
        from wikiholt.wikis.registry_backups import RegistryBackups  # noqa: PLC0415

        policy = self._backup_policy or BackupPolicy()
        return RegistryBackups(self._database, self._backup_directory / "registry", policy.keep_count)

    def add(
        self, slug: str, source: str, settings: Mapping[str, str] | None = None, wiki_id: str | None = None
    ) -> Wiki:
        """Register a wiki under a new random id, or `wiki_id`. A managed wiki has an empty source.

        Raises InvalidSlug, WikiExists or, for its hosts, InvalidSetting.
        """
        wiki = self._resolve_source(_make_wiki(slug, source, settings or {}, wiki_id or make_wiki_id()))
        with self._database.write_transaction() as transaction:
            if self._find_by_column(transaction.connection, "slug", slug) is not None:
                raise WikiExists(f"There is already a wiki {slug!r}.", hint="Choose another slug, or remove it first.")
            return _insert_new(transaction, self._bind_repository(transaction, wiki))

    def add_many(self, wikis: Iterable[tuple[str, str, Mapping[str, str]]]) -> list[Wiki]:
        """Register (slug, source, settings) tuples in one transaction, skipping slugs that are taken.

        Returns the new wikis. Raises for the first invalid one, and then registers none.
        """
        added = []
        with self._database.write_transaction() as transaction:
            for slug, source, settings in wikis:
                wiki = _make_wiki(slug, source, settings, make_wiki_id())
                if self._find_by_column(transaction.connection, "slug", slug) is None:
                    added.append(_insert_new(transaction, self._bind_repository(transaction, wiki)))
        return added

    def get(self, slug: str) -> Wiki:
        """The wiki of that slug; raises WikiNotFound."""
        wiki = self._find_wiki("slug", slug)
        if wiki is None:
            raise _make_not_found_error(slug)
        return wiki

    def get_by_id(self, wiki_id: str) -> Wiki:
        """The wiki of that id; raises WikiNotFound."""
        wiki = self._find_wiki("id", wiki_id)
        if wiki is None:
            raise WikiNotFound("The wiki no longer exists.", hint="`wikiholt list` shows all wikis.")
        return wiki

    def find_by_host(self, host: str) -> Wiki | None:
        """The wiki with this host name, or None."""
        name = parse_host_header(host)
        if name is None or not name.isascii() or "\0" in name:
            return None
        query = f"SELECT {_WIKI_COLUMNS} FROM wikis WHERE id = (SELECT wiki_id FROM hosts WHERE host = ?)"  # noqa: S608
        with self._database.read_connection() as connection:
            row = connection.execute(query, (name,)).fetchone() if connection else None
        return self._parse_wiki(row) if row else None

    def get_only(self) -> Wiki | None:
        """The only wiki; None if there is none or more than one."""
        with self._database.read_connection() as connection:
            if connection is None:
                return None
            rows = connection.execute(f"SELECT {_WIKI_COLUMNS} FROM wikis LIMIT 2").fetchall()  # noqa: S608
        return self._parse_wiki(rows[0]) if len(rows) == 1 else None

    def list_wikis(self) -> list[Wiki]:
        """Every wiki, by slug."""
        with self._database.read_connection() as connection:
            if connection is None:
                return []
            rows = connection.execute(f"SELECT {_WIKI_COLUMNS} FROM wikis ORDER BY slug").fetchall()  # noqa: S608
        return [self._parse_wiki(row) for row in rows]

    def get_version(self) -> str | None:
        """A token that changes with every change of the registry; cheaper than a list. None if there is no registry."""
        with self._database.read_connection() as connection:
            return read_checksum(connection) if connection else None

    def read_rows(self) -> RegistryRows:
        """All rows, in one consistent read."""
        with self._database.read_connection() as connection:
            return read_rows(connection) if connection else {table: [] for table in TABLE_COLUMNS}

    def import_rows(self, rows: RegistryRows, wiki_ids: set[str]) -> int:
        """Import wikis of another registry with ids, hosts and keys, in one transaction; returns the number of rows.

        Equal rows are skipped. Raises WikiExists for rows that conflict.
        """
        with self._database.write_transaction() as transaction:
            missing = find_missing_rows(read_rows(transaction.connection), rows, wiki_ids)
            for table, table_rows in missing.items():
                for row in table_rows:
                    transaction.insert(table, row)
        return sum(map(len, missing.values()))

    def rebind(self, wiki: Wiki) -> Wiki:
        """Record the repository that is at the wiki's path now as the wiki's own. Raises WikiNotFound."""
        with self._database.write_transaction() as transaction:
            known = self._find_by_column(transaction.connection, "id", wiki.id)
            if known is None:
                raise _make_not_found_error(wiki.slug)
            return self._bind_repository(transaction, known)

    def is_rebuilt(self) -> bool:
        """Whether this registry was started empty after an earlier one was lost; old indexes may still exist."""
        with self._database.read_connection() as connection:
            return connection is not None and has_mark(connection, REBUILT_MARK)

    def expect_empty(self) -> None:
        """Accept an empty registry as new despite leftover data: another registry's rows are about to be imported."""
        self._database.remains = None

    def remove(self, slug: str, wiki_id: str | None = None) -> RemovedWiki:
        """Remove a wiki with its keys and hosts in one transaction, and purge it from the registry's backups.

        Its index is not touched. With `wiki_id`, only if the slug still belongs to that wiki.
        """
        with self._database.write_transaction() as transaction:
            wiki = self._find_by_column(transaction.connection, "slug", slug)
            if wiki is None or wiki_id not in (None, wiki.id):
                raise _make_not_found_error(slug)
            transaction.delete("wikis", "id", wiki.id)
            keys = transaction.delete("keys", "wiki_id", wiki.id)
            hosts = transaction.delete("hosts", "wiki_id", wiki.id)
            transaction.delete("marks", "name", REPOSITORY_MARK + wiki.id)
            transaction.delete("marks", "name", PURGE_MARK_PREFIX + wiki.id)
            transaction.insert("marks", (PURGE_MARK_PREFIX + wiki.id, datetime.now(UTC).isoformat()))
        self.backups.finish_purges()
        from wikiholt.wikis.keys import parse_key  # noqa: PLC0415

        return RemovedWiki(wiki, tuple(map(parse_key, keys)), tuple(host for host, _ in hosts))

    def update_settings(self, slug: str, changes: Mapping[str, str]) -> Wiki:
        """Change some settings of a wiki; an empty value unsets one."""
        with self._database.write_transaction() as transaction:
            old = self._find_by_column(transaction.connection, "slug", slug)
            if old is None:
                raise _make_not_found_error(slug)
            wiki = replace(old, settings={name: value for name, value in {**old.settings, **changes}.items() if value})
            transaction.delete("wikis", "id", old.id)
            transaction.delete("hosts", "wiki_id", old.id)
            _insert_wiki(transaction, wiki)
        return wiki

    def get_managed_path(self, wiki_id: str) -> Path:
        """The path of the repository of a managed wiki with this id."""
        return self._repositories / f"{wiki_id}.git"

    def suggest_slugs(self, slug: str) -> tuple[str, ...]:
        """Similar slugs, most similar first. For the operator's terminal only, never for visitors."""
        import difflib  # noqa: PLC0415

        return tuple(
            difflib.get_close_matches(slug.lower()[:_MAX_SHOWN_CHARS], [wiki.slug for wiki in self.list_wikis()], n=3)
        )

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _find_wiki(self, column: str, value: str) -> Wiki | None:
        with self._database.read_connection() as connection:
            return self._find_by_column(connection, column, value) if connection else None

    def _find_by_column(self, connection: RegistryConnection, column: str, value: str) -> Wiki | None:
        if "\0" in value or not value.isascii():  # no slug or id contains these
            return None
        row = connection.execute(f"SELECT {_WIKI_COLUMNS} FROM wikis WHERE {column} = ?", (value,)).fetchone()  # noqa: S608
        return self._parse_wiki(row) if row else None

    def _parse_wiki(self, row: tuple[str, str, str, str, str, str]) -> Wiki:
        return self._resolve_source(_parse_row(row))

    def _resolve_source(self, wiki: Wiki) -> Wiki:
        """The wiki with the path of its repository, which is not stored for a managed wiki: the directory may move."""
        return replace(wiki, source=str(self.get_managed_path(wiki.id))) if wiki.is_managed else wiki

    def _bind_repository(self, transaction: RegistryTransaction, wiki: Wiki) -> Wiki:
        """Record the wiki's repository, and return the wiki with it."""
        repository = self.bind(wiki)
        transaction.delete("marks", "name", REPOSITORY_MARK + wiki.id)
        if repository:
            transaction.insert("marks", (REPOSITORY_MARK + wiki.id, repository))
        return replace(wiki, repository=repository)


def _make_wiki(slug: str, source: str, settings: Mapping[str, str], wiki_id: str) -> Wiki:
    return Wiki(wiki_id, validate_slug(slug), source, datetime.now(UTC), dict(settings))


def _insert_new(transaction: RegistryTransaction, wiki: Wiki) -> Wiki:
    """Insert a new wiki. In a rebuilt registry it is private unless its settings say otherwise."""
    if "public" not in wiki.settings and has_mark(transaction.connection, REBUILT_MARK):
        wiki = replace(wiki, settings={**wiki.settings, "public": "false"})
    _insert_wiki(transaction, wiki)
    return wiki


def _insert_wiki(transaction: RegistryTransaction, wiki: Wiki) -> None:
    for host in parse_hosts(wiki.settings):
        if transaction.connection.execute("SELECT 1 FROM hosts WHERE host = ?", (host,)).fetchone():
            raise WikiExists(f"The host {host!r} belongs to another wiki.", hint="Remove it from that wiki first.")
        transaction.insert("hosts", (host, wiki.id))
    source = "" if wiki.is_managed else wiki.source
    transaction.insert(
        "wikis", (wiki.id, wiki.slug, source, _dump_settings(wiki.settings), wiki.created_at.isoformat())
    )


def make_wiki_id() -> str:
    """A new random id of a wiki."""
    # 100 random bits: never derived from the slug, never the same twice.
    return base64.b32encode(os.urandom(13)).decode().lower()[:20]


def _parse_row(row: tuple[str, str, str, str, str, str]) -> Wiki:
    wiki_id, slug, source, settings, created_at, repository = row
    try:
        parsed = json.loads(settings)
        if not all(isinstance(text, str) for pair in parsed.items() for text in pair):
            raise ValueError(settings)
        return Wiki(wiki_id, slug, source, datetime.fromisoformat(created_at), parsed, repository)
    except (ValueError, TypeError, AttributeError) as error:
        raise IndexCorrupt("A row of the registry is not valid.", hint=RESTORE_HINT) from error


def _dump_settings(settings: Mapping[str, str]) -> str:
    return json.dumps(dict(settings), ensure_ascii=False, sort_keys=True)


def _make_not_found_error(slug: str) -> WikiNotFound:
    shown = slug if len(slug) <= _MAX_SHOWN_CHARS else slug[:_MAX_SHOWN_CHARS] + "…"
    return WikiNotFound(f"There is no wiki {shown!r}.", hint="`wikiholt list` shows all wikis.", slug=shown)


# Import of another registry's rows.


def find_missing_rows(present: RegistryRows, incoming: RegistryRows, wiki_ids: set[str]) -> RegistryRows:
    """The rows of these wikis, and of no wiki, that are not present yet. Equal rows are skipped.

    Raises WikiExists if a different row has the same unique value. Marks that are already present are kept.
    """
    return {
        table: _find_missing_in_table(table, present[table], _select_wikis(table, incoming[table], wiki_ids))
        for table in TABLE_COLUMNS
    }


def _select_wikis(table: str, rows: list[RegistryRow], wiki_ids: set[str]) -> list[RegistryRow]:
    if table == "marks":
        return rows
    column = _WIKI_ID_COLUMNS[table]
    return [row for row in rows if (wiki_id := get_value(table, row, column)) is None or wiki_id in wiki_ids]


def _find_missing_in_table(table: str, present: list[RegistryRow], incoming: list[RegistryRow]) -> list[RegistryRow]:
    columns = _UNIQUE_COLUMNS[table]
    known = {(column, get_value(table, row, column)): tuple(row) for row in present for column in columns}
    missing: list[RegistryRow] = []
    for row in incoming:
        values = [(column, get_value(table, row, column)) for column in columns]
        same = {known[value] for value in values if value in known}
        if not same:
            missing.append(row)
        elif table != "marks" and same != {tuple(row)}:
            raise WikiExists(
                f"Another {_ROW_NOUNS[table]} {values[-1][1]!r} already exists.",
                hint="Nothing was changed. Remove or rename one of the two, then try again.",
            )
    return missing
