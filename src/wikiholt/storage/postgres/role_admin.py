"""Creates, changes and drops the roles of wikis, at a cost that does not depend on the number of wikis.

Since PostgreSQL 16 a login with CREATEROLE that is no superuser becomes a member of every role it creates, and every
statement about a role reads all memberships of the login. So such a login does not create roles itself. A fixed number
of roles without a login do, each for its share of the wikis, by a function that runs as its owner.
"""

import zlib
from collections.abc import Iterable

from psycopg import sql

from wikiholt.storage.postgres import locks
from wikiholt.storage.postgres.pool import Connection

_CREATORS = 64
_FIND_CREATOR = """
SELECT current_setting('is_superuser') = 'on',
    (SELECT member::regrole::text FROM pg_auth_members WHERE roleid = to_regrole(%(role)s) AND admin_option
        ORDER BY member = to_regrole(%(creator)s) DESC LIMIT 1)
"""
_CREATE_CREATOR = """
CREATE ROLE {creator} NOLOGIN CREATEROLE;
GRANT {group} TO {creator} WITH ADMIN OPTION;
GRANT {creator} TO CURRENT_USER WITH INHERIT FALSE, SET TRUE;
GRANT CREATE, USAGE ON SCHEMA wikiholt TO {creator};
SET LOCAL ROLE {creator};
CREATE FUNCTION wikiholt.{creator} (statements text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO pg_catalog, pg_temp AS 'BEGIN EXECUTE statements; END';
REVOKE ALL ON FUNCTION wikiholt.{creator} FROM PUBLIC;
GRANT EXECUTE ON FUNCTION wikiholt.{creator} TO SESSION_USER;
SET LOCAL ROLE NONE;
REVOKE CREATE ON SCHEMA wikiholt FROM {creator};
REVOKE SET OPTION FOR {creator} FROM CURRENT_USER
"""


def create_role(connection: Connection, role: str, secret: str, group: str) -> None:
    """Create a role that can log in, owns nothing and can assume no other role, in the open transaction."""
    statements = (
        # Iterations protect weak passwords. With 24 random bytes they only slow down every login.
        sql.SQL("SET LOCAL scram_iterations TO 1"),
        sql.SQL("CREATE ROLE {role} LOGIN PASSWORD {secret}"),
        sql.SQL("GRANT {group} TO {role} WITH INHERIT TRUE, SET FALSE"),
    )
    names = {"role": sql.Identifier(role), "secret": sql.Literal(secret), "group": sql.Identifier(group)}
    creator = _get_creator_name(role, group)
    is_superuser, _ = _find_admin(connection, role, creator)
    if not is_superuser:
        _ensure_creator(connection, creator, group)
    _execute(connection, "" if is_superuser else creator, [statement.format(**names) for statement in statements])


def reset_role(connection: Connection, role: str, secret: str, group: str) -> None:
    """Give a role its password, its login and the default settings again. A role can change its own."""
    statements = (
        "SET LOCAL scram_iterations TO 1",
        "ALTER ROLE {role} LOGIN PASSWORD {secret}",
        "ALTER ROLE {role} RESET ALL",
    )
    names = {"role": sql.Identifier(role), "secret": sql.Literal(secret)}
    _execute_as_admin(connection, role, group, [sql.SQL(statement).format(**names) for statement in statements])


def revoke_login(connection: Connection, role: str, group: str) -> bool:
    """Revoke the login of a role and make the operator a member, who may end its sessions. Returns False if missing."""
    if not join_role(connection, role, group):
        return False
    _execute_as_admin(connection, role, group, [sql.SQL("ALTER ROLE {} NOLOGIN").format(sql.Identifier(role))])
    return True


def join_role(connection: Connection, role: str, group: str) -> bool:
    """Make the operator a member of a role, who can see and end its sessions. Returns False if the role is missing."""
    if connection.execute("SELECT to_regrole(%s)", (role,)).fetchone() == (None,):
        return False
    statement = sql.SQL("GRANT {} TO SESSION_USER").format(sql.Identifier(role))
    _execute_as_admin(connection, role, group, [statement])
    return True


def drop_role(connection: Connection, role: str, group: str) -> None:
    """Drop a role that the operator is a member of."""
    # Any role can create large objects, and a role that owns one cannot be dropped.
    connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
    _execute_as_admin(connection, role, group, [sql.SQL("DROP ROLE {}").format(sql.Identifier(role))])


def _execute_as_admin(connection: Connection, role: str, group: str, statements: Iterable[sql.Composable]) -> None:
    """Execute statements as the creator of a role, or as the operator if it created the role itself."""
    creator = _get_creator_name(role, group)
    is_superuser, admin = _find_admin(connection, role, creator)
    _execute(connection, creator if admin == creator and not is_superuser else "", statements)


def _find_admin(connection: Connection, role: str, creator: str) -> tuple[bool, str | None]:
    """Return whether the operator is a superuser, and a role that may change this role."""
    row = connection.execute(_FIND_CREATOR, {"role": role, "creator": creator}).fetchone()
    is_superuser, admin = row or (False, None)
    return is_superuser, admin


def _execute(connection: Connection, creator: str, statements: Iterable[sql.Composable]) -> None:
    joined = sql.SQL("; ").join(statements)
    if creator:
        call = sql.SQL("SELECT wikiholt.{}({})").format(sql.Identifier(creator), joined.as_string(connection))
        connection.execute(call)
    else:
        connection.execute(joined)


def _get_creator_name(role: str, group: str) -> str:
    return f"{group}_{zlib.crc32(role.encode()) % _CREATORS:02d}"


def _ensure_creator(connection: Connection, creator: str, group: str) -> None:
    """Create the creator, and its function in this database, if they are missing."""
    exists = "SELECT to_regproc(%s) IS NOT NULL"
    if connection.execute(exists, (f"wikiholt.{creator}",)).fetchone() == (True,):
        return
    locks.acquire_lock(connection, creator)  # two nodes may need it at the same time
    if connection.execute(exists, (f"wikiholt.{creator}",)).fetchone() == (True,):
        return
    names = {"creator": sql.Identifier(creator), "group": sql.Identifier(group)}
    statement = sql.SQL(_CREATE_CREATOR)
    if connection.execute("SELECT to_regrole(%s)", (creator,)).fetchone() != (None,):
        # The database was restored without its functions.
        statement = sql.SQL(_CREATE_CREATOR.replace("CREATE ROLE {creator} NOLOGIN CREATEROLE;\n", "", 1))
    connection.execute(statement.format(**names))
