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

from wikiholt.domain.slugs import parse_host_header, parse_hosts, validate_slug
from wikiholt.domain.wiki import Key, Wiki
from wikiholt.errors import IndexCorrupt, WikiExists, WikiNotFound
from wikiholt.wikis.registry_schema import (
    REGISTRY_TABLES,
    RESTORE_HINT,
    TABLE_COLUMNS,
    RegistryRow,
    RegistryRows,
    get_value,
)
from wikiholt.wikis.registry_store import (
    WIKI_ID_COLUMNS,
    LeftoverData,
    RegistryReader,
    RegistryStore,
    RegistryWriter,
    is_revoked,
    write_version,
)
from wikiholt.wikis.revoked_list import REVOKED_FILE, STARTED_EMPTY, RevokedEntry, RevokedList
from wikiholt.wikis.small_store import SmallStore, SmallStoreFile

if TYPE_CHECKING:
    from wikiholt.index.backup_directory import BackupPolicy
    from wikiholt.wikis.keys import KeyStore
    from wikiholt.wikis.oauth_grants import OAuthGrants
    from wikiholt.wikis.registry_backups import RegistryBackups
    from wikiholt.wikis.sign_ins import SignInStore

_UNIQUE_COLUMNS = {"wikis": ("id", "slug"), "hosts": ("host",), "keys": ("id",)}
"""The columns that are unique within a table."""
_MAX_SHOWN_CHARS = 80
REPOSITORIES_DIRECTORY = "repositories"
"""The directory of the repositories of managed wikis, in a data directory."""
REGISTRY_FILE = "registry.sqlite"
"""The registry in a data directory."""
SESSIONS_FILE = "sessions.sqlite"
"""The sign-ins and grants in a data directory."""


@dataclass(frozen=True, slots=True)
class RemovedWiki:
    """A removed wiki with its keys and hosts, and the names of its index files."""

    wiki: Wiki
    keys: tuple[Key, ...]
    hosts: tuple[str, ...]
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedTables:
    """The tables of a registry and of sign-ins that several nodes share, and what finds data of a lost registry."""

    registry: SmallStore
    sessions: SmallStore
    leftovers: LeftoverData | None = None


class Registry:
    """All wikis by slug. Safe to use from many threads and processes; no error reveals another wiki."""

    def __init__(
        self,
        path: Path,
        *,
        timeout_s: float = 10.0,
        backups: "BackupPolicy | None" = None,
        shared: SharedTables | None = None,
        repositories: Path | None = None,
    ) -> None:
        """Uses the file `path`, or `shared` tables. Backups are beside that path unless the policy names a directory.

        `repositories` is the directory of the repositories of managed wikis; by default it is beside that path too.
        """
        self.repositories = repositories or path.parent / REPOSITORIES_DIRECTORY
        self._backup_policy = backups
        self._timeout_s = timeout_s
        self._path = path
        self._shared = shared
        self._stop_following: Callable[[], None] = lambda: None
        directory = (backups and backups.directory) or path.parent / "backups"
        self._backup_directory = directory / "registry"
        revoked_list = RevokedList(path.parent / REVOKED_FILE, self._backup_directory / REVOKED_FILE)
        if shared is not None:
            self._store = RegistryStore(
                shared.registry, revoked_list, shared.leftovers, where="The registry in PostgreSQL"
            )
            return
        file = SmallStoreFile(path, REGISTRY_TABLES, timeout_s, fill=write_version)
        leftovers = LeftoverData(path.parent / "wikis", directory)
        self._store = RegistryStore(file, revoked_list, leftovers, where=f"The registry {path}")

    # Imported on first use: a command that lists wikis needs none of them, and should start at once.

    @cached_property
    def keys(self) -> "KeyStore":
        """The keys of all wikis."""
        from wikiholt.wikis.keys import KeyStore  # noqa: PLC0415

        return KeyStore(self._store)

    @cached_property
    def oauth(self) -> "OAuthGrants":
        """The clients and tokens of the authorization server for agents."""
        from wikiholt.wikis.oauth_grants import OAuthGrants  # noqa: PLC0415

        return OAuthGrants(self._sessions, self.keys)

    @cached_property
    def sign_ins(self) -> "SignInStore":
        """The browsers that are signed in."""
        from wikiholt.wikis.sign_ins import SignInStore  # noqa: PLC0415

        return SignInStore(self._sessions)

    @cached_property
    def backups(self) -> "RegistryBackups":
        """The backups of the registry."""
        from wikiholt.index.backup_directory import BackupPolicy  # noqa: PLC0415
        from wikiholt.wikis.registry_backups import RegistryBackups  # noqa: PLC0415

        policy = self._backup_policy or BackupPolicy()
        return RegistryBackups(self._store, self._backup_directory, policy.keep_count)

    @cached_property
    def _sessions(self) -> SmallStore:
        from wikiholt.wikis.sign_ins import SessionFile  # noqa: PLC0415

        return self._shared.sessions if self._shared else SessionFile(self._path.with_name(SESSIONS_FILE))

    def add(
        self,
        slug: str,
        source: str,
        settings: Mapping[str, str] | None = None,
        wiki_id: str | None = None,
    ) -> Wiki:
        """Register a wiki under a new random id, or `wiki_id`. A managed wiki has an empty source.

        Raises InvalidSlug, WikiExists or, for its hosts, InvalidSetting.
        """
        wiki = self._resolve_source(_make_wiki(slug, source, settings or {}, wiki_id or make_wiki_id()))
        with self._store.write() as writer:
            if writer.select("wikis", "slug", slug):
                raise WikiExists(f"There is already a wiki {slug!r}.", hint="Choose another slug, or remove it first.")
            return _insert_new(writer, _bind(wiki))

    def add_many(self, wikis: Iterable[tuple[str, str, Mapping[str, str]]]) -> list[Wiki]:
        """Register (slug, source, settings) tuples in one transaction, skipping slugs that are taken.

        Returns the new wikis. Raises for the first invalid one, and then registers none.
        """
        added = []
        with self._store.write() as writer:
            for slug, source, settings in wikis:
                wiki = _make_wiki(slug, source, settings, make_wiki_id())
                if not writer.select("wikis", "slug", slug):
                    added.append(_insert_new(writer, _bind(wiki)))
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
        with self._store.read() as reader:
            found = reader.select("hosts", "host", name) if reader else []
            return self._select_wiki(reader, "id", str(get_value("hosts", found[0], "wiki_id"))) if found else None

    def get_only(self) -> Wiki | None:
        """The only wiki; None if there is none or more than one."""
        with self._store.read() as reader:
            rows = reader.select("wikis", limit=2) if reader else []
        return self._parse_wiki(rows[0]) if len(rows) == 1 else None

    def list_wikis(self) -> list[Wiki]:
        """Every wiki, by slug."""
        with self._store.read() as reader:
            rows = reader.select("wikis") if reader else []
        return sorted(map(self._parse_wiki, rows), key=lambda wiki: wiki.slug)

    def get_version(self) -> str | None:
        """A token that changes with every change of the registry; cheaper than a list. None if there is no registry."""
        return self._store.get_version()

    def follow(self, max_age_s: float) -> None:
        """Read a registry that nodes share from a copy in memory, which is never older, until `close`; 0: do not."""
        self._stop_following = self._store.follow(max_age_s)

    @property
    def revoked_list(self) -> RevokedList:
        """What no older copy of the registry brings back."""
        return self._store.revoked_list

    def read_rows(self) -> RegistryRows:
        """All rows, in one consistent read."""
        with self._store.read_snapshot() as reader:
            return reader.read_rows() if reader else {table: [] for table in TABLE_COLUMNS}

    def import_rows(self, rows: RegistryRows, wiki_ids: set[str]) -> int:
        """Import wikis of another registry with ids, hosts and keys, in one transaction; returns the number of rows.

        Equal rows are skipped, and what was revoked here or there stays so. Raises WikiExists for rows that conflict.
        """
        with self._store.write() as writer:
            missing = find_missing_rows(writer.read_rows(), rows, wiki_ids)
            entries = [RevokedEntry(*map(str, row)) for row in missing["revoked"]]
            known = {*entries, *(self._store.revoked_list.load() or ())}
            writer.revoke(entries)
            for table in _UNIQUE_COLUMNS:
                for row in missing[table]:
                    if not is_revoked(table, row, known):
                        writer.insert(table, row)
        return sum(map(len, missing.values()))

    def rebind(self, wiki: Wiki) -> Wiki:
        """Record the repository that is at the wiki's path now as the wiki's own. Raises WikiNotFound."""
        with self._store.write() as writer:
            known = self._select_wiki(writer, "id", wiki.id)
            if known is None:
                raise _make_not_found_error(wiki.slug)
            bound = _bind(known)
            writer.delete("wikis", "id", wiki.id)
            writer.insert("wikis", _to_row(bound))
            return bound

    def is_rebuilt(self) -> bool:
        """Whether this registry was started empty after an earlier one was lost; old indexes may still exist."""
        with self._store.read() as reader:
            return reader is not None and reader.has_fact(STARTED_EMPTY)

    def expect_empty(self) -> None:
        """Accept an empty registry as new despite leftover data: another registry's rows are about to be imported."""
        self._store.accept_empty()

    def remove(self, slug: str, wiki_id: str | None = None) -> RemovedWiki:
        """Remove a wiki with its keys and hosts, forever: no older copy of the registry brings it back.

        Its index is not touched. With `wiki_id`, only if the slug still belongs to that wiki.
        """
        from wikiholt.wikis.keys import parse_key  # noqa: PLC0415

        with self._store.write() as writer:
            wiki = self._select_wiki(writer, "slug", slug)
            if wiki is None or wiki_id not in (None, wiki.id):
                raise _make_not_found_error(slug)
            keys = writer.select("keys", "wiki_id", wiki.id)
            hosts = writer.select("hosts", "wiki_id", wiki.id)
            writer.revoke_wiki(wiki.id)
        return RemovedWiki(wiki, tuple(map(parse_key, keys)), tuple(str(host) for host, _ in hosts))

    def update_settings(self, slug: str, changes: Mapping[str, str]) -> Wiki:
        """Change some settings of a wiki; an empty value unsets one."""
        with self._store.write() as writer:
            old = self._select_wiki(writer, "slug", slug)
            if old is None:
                raise _make_not_found_error(slug)
            wiki = replace(old, settings={name: value for name, value in {**old.settings, **changes}.items() if value})
            writer.delete("wikis", "id", old.id)
            writer.delete("hosts", "wiki_id", old.id)
            _insert_wiki(writer, wiki)
        return wiki

    def get_managed_path(self, wiki_id: str) -> Path:
        """The path of the repository of a managed wiki with this id."""
        return self.repositories / f"{wiki_id}.git"

    def suggest_slugs(self, slug: str) -> tuple[str, ...]:
        """Similar slugs, most similar first. For the operator's terminal only, never for visitors."""
        import difflib  # noqa: PLC0415

        return tuple(
            difflib.get_close_matches(slug.lower()[:_MAX_SHOWN_CHARS], [wiki.slug for wiki in self.list_wikis()], n=3)
        )

    def close(self) -> None:
        """Stop following it, and check it again before its next use."""
        self._stop_following()
        self._store.forget_checks()

    def _find_wiki(self, column: str, value: str) -> Wiki | None:
        if "\0" in value or not value.isascii():  # no slug or id contains these
            return None
        with self._store.read() as reader:
            return self._select_wiki(reader, column, value) if reader else None

    def _select_wiki(self, reader: RegistryReader | None, column: str, value: str) -> Wiki | None:
        rows = reader.select("wikis", column, value) if reader else []
        return self._parse_wiki(rows[0]) if rows else None

    def _parse_wiki(self, row: RegistryRow) -> Wiki:
        return self._resolve_source(_parse_row(row))

    def _resolve_source(self, wiki: Wiki) -> Wiki:
        """The wiki with the path of its repository, which is not stored for a managed wiki: the directory may move."""
        return replace(wiki, source=str(self.get_managed_path(wiki.id))) if wiki.is_managed else wiki


def _bind(wiki: Wiki) -> Wiki:
    """Mark the repository of a wiki as its own, if possible, and record which one it is."""
    from wikiholt.git.repository_identity import SourceIdentities  # noqa: PLC0415 - a command that lists needs none

    return replace(wiki, repository=SourceIdentities().bind(wiki))


def _make_wiki(slug: str, source: str, settings: Mapping[str, str], wiki_id: str) -> Wiki:
    return Wiki(wiki_id, validate_slug(slug), source, datetime.now(UTC), dict(settings))


def _insert_new(writer: RegistryWriter, wiki: Wiki) -> Wiki:
    """Insert a new wiki. In a rebuilt registry it is private unless its settings say otherwise."""
    if "public" not in wiki.settings and writer.has_fact(STARTED_EMPTY):
        wiki = replace(wiki, settings={**wiki.settings, "public": "false"})
    _insert_wiki(writer, wiki)
    return wiki


def _insert_wiki(writer: RegistryWriter, wiki: Wiki) -> None:
    for host in parse_hosts(wiki.settings):
        if writer.select("hosts", "host", host):
            raise WikiExists(f"The host {host!r} belongs to another wiki.", hint="Remove it from that wiki first.")
        writer.insert("hosts", (host, wiki.id))
    writer.insert("wikis", _to_row(wiki))


def make_wiki_id() -> str:
    """A new random id of a wiki."""
    # 100 random bits: never derived from the slug, never the same twice.
    return base64.b32encode(os.urandom(13)).decode().lower()[:20]


def _to_row(wiki: Wiki) -> RegistryRow:
    source = "" if wiki.is_managed else wiki.source
    settings = json.dumps(dict(wiki.settings), ensure_ascii=False, sort_keys=True)
    return wiki.id, wiki.slug, source, settings, wiki.created_at.isoformat(), wiki.repository


def _parse_row(row: RegistryRow) -> Wiki:
    wiki_id, slug, source, settings, created_at, repository = map(str, row)
    try:
        parsed = json.loads(settings)
        if not all(isinstance(text, str) for pair in parsed.items() for text in pair):
            raise ValueError(settings)
        return Wiki(wiki_id, slug, source, datetime.fromisoformat(created_at), parsed, repository)
    except (ValueError, TypeError, AttributeError) as error:
        raise IndexCorrupt("A row of the registry is not valid.", hint=RESTORE_HINT) from error


def _make_not_found_error(slug: str) -> WikiNotFound:
    shown = slug if len(slug) <= _MAX_SHOWN_CHARS else slug[:_MAX_SHOWN_CHARS] + "…"
    return WikiNotFound(f"There is no wiki {shown!r}.", hint="`wikiholt list` shows all wikis.", slug=shown)


# Import of another registry's rows.


def find_missing_rows(present: RegistryRows, incoming: RegistryRows, wiki_ids: set[str]) -> RegistryRows:
    """The rows of these wikis, and of no wiki, that are not present yet. Equal rows are skipped.

    Raises WikiExists if a different row has the same unique value.
    """
    entries = set(map(tuple, present["revoked"]))
    missing: RegistryRows = {"revoked": [row for row in incoming["revoked"] if tuple(row) not in entries]}
    for table, unique_columns in _UNIQUE_COLUMNS.items():
        known = {(column, get_value(table, row, column)): row for row in present[table] for column in unique_columns}
        missing[table] = []
        for row in incoming[table]:
            if get_value(table, row, WIKI_ID_COLUMNS[table]) not in {None, *wiki_ids}:
                continue
            same = [known.get((column, get_value(table, row, column))) for column in unique_columns]
            if all(other is None for other in same):
                missing[table].append(row)
            elif any(other != row for other in same):
                value = get_value(table, row, unique_columns[-1])
                raise WikiExists(
                    f"Another {table.removesuffix('s')} {value!r} already exists.",
                    hint="Nothing was changed. Remove or rename one of the two, then try again.",
                )
    return missing
