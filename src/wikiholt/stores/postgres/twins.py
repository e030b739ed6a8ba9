"""Whether two addresses lead to one database, whatever they look like: a session of one is seen by the other."""

import secrets
from collections.abc import Sequence
from typing import Protocol

from wikiholt.errors import DatabaseUnavailable
from wikiholt.stores.postgres.pool import Connection, RoleConnections

# Every login of the server may see which name a session has given itself, and in which database it is.
_MARK = "SELECT set_config('application_name', %s, true)"
_SELECT_LOCK = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"


class NamedDatabase(Protocol):
    """A database by its name."""

    @property
    def name(self) -> str: ...

    @property
    def connections(self) -> RoleConnections: ...


def find_same_database(connection: Connection, databases: Sequence[NamedDatabase]) -> str | None:
    """The name of the known database that an open transaction is in; one that is away cannot be asked."""
    mark = (f"wikiholt-{secrets.token_hex(16)}",)
    connection.execute(_MARK, mark)
    for each in databases:
        try:
            with each.connections.read_connection() as other:
                if other.execute(_SELECT_LOCK, mark).fetchone() is not None:
                    return each.name
        except DatabaseUnavailable:
            continue
    return None
