"""What a database needs before wikis can live in it, and whether the operator's login may do it."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime

from psycopg import errors, sql
from psycopg.errors import DependentObjectsStillExist, LockNotAvailable

from wikiholt.errors import InvalidSetting
from wikiholt.storage.postgres import locks
from wikiholt.storage.postgres import schema as postgres_schema
from wikiholt.storage.postgres.pool import Connection, RoleConnections

_MIN_SERVER_VERSION = 160000
_MIN_PGVECTOR_VERSION = (0, 8)


def prepare_database(connection: Connection, dbname: str, group: str | None = None) -> tuple[str, str]:
    """Make a database ready: the extension, a group for the roles of its wikis, and nobody else let in.

    Returns the group's name, which is `guests` where there was one, and the schema the extension's types are in. Can be
    done again at any time.
    """
    if connection.info.server_version < _MIN_SERVER_VERSION:
        raise InvalidSetting("this PostgreSQL is too old", hint="PostgreSQL 16 or newer is needed")
    require_rights(connection, dbname)
    types = _ensure_vector_extension(connection)
    (oid,) = connection.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone() or (0,)
    group = group or f"wikiholt_guests_{oid}"
    if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (group,)).fetchone() is None:
        connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(group)))
    _restrict_access(connection, dbname, group, types)
    _create_lock_table(connection)
    connects = "SELECT has_database_privilege(%s, current_database(), 'CONNECT')"
    if connection.execute(connects, (group,)).fetchone() != (True,):
        raise InvalidSetting(
            "the roles of wikis may not connect to the database, and this login cannot let them",
            hint=f"own the database, or run as an administrator: GRANT CONNECT ON DATABASE {dbname} TO {group}",
        )
    return group, types


def require_rights(connection: Connection, dbname: str) -> None:
    """Raise unless the operator may make what wikis need."""
    order = (
        "SELECT rolsuper OR rolcreaterole, has_database_privilege(current_user, current_database(), 'CREATE')"
        " FROM pg_roles WHERE rolname = current_user"
    )
    roles, schemas = connection.execute(order).fetchone() or (False, False)
    if not roles:
        raise InvalidSetting(
            "the login of the setting `store` may make no roles",
            hint="run as an administrator: ALTER ROLE … CREATEROLE",
        )
    if not schemas:
        raise InvalidSetting(
            "the login of the setting `store` may make no schemas",
            hint=f"run as an administrator: GRANT CREATE ON DATABASE {dbname} TO …",
        )


def _ensure_vector_extension(connection: Connection) -> str:
    """The schema of the extension `vector`, which is made where it may be."""
    order = (
        "SELECT extversion, nspname FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace"
        " WHERE extname = 'vector'"
    )
    found = connection.execute(order).fetchone()
    if found is None:
        try:
            with connection.transaction():
                connection.execute("CREATE EXTENSION vector SCHEMA public")
        except (errors.InsufficientPrivilege, errors.FeatureNotSupported, errors.UndefinedFile) as error:
            raise InvalidSetting(
                "the database has no extension `vector`, and this login cannot make it",
                hint="install pgvector on the server; an administrator can then say CREATE EXTENSION vector there",
            ) from error
        found = connection.execute(order).fetchone()
    version, schema = found or ("0", "public")
    if tuple(int(part) for part in str(version).split(".")[:2]) < _MIN_PGVECTOR_VERSION:
        raise InvalidSetting(
            f"pgvector {version} is too old", hint="install 0.8 or newer, then: ALTER EXTENSION vector UPDATE"
        )
    return str(schema)


def _create_lock_table(connection: Connection) -> None:
    try:
        locks.ensure_lock_table(connection)
    except errors.InsufficientPrivilege as error:
        raise InvalidSetting(
            "the schema wikiholt of the database belongs to another login",
            hint="use a database of its own, or as an administrator: ALTER SCHEMA wikiholt OWNER TO …",
        ) from error


def _restrict_access(connection: Connection, dbname: str, group: str, types: str) -> None:
    """Let in only the group. Where the database is another's, those may log in who could; they see no wiki."""
    names = {"database": sql.Identifier(dbname), "guests": sql.Identifier(group), "types": sql.Identifier(types)}
    owner = "SELECT pg_has_role(datdba, 'USAGE') FROM pg_database WHERE datname = current_database()"
    if connection.execute(owner).fetchone() == (True,):
        connection.execute(sql.SQL("REVOKE ALL ON DATABASE {database} FROM PUBLIC").format(**names))
        connection.execute(sql.SQL("GRANT CONNECT ON DATABASE {database} TO {guests}").format(**names))
    owner = "SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = %s"
    if connection.execute(owner, (types,)).fetchone() == (True,):
        connection.execute(sql.SQL("REVOKE CREATE ON SCHEMA {types} FROM PUBLIC").format(**names))
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {types} TO {guests}").format(**names))


# A wiki comes to a database: its role and its schema, as far as they are not there. That they are not may mean that
# the wiki is new, that whoever made them was killed, or that somebody restored a dump, in which roles are missing, or
# dropped what is ours. What was there before is kept: a schema that has lost the tables that say what it holds gets
# another name, by which it is dropped with the wiki.


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
        statements += postgres_schema.build_schema_statements(schema, role)
    elif no_role:
        statements += postgres_schema.build_grant_statements(schema, role)
    if statements:
        connection.execute(sql.SQL("; ").join(statements))


def _build_role_statements(role: str, secret: str, group: str) -> Iterator[sql.Composable]:
    """A role that may log in, and nothing else: it owns nothing and can become nobody else."""
    names = {"role": sql.Identifier(role), "guests": sql.Identifier(group)}
    # Rounds protect passwords that people made up; in front of 24 random bytes they only slow every login.
    yield sql.SQL("SET LOCAL scram_iterations TO 1")
    yield sql.SQL("CREATE ROLE {role} LOGIN PASSWORD {}").format(sql.Literal(secret), **names)
    yield sql.SQL("GRANT {guests} TO {role} WITH INHERIT TRUE, SET FALSE").format(**names)


# A wiki leaves a database: its schema, its role and whatever that role may have left behind.


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
