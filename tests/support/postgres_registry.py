"""The registry in PostgreSQL as a node sees it."""

from pathlib import Path

from wikiholt.index.backup_directory import BackupPolicy
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.wikis.home_tables import open_registry, open_sessions
from wikiholt.wikis.registry import Registry, SharedTables
from wikiholt.wikis.registry_store import LeftoverData


def open_node(home: Catalog, place: Path, timeout: float = 120.0, leftovers: LeftoverData | None = None) -> Registry:
    """The registry as a node with this data directory sees it."""
    plan = BackupPolicy(place / "backups", 5)
    tables = SharedTables(open_registry(home, timeout), open_sessions(home), leftovers)
    return Registry(place / "none", backups=plan, shared=tables)
