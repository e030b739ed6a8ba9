"""Finds leftovers in databases: everything in them must belong to a registered wiki."""

import re
from collections.abc import Iterator

import psycopg

Connection = psycopg.Connection[tuple[object, ...]]
_SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname ~ '^w_'"
_ROLES = "SELECT rolname FROM pg_roles WHERE rolname ~ '^w_'"
_PLACEMENTS = "SELECT wiki_id, database, schema, role, condition FROM wikiholt.placements"
_TABLES = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname ~ '^w_' AND tablename ~ '^g[0-9]+_'"
_INVALID_INDEXES = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid OR NOT indisready"
_LARGE_OBJECTS = "SELECT count(*) FROM pg_largeobject_metadata"


def find_leftovers(addresses: dict[str, str], registered: dict[str, str], *, quarantined: str = "") -> list[str]:
    """Descriptions of leftovers. `addresses` are those of the databases by name; `home` is first.

    `registered` has the ids of wikis by slug; schemas that match the pattern `quarantined` are no leftovers.
    """
    found: list[str] = []
    with psycopg.connect(next(iter(addresses.values()))) as home:
        placed = home.execute(_PLACEMENTS).fetchall()
        found += [
            f"work for {row[0]}"
            for row in home.execute("SELECT wiki_id FROM wikiholt.work").fetchall()
            if row[0] not in registered.values()
        ]
        roles = {str(name) for (name,) in home.execute(_ROLES).fetchall()}
        others = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|w_)'"
        schemas = {str(name) for (name,) in home.execute(others).fetchall()}
    found += [
        f"a placement of {row[0]}, which is not registered" for row in placed if row[0] not in registered.values()
    ]
    found += [f"a placement of {row[0]} that is {row[4]}" for row in placed if row[4] != "here"]
    found += [f"role {role}" for role in roles - {str(row[3]) for row in placed}]
    expected = {"wikiholt", "public", "information_schema"}
    found += [f"schema {name}" for name in schemas - expected if not re.fullmatch(quarantined, name)]
    for name, address in addresses.items():
        placed_schemas = {str(row[2]) for row in placed if row[1] == name}
        with psycopg.connect(address) as db:
            found += [f"{name}: {leftover}" for leftover in _check_database(db, placed_schemas, quarantined)]
    return found


def _check_database(db: Connection, placed: set[str], quarantined: str) -> Iterator[str]:
    schemas = {str(name) for (name,) in db.execute(_SCHEMAS).fetchall() if not re.fullmatch(quarantined, str(name))}
    yield from (f"schema {schema} of no wiki" for schema in schemas - placed)
    yield from (f"no schema {schema}, where a wiki should be" for schema in placed - schemas)
    yield from (f"index {name} is not valid" for (name,) in db.execute(_INVALID_INDEXES).fetchall())
    if db.execute(_LARGE_OBJECTS).fetchone() != (0,):
        yield "large objects"
    for schema in schemas & placed:
        yield from _check_schema(db, schema)


def _check_schema(db: Connection, schema: str) -> Iterator[str]:
    query = psycopg.sql.SQL
    named = psycopg.sql.Identifier(schema)
    generations = query("SELECT number FROM {}.state WHERE number > 0").format(named)
    numbers = {number for (number,) in db.execute(generations).fetchall()}
    tables = {name for table_schema, name in db.execute(_TABLES).fetchall() if table_schema == schema}
    owned = {f"g{number}_{table}" for number in numbers for table in ("pages", "chunks")}
    yield from (f"table {schema}.{name} of no generation" for name in tables - owned)
    holders = query("SELECT name FROM {}.state WHERE holder IS NOT NULL AND until > clock_timestamp()").format(named)
    yield from (f"lease {name} of {schema} has no holder" for (name,) in db.execute(holders).fetchall())
    # An unfinished reindex is continued by the next one; an unfinished copy of a backup is not.
    unfinished = query("SELECT number FROM {}.state WHERE condition = 'building' AND origin = 'backup'").format(named)
    yield from (f"generation {number} of {schema} is an unfinished copy" for (number,) in db.execute(unfinished))
