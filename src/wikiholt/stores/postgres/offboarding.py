"""A wiki leaves a database: its schema, its role and whatever that role may have left behind."""

from psycopg import sql

from wikiholt.stores.postgres.pool import Connection


def remove_schema(connection: Connection, schema: str, role: str | None = None) -> list[str]:
    """Remove a wiki's schema and its roles in an open transaction of the operator, and name all that went.

    Without a role those go that were let into the schema and bear its name.
    """
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (schema,))
    roles = [role] if role is not None else _roles(connection, schema)
    roles = [each for each in roles if _exists(connection, "pg_roles", "rolname", each)]
    for each in roles:
        _end_sessions(connection, each)
    went = []
    for each in _schemas(connection, schema):
        order = (
            "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r' ORDER BY relname"
        )
        went += [f"{each}.{name}" for (name,) in connection.execute(order, (each,))]
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(each)))
        went.append(each)
    for each in roles:
        # It owns nothing by us, but any role may make large objects, and a role that owns one cannot go.
        connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(each)))
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(each)))
        went.append(f"role {each}")
    return went


def _schemas(connection: Connection, schema: str) -> list[str]:
    """The wiki's schema, and those that were broken and set aside under another name (founding.py)."""
    order = "SELECT nspname FROM pg_namespace WHERE nspname = %s OR nspname ~ %s ORDER BY nspname"
    return [name for (name,) in connection.execute(order, (schema, rf"^b\d{{14}}_{schema}$"))]


def _roles(connection: Connection, schema: str) -> list[str]:
    """The roles that were let into a schema, as its grants tell."""
    order = (
        "SELECT DISTINCT rolname FROM pg_namespace, aclexplode(nspacl) JOIN pg_roles ON pg_roles.oid = grantee"
        " WHERE nspname = %s AND NOT rolsuper AND grantee <> nspowner"
    )
    found = [name for (name,) in connection.execute(order, (schema,))]
    return [name for name in found if name.startswith(f"{schema}_")]


def _end_sessions(connection: Connection, role: str) -> None:
    """Let nobody log in as the role any more, and end those who have."""
    connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(role)))
    connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(sql.Identifier(role)))
    connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (role,))


def _exists(connection: Connection, table: str, column: str, name: str) -> bool:
    order = sql.SQL("SELECT 1 FROM {} WHERE {} = %s").format(sql.Identifier(table), sql.Identifier(column))
    return connection.execute(order, (name,)).fetchone() is not None
