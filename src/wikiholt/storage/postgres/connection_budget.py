"""Compares the connections that all nodes may use with those that a server allows."""

from dataclasses import dataclass

from wikiholt.storage.postgres.pool import Connection

OPERATOR_CONNECTIONS = 10
"""A node's connections as the operator: eight in the pool, one that listens, one for an administrator's command."""
_SELECT_AVAILABLE = (
    "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
    " - current_setting('reserved_connections')::int"
)
COUNT_NODES = "SELECT count(*) FROM nodes WHERE until > clock_timestamp()"


@dataclass(frozen=True, slots=True)
class ConnectionBudget:
    """The connections that a server allows, and those that its nodes may use."""

    nodes: int
    per_node: int
    available: int

    @property
    def shortage(self) -> str:
        """Why the connections do not suffice, and what to change; empty if they do."""
        needed = self.nodes * self.per_node
        if needed <= self.available:
            return ""
        nodes = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        return (
            f"{nodes} may use {needed} connections, and the server allows {self.available}:"
            " raise max_connections or lower postgres.connections"
        )


def read_budget(connection: Connection, nodes: int, wiki_connections: int) -> ConnectionBudget:
    """Read what a server allows. `wiki_connections` is a node's limit for the connections of wikis."""
    (available,) = connection.execute(_SELECT_AVAILABLE).fetchone() or (0,)
    return ConnectionBudget(max(1, nodes), wiki_connections + OPERATOR_CONNECTIONS, available)
