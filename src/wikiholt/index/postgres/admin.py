"""Database administration for the operator: status, adding and removing databases, and moves."""

import math
import secrets
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psycopg

from wikiholt.domain.wiki import MAX_WIKIS, DatabaseStatus
from wikiholt.errors import WikiholtError
from wikiholt.index.postgres import move, provision
from wikiholt.index.postgres.assignments import COUNT_NODES, find_connection_shortage
from wikiholt.index.postgres.catalog import Catalog, CatalogDatabase
from wikiholt.index.postgres.locks import TimeoutCounter
from wikiholt.index.postgres.pool import ConnectionPool
from wikiholt.index.postgres.primary import find_replication_fault
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.index.sqlite.wiki_directory import list_wiki_directories

_SELECT_VERSIONS = """
SELECT split_part(current_setting('server_version'), ' ', 1),
    coalesce((SELECT extversion FROM pg_extension WHERE extname = 'vector'), '')
"""

_SELECT_UNEXPECTED_ROLES = """
WITH place AS (SELECT oid, nspowner, nspacl FROM pg_namespace WHERE nspname = %(schema)s),
relations AS (SELECT relowner, relacl FROM pg_class WHERE relnamespace = (SELECT oid FROM place)),
allowed(id) AS (
    SELECT nspowner FROM place
    UNION SELECT entry.grantee FROM place, aclexplode(nspacl) AS entry
    UNION SELECT relowner FROM relations
    UNION SELECT entry.grantee FROM relations, aclexplode(relacl) AS entry
    UNION SELECT member FROM pg_auth_members JOIN pg_roles ON pg_roles.oid = roleid
        WHERE rolname = %(role)s
)
SELECT coalesce(rolname, CASE WHEN id = 0 THEN 'PUBLIC' ELSE id::text END) AS name
FROM allowed LEFT JOIN pg_roles ON pg_roles.oid = id
WHERE rolname IS NULL OR rolname NOT IN (current_user, %(role)s) ORDER BY name
"""


class PostgresDatabaseAdmin:
    """`DatabaseAdmin` for the databases of one catalog and the store in them."""

    def __init__(
        self, catalog: Catalog, pool: ConnectionPool, store: PostgresStore, scratch: Path, wiki_connections: int
    ) -> None:
        """`wiki_connections` is the limit of `pool`."""
        self._wiki_connections = wiki_connections
        self._catalog = catalog
        self._pool = pool
        self._store = store
        self._scratch = scratch

    def get_statuses(self) -> Sequence[DatabaseStatus]:
        counts = self._store.placements.count_wikis()
        with self._catalog.read_connection() as connection:
            (nodes,) = connection.execute(COUNT_NODES).fetchone() or (0,)
        return [
            self._get_status(database, nodes, counts.get(database.name, 0))
            for database in self._catalog.list_databases()
        ]

    def check_wiki_login(self, name: str) -> str:
        return _check_wiki_login(self._catalog.get_database(name))

    def list_unexpected_roles(self, wiki_id: str) -> Sequence[str]:
        placement = self._store.placements.find(wiki_id, refresh=True)
        if placement is None:
            return []
        names = {"schema": placement.schema, "role": placement.role}
        with self._catalog.get_database(placement.database).connections.read_connection() as connection:
            return [name for (name,) in connection.execute(_SELECT_UNEXPECTED_ROLES, names).fetchall()]

    def repair_access(self, wiki_id: str) -> None:
        self._store.placements.repair(wiki_id)

    def find_unfinished_moves(self) -> Sequence[str]:
        return move.find_unfinished_moves(self._store.placements)

    def finish_move(self, wiki_id: str) -> None:
        move.finish_move(self._store, wiki_id)

    def add(self, name: str, address: str, weight: float, max_wikis: int = MAX_WIKIS) -> DatabaseStatus:
        database = self._catalog.add_database(name, address, weight, max_wikis)
        return next(status for status in self.get_statuses() if status.name == database.name)

    def remove(self, name: str) -> None:
        self._catalog.remove_database(name)

    def set_open(self, name: str, *, accept_new: bool, max_wikis: int | None = None) -> None:
        self._catalog.set_open(name, accept_new=accept_new, max_wikis=max_wikis)

    def get_database_name(self, wiki_id: str) -> str | None:
        placement = self._store.placements.find(wiki_id, refresh=True)
        return placement.database if placement is not None else None

    def find_strays(self, wiki_id: str) -> Sequence[str]:
        return self._store.placements.find_strays(wiki_id)

    def move(self, wiki_id: str, to: str, max_mb_per_s: float = math.inf) -> bool:
        return move.move_wiki(self._store, wiki_id, to, max_mb_per_s=max_mb_per_s)

    def remove_leftovers(self, wiki_ids: Collection[str]) -> None:
        known = set(wiki_ids)
        for wiki_id in list_wiki_directories(self._scratch):
            if wiki_id not in known:
                shutil.rmtree(self._scratch / wiki_id, ignore_errors=True)
        for wiki_id in self.find_unfinished_moves():
            with suppress(WikiholtError):  # another node is finishing it
                move.finish_move(self._store, wiki_id, 0)

    def get_metrics(self) -> Mapping[str, int]:
        return {
            "connections": self._catalog.pool.open_count + self._pool.open_count,
            "leases": self._store.leases.count,
        }

    def get_timeout_counts(self) -> Mapping[str, int]:
        return _add_counts(self._catalog.pool.timeout_counter, self._pool.timeout_counter)

    def get_refusal_counts(self) -> Mapping[str, int]:
        return _add_counts(self._catalog.pool.refusal_counter, self._pool.refusal_counter)

    def get_availability(self) -> Mapping[str, bool]:
        unreachable = self._pool.unreachable
        return {
            name: is_available and location not in unreachable
            for name, (location, is_available) in self._catalog.availability.items()
        }

    def close(self) -> None:
        self._pool.close()
        self._catalog.close()

    def _get_status(self, database: CatalogDatabase, nodes: int, wikis: int) -> DatabaseStatus:
        server = vector = problem = shortage = fault = ""
        try:
            with database.connections.read_connection() as connection:
                server, vector = connection.execute(_SELECT_VERSIONS).fetchone() or ("", "")
                shortage = find_connection_shortage(connection, nodes, self._wiki_connections)
                fault = find_replication_fault(connection, database.address)
        except WikiholtError as error:
            cause = " ".join(str(error.__cause__ or "").split())
            problem = f"{error.message}: {cause}" if cause else error.message
        return DatabaseStatus(
            database.name,
            database.address.redacted,
            database.accepts_new,
            database.weight,
            wikis,
            database.max_wikis,
            server,
            vector,
            problem,
            shortage,
            fault,
        )


def _add_counts(operator: TimeoutCounter, wikis: TimeoutCounter) -> dict[str, int]:
    wiki_counts = wikis.counts
    return {kind: count + wiki_counts[kind] for kind, count in operator.counts.items()}


def _check_wiki_login(database: CatalogDatabase) -> str:
    """Log in with a temporary role, as a new wiki would. Returns the server's reason if that fails."""
    role, secret = f"wikiholt_check_{secrets.token_hex(6)}", secrets.token_urlsafe(24)
    connections = database.connections.with_subject(role)
    with connections.write_transaction() as connection:
        provision.create_role(connection, role, secret, database.group)
    try:
        psycopg.connect(database.address.with_login(role, secret).conninfo).close()
    except psycopg.Error as error:
        return " ".join(str(error).split())
    finally:
        with connections.write_transaction() as connection:
            provision.revoke_login(connection, role)
            provision.drop_role(connection, role)
    return ""
