"""Whether two addresses lead to one database, whatever they look like: a lock taken by one is seen by the other."""

import secrets
from collections.abc import Sequence
from typing import Protocol

from wikiholt.errors import DatabaseAway
from wikiholt.stores.postgres.pool import Connection, Door

# Such a lock belongs to one database, and every login of the server may see that it is held.
_TAKE = "SELECT pg_advisory_xact_lock(%s, %s)"
_SEEN = (
    "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid::int8 = %s AND objid::int8 = %s AND objsubid = 2"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class Named(Protocol):
    """A database by its name."""

    @property
    def name(self) -> str: ...

    @property
    def door(self) -> Door: ...


def twin_of(connection: Connection, known: Sequence[Named]) -> str | None:
    """The name of the known database that an open transaction is in; one that is away cannot be asked."""
    mark = (secrets.randbelow(1 << 31), secrets.randbelow(1 << 31))
    connection.execute(_TAKE, mark)
    for each in known:
        try:
            with each.door.reading() as other:
                if other.execute(_SEEN, mark).fetchone() is not None:
                    return each.name
        except DatabaseAway:
            continue
    return None
