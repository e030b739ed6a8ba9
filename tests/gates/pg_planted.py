"""Bugs that are put into the PostgreSQL store on purpose, to see that the gate finds them."""

from planted import replace_attribute
from psycopg import sql

from wikiholt.stores.postgres import moving, offboarding, placing, store, writing
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.rows import GenerationState
from wikiholt.stores.postgres.tables import GenerationTables


def _no_fence() -> None:
    """A writer that does not look whether its lease is still its own."""
    for module in (writing, store, moving):
        replace_attribute(module, "hold", lambda *_: None)


def _role_stays() -> None:
    """A removal that forgets the role."""

    def remove_schema(connection: Connection, schema: str, role: str | None = None) -> list[str]:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
        return [schema]

    for module in (placing, offboarding):
        replace_attribute(module, "remove_schema", remove_schema)


def _counts_later() -> None:
    """A writer that commits pages before it writes where the index stands."""
    original = writing.write_state

    def write_standing(db: Connection, tables: GenerationTables, standing: GenerationState) -> None:
        db.execute("COMMIT")
        db.execute("BEGIN READ WRITE")
        original(db, tables, standing)

    replace_attribute(writing, "write_standing", write_standing)


POSTGRES_BUGS = {"no fence": _no_fence, "role stays": _role_stays, "counts later": _counts_later}
