"""What nodes tell each other through the home's database: short words on one channel, which may get lost."""

from wikiholt.stores.postgres.pool import Connection

CHANNEL = "wikiholt"
REGISTRY, NODES, FREE, WORK = "registry", "nodes", "free", "work"
"""What has changed: the registry; which nodes there are; wikis have no node now; something is to be done for a wiki."""


def tell(connection: Connection, what: str, *words: str) -> None:
    """Tell all nodes, once the transaction is committed."""
    connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, " ".join((what, *words))))
