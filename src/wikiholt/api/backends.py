"""The storage backend that the setting `store` selects: files in the data directory, or PostgreSQL."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wikiholt.api.settings.definitions import Settings
from wikiholt.domain.storage_protocols import DatabaseAdmin, IndexStore, NodeAssignments, WikiIndex
from wikiholt.errors import InvalidSetting, MissingDependency, make_extra_hint
from wikiholt.index.backup_directory import BackupPolicy
from wikiholt.index.sqlite.faiss_codes import make_codes_choice
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.wikis.query_log_table import QueryLogTable
from wikiholt.wikis.registry import REGISTRY_FILE, REPOSITORIES_DIRECTORY, Registry, SharedTables
from wikiholt.wikis.registry_store import LeftoverData
from wikiholt.wikis.sqlite_query_log import SqliteQueryLog

if TYPE_CHECKING:
    from wikiholt.index.postgres.local_copy import LocalCopy

KEYWORD_CACHE_MIN_PAGES = 1_000
"""Up to this size FTS5 answers in a millisecond, and a keyword cache would only cost memory."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A store with its registry, and the factories that depend on where they are stored."""

    store: IndexStore
    registry: Registry
    open_query_log: Callable[[str], QueryLogTable]
    """Opens the query log of a wiki by its id."""
    keyword_cache_min_pages: int = KEYWORD_CACHE_MIN_PAGES
    """A wiki with at most this number of pages has no keyword cache."""
    open_copy: Callable[[WikiIndex], "LocalCopy | None"] = lambda _: None
    """Opens this node's copy of an index; None if the index itself is searched."""
    databases: DatabaseAdmin | None = None
    open_assignments: Callable[[], NodeAssignments | None] = lambda: None
    """Opens the assignment of wikis to nodes; None if there is only one node."""

    @property
    def is_shared(self) -> bool:
        """Whether several nodes can use it."""
        return self.databases is not None


def open_backend(settings: Settings, backups: BackupPolicy) -> Backend:
    """The backend that the settings describe. Does no I/O. Raises MissingDependency."""
    file = settings.data / REGISTRY_FILE
    if not settings.store:
        store = SqliteStore(settings.data / "wikis", make_codes_choice(settings.vectors, settings.faiss_crossover))
        return Backend(
            store,
            Registry(file, backups=backups, repositories=get_repositories_directory(settings)),
            lambda wiki_id: SqliteQueryLog(store.get_directory(wiki_id)),
        )
    return _open_postgres(settings, backups, file)


def _open_postgres(settings: Settings, backups: BackupPolicy, file: Path) -> Backend:
    _require_driver()
    from wikiholt.index.postgres import assignments  # noqa: PLC0415 - optional dependency
    from wikiholt.index.postgres.admin import PostgresDatabaseAdmin  # noqa: PLC0415
    from wikiholt.index.postgres.catalog import Catalog  # noqa: PLC0415
    from wikiholt.index.postgres.local_copy import COPY_MIN_PAGES  # noqa: PLC0415
    from wikiholt.index.postgres.pool import ConnectionPool  # noqa: PLC0415
    from wikiholt.index.postgres.store import PostgresStore  # noqa: PLC0415
    from wikiholt.wikis import home_tables  # noqa: PLC0415
    from wikiholt.wikis.postgres_query_log import PostgresQueryLog  # noqa: PLC0415

    catalog = Catalog(settings.store, (home_tables.REGISTRY_TABLES, assignments.ASSIGNMENT_TABLES))
    pool = ConnectionPool(settings.postgres_connections, primaries=catalog.pool.primaries)
    processes = settings.serve_workers + (settings.serve_workers > 1)  # with several workers, the scheduler is another
    # Separate from the indexes of the file store. It contains caches and mirrors, which are deleted with the wiki.
    scratch = settings.data / "scratch"
    store = PostgresStore(
        catalog,
        pool,
        scratch,
        settings.postgres_lease,
        # A Chroma collection follows the changes of a file.
        choose_codes=make_codes_choice(settings.vectors, settings.faiss_crossover),
        copy_min_pages=0 if settings.chroma_url or settings.chroma_path else COPY_MIN_PAGES,
    )
    leftovers = LeftoverData(
        settings.data / "wikis",
        backups.directory or settings.data / "backups",
        lambda: home_tables.describe_leftover_schemas(catalog),
        file,
    )
    return Backend(
        store,
        Registry(
            file,
            backups=backups,
            shared=SharedTables(home_tables.open_registry(catalog), home_tables.open_sessions(catalog), leftovers),
            repositories=get_repositories_directory(settings),
        ),
        lambda wiki_id: PostgresQueryLog(store.placements, wiki_id),
        open_copy=store.open_copy if settings.vectors != "store" else lambda _: None,
        databases=PostgresDatabaseAdmin(catalog, pool, store, scratch, settings.postgres_connections),
        open_assignments=lambda: assignments.PostgresAssignments(
            catalog, settings.postgres_lease, settings.postgres_connections * processes
        ),
    )


def get_repositories_directory(settings: Settings) -> Path:
    """The directory of the repositories of managed wikis."""
    return settings.data / Path(settings.repositories_directory or REPOSITORIES_DIRECTORY).expanduser()


def _require_driver() -> None:
    try:
        import psycopg  # noqa: F401, PLC0415 - optional dependency
    except ImportError as error:
        raise MissingDependency(
            "The setting store names a PostgreSQL database, but its driver is not installed.",
            hint=make_extra_hint("postgres"),
        ) from error


def format_setup_sql(settings: Settings) -> list[str]:
    """The psql input with which an administrator creates role, database and extension. Raises InvalidSetting."""
    if not settings.store:
        raise InvalidSetting(
            "The wikis are stored in files; there is no database to prepare.",
            hint='Set store = "postgresql://user:secret@host/database".',
        )
    _require_driver()
    from wikiholt.index.postgres.address import DatabaseAddress  # noqa: PLC0415 - optional dependency

    return DatabaseAddress.parse(settings.store).format_setup_sql()


def is_same_backend(one: Settings, other: Settings) -> bool:
    """Whether both settings name the same store. Compares the addresses only, without connecting."""
    if not one.store and not other.store:
        return one.data.resolve() == other.data.resolve()
    if not one.store or not other.store:
        return False
    _require_driver()
    from wikiholt.index.postgres.address import DatabaseAddress  # noqa: PLC0415 - optional dependency

    return DatabaseAddress.parse(one.store).location == DatabaseAddress.parse(other.store).location
