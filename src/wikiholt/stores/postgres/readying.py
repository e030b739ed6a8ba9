"""What a database needs before wikis can live in it, and whether the operator's login may do it."""

from psycopg import errors, sql

from wikiholt.errors import InvalidSetting
from wikiholt.stores.postgres import locks
from wikiholt.stores.postgres.pool import Connection

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
