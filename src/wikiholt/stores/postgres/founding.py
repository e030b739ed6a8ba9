"""A wiki comes to a database: its role and its schema, as far as they are not there.

That they are not may mean that the wiki is new, that whoever made them was killed, or that somebody restored a dump, in
which roles are missing, or dropped what is ours. What was there before is kept: a schema that has lost the tables that
say what it holds gets another name, by which it is dropped with the wiki.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from psycopg import sql

from wikiholt.stores.postgres import layout, locks
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.readying import prepare_database


def provision_wiki(connection: Connection, schema: str, role: str, secret: str, group: str) -> None:
    """Make what is missing of a wiki's schema and role, in an open transaction of the operator."""
    locks.acquire_lock(connection, schema)
    order = (
        "SELECT to_regrole(%(guests)s) IS NULL, to_regrole(%(role)s) IS NULL, to_regnamespace(%(schema)s) IS NULL,"
        " to_regclass(%(schema)s || '.state') IS NULL OR to_regclass(%(schema)s || '.notes') IS NULL"
    )
    names = {"guests": group, "role": role, "schema": schema}
    no_guests, no_role, no_schema, no_tables = connection.execute(order, names).fetchone() or (True,) * 4
    statements: list[sql.Composable] = []
    if no_guests:
        prepare_database(connection, connection.info.dbname, group)
    if no_role:
        statements += _build_role_statements(role, secret, group)
    if no_tables and not no_schema:
        aside = sql.Identifier(f"b{datetime.now(UTC):%Y%m%d%H%M%S}_{schema}")
        statements.append(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(sql.Identifier(schema), aside))
    if no_tables:
        statements += layout.build_schema_statements(schema, role)
    elif no_role:
        statements += layout.build_grant_statements(schema, role)
    if statements:
        connection.execute(sql.SQL("; ").join(statements))


def _build_role_statements(role: str, secret: str, group: str) -> Iterator[sql.Composable]:
    """A role that may log in, and nothing else: it owns nothing and can become nobody else."""
    names = {"role": sql.Identifier(role), "guests": sql.Identifier(group)}
    # Rounds protect passwords that people made up; in front of 24 random bytes they only slow every login.
    yield sql.SQL("SET LOCAL scram_iterations TO 1")
    yield sql.SQL("CREATE ROLE {role} LOGIN PASSWORD {}").format(sql.Literal(secret), **names)
    yield sql.SQL("GRANT {guests} TO {role} WITH INHERIT TRUE, SET FALSE").format(**names)
