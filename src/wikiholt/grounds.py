"""Where indexes and registry are kept, by the setting `store`: files in the data directory, or PostgreSQL."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wikiholt.backups import BackupPlan
from wikiholt.errors import MissingExtra
from wikiholt.limits import Buckets, Size
from wikiholt.ports import Databases, QueryLog, Shifts, Store
from wikiholt.registry import Registry, Remains
from wikiholt.settings import Settings
from wikiholt.stores.sqlite.queries import SqliteQueryLog
from wikiholt.stores.sqlite.store import SqliteStore

FEW_PAGES = 300
"""Up to here FTS5 answers in half a millisecond, and a word cache would only cost memory."""
FEW_PAGES_AWAY = 50
"""The same where words of pages have to come from a database first."""


def own_buckets(_: str, __: Size) -> Buckets | None:
    """Requests are counted in the process itself."""
    return None


@dataclass(frozen=True, slots=True)
class Ground:
    """A store with its registry, and what they stand on."""

    store: Store
    registry: Registry
    query_log: Callable[[str], QueryLog]
    """Where the searches of the wiki with this id are written down, if they are."""
    few_pages: int = FEW_PAGES
    """Up to so many pages a wiki needs no word cache."""
    databases: Databases | None = None
    buckets: Callable[[str, Size], Buckets | None] = own_buckets
    """Where requests are counted, if that is not in the process itself."""
    shifts: Callable[[], Shifts | None] = lambda: None
    """Which wikis this process looks after, where it shares that with others."""

    @property
    def shared(self) -> bool:
        """Whether other machines use it too."""
        return self.databases is not None


def ground_of(settings: Settings, backups: BackupPlan) -> Ground:
    """The ground these settings describe; nothing is touched until it is used. Raises MissingExtra."""
    file = settings.data / "registry.sqlite"
    if not settings.store:
        store = SqliteStore(settings.data / "wikis")
        return Ground(store, Registry(file, backups=backups), lambda wiki_id: SqliteQueryLog(store.directory(wiki_id)))
    return _in_postgres(settings, backups, file)


def _in_postgres(settings: Settings, backups: BackupPlan, file: Path) -> Ground:
    _require_driver()
    from wikiholt.stores.postgres import buckets, registry, shifts  # noqa: PLC0415 - as above
    from wikiholt.stores.postgres.home import Home  # noqa: PLC0415
    from wikiholt.stores.postgres.operating import PostgresDatabases  # noqa: PLC0415
    from wikiholt.stores.postgres.pool import Doors  # noqa: PLC0415
    from wikiholt.stores.postgres.queries import PostgresQueryLog  # noqa: PLC0415
    from wikiholt.stores.postgres.store import PostgresStore  # noqa: PLC0415

    home = Home(settings.store, (registry.TABLES, buckets.TABLES, shifts.TABLES))
    doors = Doors(settings.postgres_connections)
    # Not where the embedded store has its indexes: what is here are caches and mirrors, and goes with the wiki.
    scratch = settings.data / "scratch"
    store = PostgresStore(home, doors, scratch, settings.postgres_lease, hnsw_from=settings.postgres_hnsw_from)
    remains = Remains(
        settings.data / "wikis", backups.place or settings.data / "backups", lambda: registry.name_schemas(home), file
    )
    return Ground(
        store,
        Registry(file, backups=backups, database=registry.PostgresRegistry(home, remains=remains)),
        lambda wiki_id: PostgresQueryLog(store.placements, wiki_id),
        FEW_PAGES_AWAY,
        PostgresDatabases(home, doors, store, scratch),
        lambda kind, size: buckets.PostgresBuckets(home, kind, size),
        lambda: shifts.PostgresShifts(home, settings.postgres_lease),
    )


def _require_driver() -> None:
    try:
        import psycopg  # noqa: F401, PLC0415 - it is an extra
    except ImportError as error:
        raise MissingExtra(
            "The setting store names a PostgreSQL, and its driver is not installed.",
            hint='pip install "wikiholt[postgres]"',
        ) from error


def same_ground(one: Settings, other: Settings) -> bool:
    """Whether both settings name the same place, as far as that can be told without going there."""
    if not one.store and not other.store:
        return one.data.resolve() == other.data.resolve()
    if not one.store or not other.store:
        return False
    _require_driver()
    from wikiholt.stores.postgres.address import Address  # noqa: PLC0415 - as above

    return Address.parse(one.store).place == Address.parse(other.store).place
