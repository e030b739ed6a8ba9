"""Assigns wikis to nodes and carries messages between nodes, through the home database.

A row of `work` assigns a wiki to a node for as long as the node's lease in `nodes` lasts. One thread sends a heartbeat
three times per lease: it renews the lease, removes expired nodes, claims wikis up to this node's share and releases the
surplus. Between heartbeats it listens. All times are the database's.
"""

import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Set
from contextlib import suppress

from wikiholt.domain.storage_protocols import NodeMessage
from wikiholt.index.postgres.catalog import Catalog, TableSet
from wikiholt.index.postgres.listener import NOTIFY_CHANNEL, Listener
from wikiholt.index.postgres.pool import Connection

_LOG = logging.getLogger(__name__)

REGISTRY_CHANGED, NODES_CHANGED, WIKIS_UNASSIGNED, WIKI_MESSAGE = "registry", "nodes", "free", "work"
"""Events: the registry changed, a node joined, wikis were released, a wiki has a message."""

ASSIGNMENT_TABLES = TableSet(
    "assignments",
    (
        "CREATE TABLE IF NOT EXISTS nodes (id text PRIMARY KEY, name text NOT NULL, until timestamptz NOT NULL)",
        # Deleting a node releases its wikis in the same transaction.
        "CREATE TABLE IF NOT EXISTS work (wiki_id text PRIMARY KEY, node text REFERENCES nodes ON DELETE SET NULL,"
        " asked text)",
        "CREATE INDEX IF NOT EXISTS work_of_a_node ON work (node, wiki_id)",
        "CREATE INDEX IF NOT EXISTS work_asked_for ON work (node) WHERE asked IS NOT NULL",
    ),
)

COUNT_NODES = "SELECT count(*) FROM nodes WHERE until > clock_timestamp()"
OPERATOR_CONNECTIONS = 11
"""A node's connections as the operator: eight in the pool, two that listen, one for an administrator's command."""
_SELECT_AVAILABLE = (
    "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
    " - current_setting('reserved_connections')::int"
)
_NO_WAIT = "synchronous_commit TO off"
"""Nothing here must survive a failover, and a standby that is gone must not stop the nodes, nor a search."""
_CLAIM_BATCH_WIKIS = 500
_MIN_HEARTBEAT_INTERVAL_S = 0.2
"""Minimum time between two heartbeats, however many notifications arrive."""
_RENEW_NODE = (
    "UPDATE nodes SET until = clock_timestamp() + make_interval(secs => %s)"
    " WHERE id = %s AND until > clock_timestamp() RETURNING 1"
)
_INSERT_NODE = "INSERT INTO nodes VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s))"
# A lease that ends later than in an hour is older than a change of the server's clock.
_DELETE_EXPIRED_NODES = (
    "DELETE FROM nodes WHERE until NOT BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 hour' RETURNING id"
)
_INSERT_WORK = (
    "INSERT INTO work (wiki_id) SELECT id FROM wikis"
    " WHERE NOT EXISTS (SELECT 1 FROM work WHERE wiki_id = id) ORDER BY id ON CONFLICT DO NOTHING"
)
_DELETE_WORK = "DELETE FROM work WHERE NOT EXISTS (SELECT 1 FROM wikis WHERE id = wiki_id)"
_COUNT_NODES = (
    "SELECT count(*), extract(epoch FROM min(until) FILTER (WHERE id <> %s) - clock_timestamp())::float8,"
    " (SELECT count(*) FROM work) FROM nodes"
)
_CLAIM_WORK = (
    "UPDATE work SET node = %s WHERE wiki_id IN"
    " (SELECT wiki_id FROM work WHERE node IS NULL LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING wiki_id"
)
_RELEASE_WORK = "UPDATE work SET node = NULL WHERE node = %s AND wiki_id = ANY(%s)"
_REQUEST_WORK = (
    "INSERT INTO work AS w (wiki_id, asked) VALUES (%(wiki)s, %(why)s) ON CONFLICT (wiki_id) DO UPDATE"
    " SET asked = CASE WHEN strpos(w.asked, %(why)s) > 0 THEN w.asked ELSE concat_ws(' ', w.asked, %(why)s) END"
)
_TAKE_REQUESTS = (
    "WITH taken AS (SELECT wiki_id, asked FROM work WHERE node = %s AND asked IS NOT NULL FOR UPDATE SKIP LOCKED)"
    " UPDATE work SET asked = NULL FROM taken WHERE work.wiki_id = taken.wiki_id"
    " RETURNING taken.wiki_id, taken.asked"
)


def notify_nodes(connection: Connection, event: str) -> None:
    """Send an event to all nodes when the transaction commits. Any role can listen, so it names no wiki."""
    connection.execute("SELECT pg_notify(%s, %s)", (NOTIFY_CHANNEL, event))


def find_connection_shortage(connection: Connection, nodes: int, wiki_connections: int) -> str:
    """Why the server allows too few connections for its nodes, and what to change; empty if they suffice.

    `wiki_connections` is a node's limit for the connections of wikis.
    """
    (available,) = connection.execute(_SELECT_AVAILABLE).fetchone() or (0,)
    return describe_shortage(max(1, nodes), wiki_connections + OPERATOR_CONNECTIONS, available)


def describe_shortage(nodes: int, per_node: int, available: int) -> str:
    needed = nodes * per_node
    if needed <= available:
        return ""
    return (
        f"{'1 node' if nodes == 1 else f'{nodes} nodes'} may use {needed} connections, and the server allows"
        f" {available}: raise max_connections or lower postgres.connections"
    )


class PostgresAssignments:
    """`NodeAssignments` of one node."""

    def __init__(self, catalog: Catalog, lease_s: float = 15.0, wiki_connections: int = 0) -> None:
        """`wiki_connections` is this node's limit for the connections of wikis."""
        self._catalog = catalog
        self._wiki_connections = wiki_connections
        self._lease_s = lease_s
        self._on_message: Callable[[str, NodeMessage], None] = lambda _, __: None
        self._listener = Listener(catalog, "wikiholt-assignments", self._work)
        self._reset()

    def _reset(self) -> None:
        """Become a new node without wikis: those of the old node may belong to another node by now."""
        self._node_id = secrets.token_hex(8)
        self._is_joined = False
        self._registry_version: str | None = None
        self._assigned: frozenset[str] = frozenset()
        self._assigned_until = 0.0

    def get_assigned(self) -> Set[str]:
        # If the lease is not renewed, other nodes may have claimed the wikis.
        return self._assigned if time.monotonic() < self._assigned_until else frozenset()

    def send(self, wiki_id: str, message: NodeMessage) -> None:
        with self._catalog.write_transaction() as connection:
            connection.execute(f"SET LOCAL {_NO_WAIT}")
            connection.execute(_REQUEST_WORK, {"wiki": wiki_id, "why": message.value})
            notify_nodes(connection, WIKI_MESSAGE)

    def start(self, on_message: Callable[[str, NodeMessage], None]) -> None:
        self._on_message = on_message
        self._listener.start()

    def close(self) -> None:
        self._listener.close()

    def _work(self, connection: Connection) -> None:
        connection.execute(f"SET {_NO_WAIT}")
        while not self._listener.is_closed():
            self._listen(connection, self._heartbeat(connection))
        self._remove_node(connection)

    def _heartbeat(self, connection: Connection) -> float:
        """Renew the lease and update the assignments. Returns the seconds until the next heartbeat."""
        before = self._assigned
        started = time.monotonic()
        if not self._is_joined or not connection.execute(_RENEW_NODE, (self._lease_s, self._node_id)).fetchone():
            self._reset()
            connection.execute(_INSERT_NODE, (self._node_id, f"{socket.gethostname()}:{os.getpid()}", self._lease_s))
            self._is_joined = True
            notify_nodes(connection, NODES_CHANGED)
            self._check_connections(connection)
        self._assigned_until = started + self._lease_s
        if connection.execute(_DELETE_EXPIRED_NODES).fetchall():
            notify_nodes(connection, WIKIS_UNASSIGNED)
        changed = self._sync_registry(connection)
        row = connection.execute(_COUNT_NODES, (self._node_id,)).fetchone()
        assert row is not None
        nodes, next_expiry_s, wikis = row
        self._balance(connection, -(-wikis // max(1, nodes)))
        if changed or self._assigned != before:
            self._on_message("", NodeMessage.ASSIGNMENTS)
        self._handle_requests(connection)
        # Wake up when the next lease expires, to take over the wikis of a dead node at once.
        return max(0.05, min(self._lease_s / 3, self._lease_s if next_expiry_s is None else next_expiry_s + 0.02))

    def _check_connections(self, connection: Connection) -> None:
        """Warn if the server allows fewer connections than all nodes, with this one, may use."""
        (nodes,) = connection.execute(COUNT_NODES).fetchone() or (1,)
        shortage = find_connection_shortage(connection, nodes, self._wiki_connections)
        if shortage:
            _LOG.warning("%s", shortage)

    def _sync_registry(self, connection: Connection) -> bool:
        """Create a row of `work` for every registered wiki. Returns whether the registry changed."""
        (version,) = connection.execute("SELECT value FROM state WHERE name = 'version'").fetchone() or (None,)
        if version is None or version == self._registry_version:
            return False
        connection.execute(_INSERT_WORK)
        connection.execute(_DELETE_WORK)
        assigned = connection.execute("SELECT wiki_id FROM work WHERE node = %s", (self._node_id,))
        self._assigned = frozenset(wiki_id for (wiki_id,) in assigned)
        self._registry_version = version
        return True

    def _balance(self, connection: Connection, share: int) -> None:
        """Claim unassigned wikis up to the share, or release the surplus."""
        while (missing := share - len(self._assigned)) > 0:
            claimed = connection.execute(_CLAIM_WORK, (self._node_id, min(_CLAIM_BATCH_WIKIS, missing))).fetchall()
            if not claimed:
                return
            self._assigned = self._assigned.union(wiki_id for (wiki_id,) in claimed)
        if missing < 0:
            surplus = sorted(self._assigned)[share:]
            self._assigned = self._assigned.difference(surplus)
            connection.execute(_RELEASE_WORK, (self._node_id, surplus))
            notify_nodes(connection, WIKIS_UNASSIGNED)

    def _handle_requests(self, connection: Connection) -> None:
        for wiki_id, messages in connection.execute(_TAKE_REQUESTS, (self._node_id,)).fetchall():
            for message in messages.split():
                with suppress(ValueError):  # a newer node may send messages that this version does not know
                    self._on_message(wiki_id, NodeMessage(message))

    def _listen(self, connection: Connection, seconds: float) -> None:
        """Handle notifications until the next heartbeat, or until an event that requires one early."""
        earliest, until = time.monotonic() + _MIN_HEARTBEAT_INTERVAL_S, time.monotonic() + seconds
        while not self._listener.is_closed() and (left := until - time.monotonic()) > 0:
            events = self._listener.receive(connection, left)
            if WIKI_MESSAGE in events:
                self._handle_requests(connection)
            if not events.isdisjoint((REGISTRY_CHANGED, NODES_CHANGED, WIKIS_UNASSIGNED)):
                until = min(until, earliest)

    def _remove_node(self, connection: Connection) -> None:
        self._assigned = frozenset()
        connection.execute("DELETE FROM nodes WHERE id = %s", (self._node_id,))
        notify_nodes(connection, WIKIS_UNASSIGNED)
