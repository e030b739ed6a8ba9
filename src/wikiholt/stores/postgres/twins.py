"""Whether two addresses lead to one database, whatever they look like: a session of one is seen by the other."""

import secrets
from collections.abc import Sequence
from typing import Protocol

from wikiholt.errors import DatabaseAway
from wikiholt.stores.postgres.pool import Connection, Door

# Every login of the server may see which name a session has given itself, and in which database it is.
_MARK = "SELECT set_config('application_name', %s, true)"
_SEEN = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"


class Named(Protocol):
    """A database by its name."""

    @property
    def name(self) -> str: ...

    @property
    def door(self) -> Door: ...


def twin_of(connection: Connection, known: Sequence[Named]) -> str | None:
    """The name of the known database that an open transaction is in; one that is away cannot be asked."""
    mark = (f"wikiholt-{secrets.token_hex(16)}",)
    connection.execute(_MARK, mark)
    for each in known:
        try:
            with each.door.reading() as other:
                if other.execute(_SEEN, mark).fetchone() is not None:
                    return each.name
        except DatabaseAway:
            continue
    return None
