"""What nodes tell each other through the home's database: short words on one channel, which may get lost."""

from wikiholt.stores.postgres.pool import Connection

NOTIFY_CHANNEL = "wikiholt"
REGISTRY_CHANGED, NODES_CHANGED, WIKIS_UNASSIGNED, WIKI_MESSAGE = "registry", "nodes", "free", "work"
"""What has changed: the registry; which nodes there are; wikis have no node now; something is to be done for a wiki."""


def notify_nodes(connection: Connection, event: str, *arguments: str) -> None:
    """Tell all nodes, once the transaction is committed."""
    connection.execute("SELECT pg_notify(%s, %s)", (NOTIFY_CHANNEL, " ".join((event, *arguments))))
