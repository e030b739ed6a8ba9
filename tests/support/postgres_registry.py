"""The registry in PostgreSQL as a node sees it."""

from contextlib import suppress
from pathlib import Path

from wikiholt.errors import DatabaseUnavailable
from wikiholt.index.backup_directory import BackupPolicy
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.wikis.home_tables import open_registry, open_sessions
from wikiholt.wikis.registry import Registry, SharedTables
from wikiholt.wikis.registry_store import CopyReader, LeftoverData


def open_node(home: Catalog, place: Path, timeout: float = 120.0, leftovers: LeftoverData | None = None) -> Registry:
    """The registry as a node with this data directory sees it."""
    plan = BackupPolicy(place / "backups", 5)
    tables = SharedTables(open_registry(home, timeout), open_sessions(home), leftovers)
    return Registry(place / "none", backups=plan, shared=tables)


def is_copied(registry: Registry) -> bool:
    """Whether the registry is read from a copy in memory now."""
    with suppress(DatabaseUnavailable), registry._store.read() as reader:
        return isinstance(reader, CopyReader)
    return False
