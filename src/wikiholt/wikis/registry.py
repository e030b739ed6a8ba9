"""What one registry lacks of another: whole wikis with their ids, hosts and keys, and the operator's keys; pure."""

import base64
import difflib
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from wikiholt.domain.wiki import Key, Wiki
from wikiholt.errors import IndexCorrupt, WikiExists, WikiNotFound
from wikiholt.indexing.index_backups import BackupPolicy
from wikiholt.wikis.keys import KeyStore, parse_key
from wikiholt.wikis.registry_backups import PURGE_MARK_PREFIX, RegistryBackups
from wikiholt.wikis.registry_file import RegistryFile
from wikiholt.wikis.registry_files import LeftoverData
from wikiholt.wikis.registry_schema import (
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
    has_mark,
    read_checksum,
    read_rows,
)
from wikiholt.wikis.slugs import parse_host_header, parse_hosts, validate_slug

_UNIQUE_COLUMNS = {"wikis": ("id", "slug"), "hosts": ("host",), "keys": ("id",), "marks": ("name",)}
"""The columns by each of which a row is the only one of its table."""
_ROW_NOUNS = {"wikis": "wiki", "hosts": "host", "keys": "key"}
_OWNER_COLUMN = {"wikis": 0, "hosts": 1, "keys": 1}
"""Which column says whose wiki a row is."""


def find_missing_rows(present: RegistryRows, incoming: RegistryRows, wiki_ids: set[str]) -> RegistryRows:
    """The rows of these wikis, and of none, that are not there yet; those there that are equal are left.

    Raises WikiExists where there is another of the same slug, id or name; of marks, which say what once was, the ones
    that are there stay.
    """
    return {
        table: _find_missing_in_table(table, present[table], _select_wikis(table, incoming[table], wiki_ids))
        for table in TABLE_COLUMNS
    }


def _select_wikis(table: str, rows: list[RegistryRow], wiki_ids: set[str]) -> list[RegistryRow]:
    if table == "marks":
        return rows
    return [row for row in rows if row[_OWNER_COLUMN[table]] is None or row[_OWNER_COLUMN[table]] in wiki_ids]


def _find_missing_in_table(table: str, present: list[RegistryRow], incoming: list[RegistryRow]) -> list[RegistryRow]:
    places = [TABLE_COLUMNS[table].index(name) for name in _UNIQUE_COLUMNS[table]]
    known = {(place, row[place]): tuple(row) for row in present for place in places}
    found: list[RegistryRow] = []
    for row in incoming:
        same = {known[at] for place in places if (at := (place, row[place])) in known}
        if not same:
            found.append(row)
        elif table != "marks" and same != {tuple(row)}:
            raise WikiExists(
                f"There is another {_ROW_NOUNS[table]} {row[places[-1]]!r} where this one is to go.",
                hint="Nothing was changed. Remove or rename one of the two, then try again.",
            )
    return found


# The registry of wikis, which many processes share: a small file, or with PostgreSQL some tables.


_WIKI_COLUMNS = ", ".join((*TABLE_COLUMNS["wikis"], REPOSITORY_COLUMN))
_MAX_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class RemovedEntry:
    """What was struck from the registry with a wiki."""

    wiki: Wiki
    keys: tuple[Key, ...]
    hosts: tuple[str, ...]


class Registry:
    """All wikis by slug. Safe to use from many threads and processes; no error of it names another wiki."""

    def __init__(
        self,
        path: Path,
        *,
        timeout: float = 10.0,
        backups: BackupPolicy | None = None,
        database: RegistryDatabase | None = None,
    ) -> None:
        """Kept in the file `path`, or in `database`; backups lie beside that path where the plan has no place."""
        plan = backups or BackupPolicy()
        place = plan.directory or path.parent / "backups"
        self._database = database or RegistryFile(path, timeout, LeftoverData(path.parent / "wikis", place))
        self.keys = KeyStore(self._database)
        self.backups = RegistryBackups(self._database, place / "registry", plan.keep_count)
        self.bind: Callable[[Wiki], str] = lambda _: ""
        """Marks the repository of a wiki that is being registered, and says what to record of it; never raises."""

    def add(self, slug: str, source: str, settings: Mapping[str, str] | None = None) -> Wiki:
        """Register a wiki under a new, random id; raises InvalidSlug, WikiExists or, for its hosts, InvalidSetting."""
        wiki = _make_wiki(slug, source, settings or {})
        with self._database.write_transaction() as ledger:
            if _find_by_column(ledger.connection, "slug", slug) is not None:
                raise WikiExists(f"There is already a wiki {slug!r}.", hint="Choose another slug, or remove it first.")
            return _insert_new(ledger, self._bind_repository(ledger, wiki))

    def add_many(self, wikis: Iterable[tuple[str, str, Mapping[str, str]]]) -> list[Wiki]:
        """Register (slug, source, settings) in one transaction; slugs that are taken are left as they are.

        Returns those that were added. Anything that makes no sense is raised, and then none is.
        """
        added = []
        with self._database.write_transaction() as ledger:
            for slug, source, settings in wikis:
                wiki = _make_wiki(slug, source, settings)
                if _find_by_column(ledger.connection, "slug", slug) is None:
                    added.append(_insert_new(ledger, self._bind_repository(ledger, wiki)))
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
            raise WikiNotFound("The wiki is not there any more.", hint="`wikiholt list` shows the wikis there are.")
        return wiki

    def find_by_host(self, host: str) -> Wiki | None:
        """The wiki that has this host name among its own; None if none has."""
        name = parse_host_header(host)
        if name is None or not name.isascii() or "\0" in name:
            return None
        query = f"SELECT {_WIKI_COLUMNS} FROM wikis WHERE id = (SELECT wiki_id FROM hosts WHERE host = ?)"  # noqa: S608
        with self._database.read_connection() as connection:
            row = connection.execute(query, (name,)).fetchone() if connection else None
        return _parse_wiki(row) if row else None

    def get_only(self) -> Wiki | None:
        """The wiki, where there is exactly one."""
        with self._database.read_connection() as connection:
            if connection is None:
                return None
            rows = connection.execute(f"SELECT {_WIKI_COLUMNS} FROM wikis LIMIT 2").fetchall()  # noqa: S608
        return _parse_wiki(rows[0]) if len(rows) == 1 else None

    def list_wikis(self) -> list[Wiki]:
        """Every wiki, by slug."""
        with self._database.read_connection() as connection:
            if connection is None:
                return []
            rows = connection.execute(f"SELECT {_WIKI_COLUMNS} FROM wikis ORDER BY slug").fetchall()  # noqa: S608
        return [_parse_wiki(row) for row in rows]

    def get_version(self) -> str | None:
        """The same as long as nothing in the registry changes: cheaper to ask for than a list. None: there is none."""
        with self._database.read_connection() as connection:
            return read_checksum(connection) if connection else None

    def read_rows(self) -> RegistryRows:
        """All that is registered, as of one moment."""
        with self._database.read_connection() as connection:
            return read_rows(connection) if connection else {table: [] for table in TABLE_COLUMNS}

    def import_rows(self, rows: RegistryRows, wiki_ids: set[str]) -> int:
        """Register these wikis of another registry as they are, with ids, hosts and keys, all at once; how many rows
        that were. What is there and equal is left; raises WikiExists for what is there and another.
        """
        with self._database.write_transaction() as ledger:
            missing = find_missing_rows(read_rows(ledger.connection), rows, wiki_ids)
            for table, found in missing.items():
                for row in found:
                    ledger.insert(table, row)
        return sum(map(len, missing.values()))

    def rebind(self, wiki: Wiki) -> Wiki:
        """Record the repository that lies at the wiki's path now as the wiki's own; raises WikiNotFound."""
        with self._database.write_transaction() as ledger:
            known = _find_by_column(ledger.connection, "id", wiki.id)
            if known is None:
                raise _make_not_found_error(wiki.slug)
            return self._bind_repository(ledger, known)

    def is_rebuilt(self) -> bool:
        """Whether this registry was started empty after an earlier one was lost, whose indexes may still be there."""
        with self._database.read_connection() as connection:
            return connection is not None and has_mark(connection, REBUILT_MARK)

    def expect_empty(self) -> None:
        """Take an empty registry for a new one, whatever lies beside it: it is about to take over another's rows."""
        self._database.remains = None

    def remove(self, slug: str, wiki_id: str | None = None) -> RemovedEntry:
        """Strike a wiki with its keys and hosts from the registry, all at once; its index is not touched.

        It is taken out of the registry's backups too. With `wiki_id`, only if the slug is still that wiki's.
        """
        with self._database.write_transaction() as ledger:
            wiki = _find_by_column(ledger.connection, "slug", slug)
            if wiki is None or wiki_id not in (None, wiki.id):
                raise _make_not_found_error(slug)
            ledger.delete("wikis", "id", wiki.id)
            keys = ledger.delete("keys", "wiki_id", wiki.id)
            hosts = ledger.delete("hosts", "wiki_id", wiki.id)
            ledger.delete("marks", "name", REPOSITORY_MARK + wiki.id)
            ledger.delete("marks", "name", PURGE_MARK_PREFIX + wiki.id)
            ledger.insert("marks", (PURGE_MARK_PREFIX + wiki.id, datetime.now(UTC).isoformat()))
        self.backups.finish_purges()
        return RemovedEntry(wiki, tuple(map(parse_key, keys)), tuple(host for host, _ in hosts))

    def set_settings(self, slug: str, settings: Mapping[str, str]) -> Wiki:
        """Put these settings in the place of a wiki's old ones."""
        return self._rewrite_wiki(slug, lambda _: settings)

    def update_settings(self, slug: str, changes: Mapping[str, str]) -> Wiki:
        """Set some settings of a wiki and leave the others; an empty text unsets one."""

        def changed(old: Mapping[str, str]) -> Mapping[str, str]:
            return {name: text for name, text in {**old, **changes}.items() if text}

        return self._rewrite_wiki(slug, changed)

    def suggest_slugs(self, slug: str) -> tuple[str, ...]:
        """Slugs near this one, nearest first: for the operator's own terminal, never for an answer to a visitor."""
        return tuple(
            difflib.get_close_matches(slug.lower()[:_MAX_SHOWN_CHARS], [wiki.slug for wiki in self.list_wikis()], n=3)
        )

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def _find_wiki(self, column: str, value: str) -> Wiki | None:
        with self._database.read_connection() as connection:
            return _find_by_column(connection, column, value) if connection else None

    def _bind_repository(self, ledger: RegistryTransaction, wiki: Wiki) -> Wiki:
        """The wiki with what is recorded of its repository, which is written too."""
        repository = self.bind(wiki)
        ledger.delete("marks", "name", REPOSITORY_MARK + wiki.id)
        if repository:
            ledger.insert("marks", (REPOSITORY_MARK + wiki.id, repository))
        return replace(wiki, repository=repository)

    def _rewrite_wiki(self, slug: str, settings_from: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Wiki:
        with self._database.write_transaction() as ledger:
            old = _find_by_column(ledger.connection, "slug", slug)
            if old is None:
                raise _make_not_found_error(slug)
            wiki = replace(old, settings=dict(settings_from(old.settings)))
            ledger.delete("wikis", "id", old.id)
            ledger.delete("hosts", "wiki_id", old.id)
            _insert_wiki(ledger, wiki)
        return wiki


def _make_wiki(slug: str, source: str, settings: Mapping[str, str]) -> Wiki:
    return Wiki(_make_id(), validate_slug(slug), source, datetime.now(UTC), dict(settings))


def _insert_new(ledger: RegistryTransaction, wiki: Wiki) -> Wiki:
    """Insert a new wiki. One that an earlier registry may have had as private is private until it is said not to be."""
    if "public" not in wiki.settings and has_mark(ledger.connection, REBUILT_MARK):
        wiki = replace(wiki, settings={**wiki.settings, "public": "false"})
    _insert_wiki(ledger, wiki)
    return wiki


def _insert_wiki(transaction: RegistryTransaction, wiki: Wiki) -> None:
    for host in parse_hosts(wiki.settings):
        if transaction.connection.execute("SELECT 1 FROM hosts WHERE host = ?", (host,)).fetchone():
            raise WikiExists(f"The host {host!r} is a wiki already.", hint="Take it from that wiki first.")
        transaction.insert("hosts", (host, wiki.id))
    transaction.insert(
        "wikis", (wiki.id, wiki.slug, wiki.source, _dump_settings(wiki.settings), wiki.created_at.isoformat())
    )


def _make_id() -> str:
    # 100 random bits: never derived from the slug, never the same twice.
    return base64.b32encode(secrets.token_bytes(13)).decode().lower()[:20]


def _find_by_column(connection: RegistryConnection, column: str, name: str) -> Wiki | None:
    if "\0" in name or not name.isascii():  # no slug or id looks like that, and SQLite need not see it
        return None
    row = connection.execute(f"SELECT {_WIKI_COLUMNS} FROM wikis WHERE {column} = ?", (name,)).fetchone()  # noqa: S608
    return _parse_wiki(row) if row else None


def _parse_wiki(row: tuple[str, str, str, str, str, str]) -> Wiki:
    wiki_id, slug, source, settings, created_at, repository = row
    try:
        parsed = json.loads(settings)
        if not all(isinstance(text, str) for pair in parsed.items() for text in pair):
            raise ValueError(settings)
        return Wiki(wiki_id, slug, source, datetime.fromisoformat(created_at), parsed, repository)
    except (ValueError, TypeError, AttributeError) as error:
        raise IndexCorrupt("A row of the registry cannot be understood.", hint=RESTORE_HINT) from error


def _dump_settings(settings: Mapping[str, str]) -> str:
    return json.dumps(dict(settings), ensure_ascii=False, sort_keys=True)


def _make_not_found_error(slug: str) -> WikiNotFound:
    shown = slug if len(slug) <= _MAX_SHOWN_CHARS else slug[:_MAX_SHOWN_CHARS] + "…"
    return WikiNotFound(f"There is no wiki {shown!r}.", hint="`wikiholt list` shows the wikis there are.")
