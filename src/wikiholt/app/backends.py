"""Where indexes and registry are kept, by the setting `store`: files in the data directory, or PostgreSQL."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wikiholt.app.settings.definitions import Settings
from wikiholt.domain.storage_protocols import DatabaseAdmin, IndexStore, NodeAssignments, QueryLog
from wikiholt.errors import MissingDependency
from wikiholt.indexing.index_backups import BackupPolicy
from wikiholt.storage.sqlite.query_log import SqliteQueryLog
from wikiholt.storage.sqlite.store import SqliteStore
from wikiholt.wikis.rate_limit import BucketSize, TokenBuckets
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.registry_files import LeftoverData

KEYWORD_CACHE_MIN_PAGES = 300
"""Up to here FTS5 answers in half a millisecond, and a word cache would only cost memory."""
KEYWORD_CACHE_MIN_PAGES_REMOTE = 50
"""The same where words of pages have to come from a database first."""


def no_shared_buckets(_: str, __: BucketSize) -> TokenBuckets | None:
    """Requests are counted in the process itself."""
    return None


@dataclass(frozen=True, slots=True)
class Backend:
    """A store with its registry, and what they stand on."""

    store: IndexStore
    registry: Registry
    open_query_log: Callable[[str], QueryLog]
    """Where the searches of the wiki with this id are written down, if they are."""
    keyword_cache_min_pages: int = KEYWORD_CACHE_MIN_PAGES
    """Up to so many pages a wiki needs no word cache."""
    databases: DatabaseAdmin | None = None
    open_buckets: Callable[[str, BucketSize], TokenBuckets | None] = no_shared_buckets
    """Where requests are counted, if that is not in the process itself."""
    open_assignments: Callable[[], NodeAssignments | None] = lambda: None
    """Which wikis this process looks after, where it shares that with others."""

    @property
    def is_shared(self) -> bool:
        """Whether other machines use it too."""
        return self.databases is not None


def open_backend(settings: Settings, backups: BackupPolicy) -> Backend:
    """The ground these settings describe; nothing is touched until it is used. Raises MissingExtra."""
    file = settings.data / "registry.sqlite"
    if not settings.store:
        store = SqliteStore(settings.data / "wikis")
        return Backend(
            store, Registry(file, backups=backups), lambda wiki_id: SqliteQueryLog(store.get_directory(wiki_id))
        )
    return _open_postgres(settings, backups, file)


def _open_postgres(settings: Settings, backups: BackupPolicy, file: Path) -> Backend:
    _require_driver()
    from wikiholt.storage.postgres import assignments, registry_store, token_buckets  # noqa: PLC0415 - as above
    from wikiholt.storage.postgres.admin import PostgresDatabaseAdmin  # noqa: PLC0415
    from wikiholt.storage.postgres.catalog import Catalog  # noqa: PLC0415
    from wikiholt.storage.postgres.pool import ConnectionPool  # noqa: PLC0415
    from wikiholt.storage.postgres.query_log import PostgresQueryLog  # noqa: PLC0415
    from wikiholt.storage.postgres.store import PostgresStore  # noqa: PLC0415

    home = Catalog(
        settings.store, (registry_store.REGISTRY_TABLES, token_buckets.BUCKET_TABLES, assignments.ASSIGNMENT_TABLES)
    )
    doors = ConnectionPool(settings.postgres_connections)
    # Not where the embedded store has its indexes: what is here are caches and mirrors, and goes with the wiki.
    scratch = settings.data / "scratch"
    store = PostgresStore(home, doors, scratch, settings.postgres_lease, hnsw_min_chunks=settings.postgres_hnsw_from)
    remains = LeftoverData(
        settings.data / "wikis",
        backups.directory or settings.data / "backups",
        lambda: registry_store.list_schema_names(home),
        file,
    )
    return Backend(
        store,
        Registry(file, backups=backups, database=registry_store.PostgresRegistry(home, remains=remains)),
        lambda wiki_id: PostgresQueryLog(store.placements, wiki_id),
        KEYWORD_CACHE_MIN_PAGES_REMOTE,
        PostgresDatabaseAdmin(home, doors, store, scratch),
        lambda kind, size: token_buckets.PostgresBuckets(home, kind, size),
        lambda: assignments.PostgresAssignments(home, settings.postgres_lease),
    )


def _require_driver() -> None:
    try:
        import psycopg  # noqa: F401, PLC0415 - it is an extra
    except ImportError as error:
        raise MissingDependency(
            "The setting store names a PostgreSQL, and its driver is not installed.",
            hint='pip install "wikiholt[postgres]"',
        ) from error


def is_same_backend(one: Settings, other: Settings) -> bool:
    """Whether both settings name the same place, as far as that can be told without going there."""
    if not one.store and not other.store:
        return one.data.resolve() == other.data.resolve()
    if not one.store or not other.store:
        return False
    _require_driver()
    from wikiholt.storage.postgres.address import DatabaseAddress  # noqa: PLC0415 - as above

    return DatabaseAddress.parse(one.store).location == DatabaseAddress.parse(other.store).location
