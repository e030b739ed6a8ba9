"""Prepares databases for wikis, and creates and removes the schema and role of a wiki. All as the operator."""

import logging
from typing import LiteralString

from psycopg import errors, sql
from psycopg.errors import DependentObjectsStillExist, LockNotAvailable

from wikiholt.errors import InvalidSetting
from wikiholt.index.postgres import locks
from wikiholt.index.postgres import schema as postgres_schema
from wikiholt.index.postgres.pool import Connection, RoleConnections

_LOG = logging.getLogger(__name__)
_MIN_SERVER_VERSION = 160000
_MIN_PGVECTOR_VERSION = (0, 8)


# ── databases ────────────────────────────────────────────────────────────────────────────────────


def prepare_database(connection: Connection, dbname: str, group: str | None = None) -> tuple[str, str]:
    """Prepare a database: create the extension and a group for wiki roles, and deny access to everybody else.

    Returns the name of the group and the schema of the extension's types. Idempotent. Raises InvalidSetting.
    """
    if connection.info.server_version < _MIN_SERVER_VERSION:
        raise InvalidSetting("this PostgreSQL is too old", hint="PostgreSQL 16 or newer is needed")
    require_rights(connection, dbname)
    types_schema = _ensure_vector_extension(connection)
    (oid,) = connection.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone() or (0,)
    group = group or f"wikiholt_guests_{oid}"
    if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (group,)).fetchone() is None:
        connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(group)))
    _restrict_access(connection, dbname, group, types_schema)
    _create_lock_table(connection)
    statement = "SELECT has_database_privilege(%s, current_database(), 'CONNECT')"
    if connection.execute(statement, (group,)).fetchone() != (True,):
        raise InvalidSetting(
            "the roles of wikis may not connect to the database, and this login cannot grant it",
            hint=f"own the database, or run as an administrator: GRANT CONNECT ON DATABASE {dbname} TO {group}",
        )
    return group, types_schema


def require_rights(connection: Connection, dbname: str) -> None:
    """Raise InvalidSetting unless the operator may create roles and schemas."""
    statement = (
        "SELECT rolsuper OR rolcreaterole, has_database_privilege(current_user, current_database(), 'CREATE')"
        " FROM pg_roles WHERE rolname = current_user"
    )
    may_create_roles, may_create_schemas = connection.execute(statement).fetchone() or (False, False)
    if not may_create_roles:
        raise InvalidSetting(
            "the login of the setting `store` may not create roles",
            hint="run as an administrator: ALTER ROLE … CREATEROLE",
        )
    if not may_create_schemas:
        raise InvalidSetting(
            "the login of the setting `store` may not create schemas",
            hint=f"run as an administrator: GRANT CREATE ON DATABASE {dbname} TO …",
        )


def _ensure_vector_extension(connection: Connection) -> str:
    """The schema of the extension `vector`, after creating it if it is missing. Raises InvalidSetting."""
    statement = (
        "SELECT extversion, nspname FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace"
        " WHERE extname = 'vector'"
    )
    row = connection.execute(statement).fetchone()
    if row is None:
        try:
            with connection.transaction():
                connection.execute("CREATE EXTENSION vector SCHEMA public")
        except (errors.InsufficientPrivilege, errors.FeatureNotSupported, errors.UndefinedFile) as error:
            raise InvalidSetting(
                "the database has no extension `vector`, and this login cannot create it",
                hint="install pgvector on the server, then run as an administrator: CREATE EXTENSION vector",
            ) from error
        row = connection.execute(statement).fetchone()
    version, schema = row or ("0", "public")
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


def _restrict_access(connection: Connection, dbname: str, group: str, types_schema: str) -> None:
    """Restrict the database and the types schema to the group, as far as the operator owns them.

    If another login owns the database, existing logins keep their access; they cannot see any wiki.
    """
    names = {"database": sql.Identifier(dbname), "guests": sql.Identifier(group), "types": sql.Identifier(types_schema)}
    statement = "SELECT pg_has_role(datdba, 'USAGE') FROM pg_database WHERE datname = current_database()"
    if connection.execute(statement).fetchone() == (True,):
        connection.execute(sql.SQL("REVOKE ALL ON DATABASE {database} FROM PUBLIC").format(**names))
        connection.execute(sql.SQL("GRANT CONNECT ON DATABASE {database} TO {guests}").format(**names))
    statement = "SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = %s"
    if connection.execute(statement, (types_schema,)).fetchone() == (True,):
        connection.execute(sql.SQL("REVOKE CREATE ON SCHEMA {types} FROM PUBLIC").format(**names))
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {types} TO {guests}").format(**names))


# ── wikis ────────────────────────────────────────────────────────────────────────────────────────


def provision_wiki(connection: Connection, schema: str, role: str, secret: str, group: str) -> None:
    """Create what is missing of a wiki's schema and role, in an open transaction of the operator.

    Parts are missing if the wiki is new, if an earlier call was killed, or after a dump was restored without roles. A
    schema without its own tables, or of an older layout, is renamed, not dropped; it is removed
    together with the wiki. An existing role gets its password and settings again.
    """
    locks.acquire_lock(connection, schema)
    no_group, no_role, no_schema, no_tables = _find_missing_parts(connection, schema, role, group)
    if no_group:
        prepare_database(connection, connection.info.dbname, group)
    if no_role:
        create_role(connection, role, secret, group)
    else:
        reset_role(connection, role, secret)
    statements: list[sql.Composable] = []
    if no_tables and not no_schema:
        quarantine = sql.Identifier(postgres_schema.make_quarantine_schema(schema))
        statements.append(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(sql.Identifier(schema), quarantine))
    if no_tables:
        statements += postgres_schema.build_schema_statements(schema, role)
    elif no_role:
        statements += postgres_schema.build_grant_statements(schema, role, _list_tables(connection, schema))
    if statements:
        connection.execute(sql.SQL("; ").join(statements))


def _find_missing_parts(connection: Connection, schema: str, role: str, group: str) -> tuple[bool, ...]:
    """Whether the group, the role, the schema and the tables of the schema are missing."""
    query = (
        "SELECT to_regrole(%(guests)s) IS NULL, to_regrole(%(role)s) IS NULL, to_regnamespace(%(schema)s) IS NULL,"
        " NOT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(%(schema)s || '.state')"
        " AND attname = 'name')"
    )
    names = {"guests": group, "role": role, "schema": schema}
    *others, no_tables = connection.execute(query, names).fetchone() or (True,) * 4
    if not no_tables:
        statement = sql.SQL("SELECT text FROM {}.state WHERE name = 'layout'").format(sql.Identifier(schema))
        (text,) = connection.execute(statement).fetchone() or (None,)
        layout = postgres_schema.parse_layout(text)
        no_tables = layout is not None and layout < postgres_schema.SCHEMA_LAYOUT
    return *others, no_tables


def _list_tables(connection: Connection, schema: str) -> list[str]:
    """List the tables of a schema, without reading the relations of all other wikis."""
    statement = (
        "SELECT relname::text FROM pg_depend JOIN pg_class ON pg_class.oid = objid WHERE relkind = 'r'"
        " AND refclassid = 'pg_namespace'::regclass AND refobjid = to_regnamespace(%s)"
        " AND classid = 'pg_class'::regclass ORDER BY relname"
    )
    return [table for (table,) in connection.execute(statement, (schema,))]


def remove_schema(connection: Connection, schema: str, role: str | None = None) -> list[str]:
    """Remove a wiki's schema and role, in an open transaction of the operator, and return the names of all objects.

    Call `revoke_login` for the role before. Without a role, removes all roles of the schema that have its name.
    """
    locks.acquire_lock(connection, schema)
    if role is not None:
        roles = [role] if connection.execute("SELECT to_regrole(%s)", (role,)).fetchone() != (None,) else []
    else:
        roles = [name for name in _find_roles(connection, schema) if revoke_login(connection, name)]
    connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = ANY(%s)", (roles,))
    removed = []
    for schema_name in _find_schemas(connection, schema):
        removed += [f"{schema_name}.{table}" for table in _list_tables(connection, schema_name)]
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema_name)))
        removed.append(schema_name)
    removed += [f"role {name}" for name in roles if _try_drop_role(connection, name)]
    locks.delete_lock(connection, schema)
    return removed


def remove_placement(connections: RoleConnections, schema: str, role: str) -> list[str]:
    """Revoke the login of a role, then remove schema and role. In two transactions, so no session can reconnect."""
    with connections.write_transaction() as connection:
        revoke_login(connection, role)
    with connections.write_transaction() as connection:
        return remove_schema(connection, schema, role)


def _try_drop_role(connection: Connection, role: str) -> bool:
    """Drop a role whose login is revoked. Returns whether it succeeded.

    Other roles can prevent it by granting it rights on their large objects. Without schema and login the role is
    harmless.
    """
    try:
        with connection.transaction():
            drop_role(connection, role)
    except (LockNotAvailable, DependentObjectsStillExist) as error:
        _LOG.warning("the role %s could not be dropped and stays without a login (code %s)", role, error.sqlstate)
        return False
    return True


def _find_schemas(connection: Connection, schema: str) -> list[str]:
    """The wiki's schema and its quarantined schemas (see `provision_wiki`)."""
    exists = connection.execute("SELECT to_regnamespace(%s)", (schema,)).fetchone() != (None,)
    return [*([schema] if exists else []), *postgres_schema.find_quarantined_schemas(connection, schema)]


def _find_roles(connection: Connection, schema: str) -> list[str]:
    """The roles named after a schema that have rights on it."""
    statement = (
        "SELECT DISTINCT rolname FROM pg_namespace, aclexplode(nspacl) JOIN pg_roles ON pg_roles.oid = grantee"
        " WHERE nspname = %s AND NOT rolsuper AND grantee <> nspowner"
    )
    roles = [name for (name,) in connection.execute(statement, (schema,))]
    return [name for name in roles if name.startswith(f"{schema}_")]


# ── roles ────────────────────────────────────────────────────────────────────────────────────────


def create_role(connection: Connection, role: str, secret: str, group: str) -> None:
    """Create a role that can log in, owns nothing and can assume no other role, in the open transaction."""
    _execute(
        connection,
        # Iterations protect weak passwords. With 24 random bytes they only slow down every login.
        "SET LOCAL scram_iterations TO 1; CREATE ROLE {role} LOGIN PASSWORD {secret};"
        " GRANT {group} TO {role} WITH INHERIT TRUE, SET FALSE",
        role=sql.Identifier(role),
        secret=sql.Literal(secret),
        group=sql.Identifier(group),
    )


def reset_role(connection: Connection, role: str, secret: str) -> None:
    """Give a role its password, its login and the default settings again. A role can change its own."""
    _execute(
        connection,
        "SET LOCAL scram_iterations TO 1; ALTER ROLE {role} LOGIN PASSWORD {secret}; ALTER ROLE {role} RESET ALL",
        role=sql.Identifier(role),
        secret=sql.Literal(secret),
    )


def revoke_login(connection: Connection, role: str) -> bool:
    """Revoke the login of a role and make the operator a member, who may end its sessions. Returns False if missing."""
    if not join_role(connection, role):
        return False
    _execute(connection, "ALTER ROLE {role} NOLOGIN", role=sql.Identifier(role))
    return True


def join_role(connection: Connection, role: str) -> bool:
    """Make the operator a member of a role, who can see and end its sessions. Returns False if the role is missing."""
    if connection.execute("SELECT to_regrole(%s)", (role,)).fetchone() == (None,):
        return False
    _execute(connection, "GRANT {role} TO CURRENT_USER WITH INHERIT TRUE", role=sql.Identifier(role))
    return True


def drop_role(connection: Connection, role: str) -> None:
    """Drop a role that the operator is a member of."""
    # Any role can create large objects, and a role that owns one cannot be dropped.
    _execute(connection, "DROP OWNED BY {role}; DROP ROLE {role}", role=sql.Identifier(role))


def _execute(connection: Connection, statements: LiteralString, **names: sql.Composable) -> None:
    connection.execute(sql.SQL(statements).format(**names))
