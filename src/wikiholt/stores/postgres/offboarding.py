"""A wiki leaves a database: its schema, its role and whatever that role may have left behind."""

import logging

from psycopg import sql
from psycopg.errors import DependentObjectsStillExist, LockNotAvailable

from wikiholt.stores.postgres import locks
from wikiholt.stores.postgres.pool import Connection, RoleConnections

_LOG = logging.getLogger(__name__)


def remove_schema(connection: Connection, schema: str, role: str | None = None) -> list[str]:
    """Remove a wiki's schema and its roles in an open transaction of the operator, and name all that went.

    The role is one that has lost its login (`bar_login`); without a role those go that were let into the schema and
    bear its name.
    """
    locks.acquire_lock(connection, schema)
    if role is not None:
        roles = [role] if _has_row(connection, "pg_roles", "rolname", role) else []
    else:
        roles = [each for each in _find_roles(connection, schema) if revoke_login(connection, each)]
    connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = ANY(%s)", (roles,))
    went = []
    for each in _find_schemas(connection, schema):
        order = (
            "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r' ORDER BY relname"
        )
        went += [f"{each}.{name}" for (name,) in connection.execute(order, (each,))]
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(each)))
        went.append(each)
    for each in roles:
        if _drop_role(connection, each):
            went.append(f"role {each}")
    locks.delete_lock(connection, schema)
    return went


def remove_placement(door: RoleConnections, schema: str, role: str) -> list[str]:
    """The same through the operator's door; when the role's sessions are ended, none can come back."""
    with door.write_transaction() as connection:
        revoke_login(connection, role)
    with door.write_transaction() as connection:
        return remove_schema(connection, schema, role)


def _drop_role(connection: Connection, role: str) -> bool:
    """Drop a role that nobody can log in as any more; whether it could be.

    Other roles can hold that up: they may grant rights on a large object of theirs to any role. Without its schema and
    without a login a role that stays opens nothing.
    """
    name = sql.Identifier(role)
    try:
        with connection.transaction():
            # It owns nothing by us, but any role may make large objects, and a role that owns one cannot go.
            connection.execute(sql.SQL("DROP OWNED BY {}").format(name))
            connection.execute(sql.SQL("DROP ROLE {}").format(name))
    except (LockNotAvailable, DependentObjectsStillExist) as error:
        _LOG.warning("the role %s stays, without a login: others hold it (code %s)", role, error.sqlstate)
        return False
    return True


def _find_schemas(connection: Connection, schema: str) -> list[str]:
    """The wiki's schema, and those that were broken and set aside under another name (founding.py)."""
    order = "SELECT nspname FROM pg_namespace WHERE nspname = %s OR nspname ~ %s ORDER BY nspname"
    return [name for (name,) in connection.execute(order, (schema, rf"^b\d{{14}}_{schema}$"))]


def _find_roles(connection: Connection, schema: str) -> list[str]:
    """The roles that were let into a schema, as its grants tell."""
    order = (
        "SELECT DISTINCT rolname FROM pg_namespace, aclexplode(nspacl) JOIN pg_roles ON pg_roles.oid = grantee"
        " WHERE nspname = %s AND NOT rolsuper AND grantee <> nspowner"
    )
    found = [name for (name,) in connection.execute(order, (schema,))]
    return [name for name in found if name.startswith(f"{schema}_")]


def revoke_login(connection: Connection, role: str) -> bool:
    """Let nobody log in as the role any more, and let the operator end its sessions; whether there is such a role."""
    if not _has_row(connection, "pg_roles", "rolname", role):
        return False
    connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(role)))
    connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(sql.Identifier(role)))
    return True


def _has_row(connection: Connection, table: str, column: str, name: str) -> bool:
    order = sql.SQL("SELECT 1 FROM {} WHERE {} = %s").format(sql.Identifier(table), sql.Identifier(column))
    return connection.execute(order, (name,)).fetchone() is not None
