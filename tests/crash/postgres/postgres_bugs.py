"""Bugs that are injected into the PostgreSQL store on purpose, to check that the crash test finds them."""

from psycopg import sql

from tests.crash.injected_bugs import replace_attribute
from wikiholt.index.postgres import index_writer, move, placements, provision, store
from wikiholt.index.postgres.pool import Connection
from wikiholt.index.postgres.rows import GenerationState
from wikiholt.index.postgres.schema import GenerationTables


def _no_fence() -> None:
    """A writer that does not check whether it still has its lease."""
    for module in (index_writer, store, move):
        replace_attribute(module, "check_fence", lambda *_: None)


def _role_stays() -> None:
    """A removal that does not drop the role."""

    def remove_schema(connection: Connection, schema: str, role: str | None = None) -> list[str]:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
        return [schema]

    for module in (placements, provision):
        replace_attribute(module, "remove_schema", remove_schema)


def _counts_later() -> None:
    """A writer that commits pages before the state of the index."""
    original = index_writer.write_state

    def write_state(db: Connection, tables: GenerationTables, state: GenerationState) -> None:
        db.execute("COMMIT")
        db.execute("BEGIN READ WRITE")
        original(db, tables, state)

    replace_attribute(index_writer, "write_state", write_state)


POSTGRES_BUGS = {"no fence": _no_fence, "role stays": _role_stays, "counts later": _counts_later}
