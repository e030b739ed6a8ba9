"""The rows of a wiki's table `state`: its generations, with their tables, and its notes.

The functions take a connection whose search path is the wiki's schema. The wiki's role writes rows; the operator
creates and drops tables, in the same transaction as the row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from wikiholt.domain.index import Recipe
from wikiholt.errors import IndexMissing
from wikiholt.index.postgres import schema
from wikiholt.index.postgres.errors import make_missing_error
from wikiholt.index.postgres.placements import Placement
from wikiholt.index.postgres.pool import Connection
from wikiholt.index.postgres.rows import STATE_COLUMNS, get_part_names, make_initial_state, split_text
from wikiholt.index.postgres.schema import MOVED_MARK, SCHEMA_LAYOUT, GenerationTables, parse_layout
from wikiholt.index.sqlite.wiki_directory import GenerationOrigin

_GENERATION_COLUMNS = (
    "number, published, origin, condition, text, fingerprint, dimensions, pipeline, model, precision, revision"
)
_GENERATION_ROWS = "name >= '#g' AND name < '#h'"
_SELECT_PUBLISHED = (
    "SELECT number, version, seal FROM state"
    f" WHERE {_GENERATION_ROWS} AND (published OR condition = 'good')"
    " ORDER BY published DESC, revision IS NOT NULL DESC, number DESC LIMIT 1"
)
"""If no generation is marked as published, the newest good one with a revision counts as published."""

_LAST_PUBLISHED = f"SELECT max(number) FROM state WHERE {_GENERATION_ROWS} AND published"
_LOST_TABLES_WINDOW = 20
_RESERVED_NOTES = {"writer", "activity", "layout", "mark"}


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """The columns of `state` that identify a generation."""

    number: int
    published: bool
    origin: GenerationOrigin
    condition: str
    """`building`, `good` or `aside` (quarantined)."""
    reason: str
    recipe: Recipe
    revision: str | None


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """The status of a wiki's schema, read in one statement."""

    layout: int | None
    """None if the wiki has been moved to another database."""
    published: int | None
    change_token: str
    """Changes with every write."""


def read_status(connection: Connection) -> SchemaStatus:
    """Read the status of a wiki. Cheap enough for every search. Raises IndexMissing, also for an older layout."""
    statement = (
        "SELECT (SELECT text FROM state WHERE name = 'layout'),"
        " number, version, seal FROM (SELECT 1) AS one"
        f" LEFT JOIN ({_SELECT_PUBLISHED}) AS published ON true"
    )
    layout, number, version, checksum = connection.execute(statement).fetchone() or (None,) * 4
    known_layout = parse_layout(layout)
    if known_layout is not None and known_layout < SCHEMA_LAYOUT:
        raise make_missing_error()
    change_token = f"{number} {version} {checksum}" if number is not None else "None"
    return SchemaStatus(known_layout, number, change_token)


def list_generations(connection: Connection) -> list[GenerationRow]:
    """List all generations by number, including quarantined ones."""
    statement = f"SELECT {_GENERATION_COLUMNS} FROM state WHERE {_GENERATION_ROWS} ORDER BY number"
    rows = connection.execute(statement).fetchall()
    return [
        GenerationRow(number, published, GenerationOrigin(origin), condition, why, Recipe(*recipe), revision)
        for number, published, origin, condition, why, *recipe, revision in rows
    ]


def create_generation(
    connection: Connection,
    placement: Placement,
    recipe: Recipe,
    origin: GenerationOrigin,
    *,
    published: bool = False,
) -> int:
    """Create an empty generation, as the operator, and return its number. Numbers are not reused."""
    statement = (
        f"SELECT number FROM (SELECT coalesce(max(number), 0) AS last FROM state WHERE {_GENERATION_ROWS}) AS known,"
        " generate_series(last + 1, last + 1000) AS number"
        " WHERE to_regclass(format('g%s_pages', number)) IS NULL AND to_regclass(format('g%s_chunks', number)) IS NULL"
        " LIMIT 1"
    )
    (number,) = connection.execute(sql.SQL(statement)).fetchone() or (1,)
    statements = schema.build_create_statements(placement.schema, number, recipe.dimensions, placement.role)
    connection.execute(sql.SQL("; ").join(statements))
    state = make_initial_state(number, recipe)
    values = (
        *state.row,
        state.get_checksum(placement.wiki_id),
        published,
        origin,
        "good" if published else "building",
        GenerationTables(number).state_name,
        "",
    )
    statement = (
        f"INSERT INTO state ({STATE_COLUMNS}, seal, published, origin, condition, name, text)"
        f" VALUES ({', '.join(['%s'] * len(values))})"
    )
    connection.execute(statement, values)
    return int(number)


def remove_generations(connection: Connection, placement: Placement, numbers: Sequence[int]) -> None:
    """Delete generations and their tables, as the operator."""
    for number in numbers:
        tables = GenerationTables(number)
        connection.execute(schema.build_drop_statement(placement.schema, number))
        connection.execute(
            "DELETE FROM state WHERE name = %s OR name >= %s AND name < %s", (tables.state_name, *tables.problem_names)
        )


def publish_generation(connection: Connection, number: int) -> None:
    """Publish a generation, in one statement. Raises IndexMissing."""
    statement = (
        "UPDATE state SET published = (number = %(number)s), condition = 'good',"
        " until = CASE WHEN number = %(number)s THEN NULL ELSE clock_timestamp() END"
        f" WHERE {_GENERATION_ROWS} AND (published OR number = %(number)s) RETURNING number"
    )
    changed = connection.execute(statement, {"number": number}).fetchall()
    if (number,) not in changed:
        raise IndexMissing("this generation does not exist", hint="run `wikiholt sync`")


def find_old_generations(connection: Connection, linger_s: float) -> list[int]:
    """List generations older than the published one that no search can still be using."""
    statement = (
        f"SELECT number FROM state WHERE {_GENERATION_ROWS} AND number < ({_LAST_PUBLISHED})"
        " AND condition <> 'aside' AND coalesce(until < clock_timestamp() - %s * interval '1 second', true)"
    )
    # Also finds tables without a row. Looking up a few names is cheap; scanning a large catalog is not.
    orphaned = (
        f"SELECT number FROM ({_LAST_PUBLISHED}) AS published (last),"
        f" generate_series(greatest(1, last - {_LOST_TABLES_WINDOW}), last - 1) AS number"
        " WHERE to_regclass(format('g%%s_pages', number)) IS NOT NULL"
        f" AND number NOT IN (SELECT number FROM state WHERE {_GENERATION_ROWS})"
    )
    return [number for (number,) in connection.execute(f"{statement} UNION ALL {orphaned}", (linger_s,))]


def find_abandoned(connection: Connection) -> list[int]:
    """List generations of restores that did not finish."""
    statement = (
        f"SELECT number FROM state WHERE {_GENERATION_ROWS} AND origin = 'backup' AND condition = 'building'"
        f" AND number > ({_LAST_PUBLISHED})"
    )
    return [number for (number,) in connection.execute(statement)]


def set_origin(connection: Connection, number: int, origin: GenerationOrigin) -> None:
    """Change the origin of a generation that is resumed."""
    statement = "UPDATE state SET origin = %s WHERE name = %s"
    connection.execute(statement, (origin, GenerationTables(number).state_name))


def quarantine_generations(connection: Connection, numbers: Sequence[int], name: str) -> None:
    """Quarantine generations under a name: they are kept and never opened."""
    statement = "UPDATE state SET published = false, condition = 'aside', text = %s WHERE name = ANY(%s)"
    connection.execute(statement, (name, [GenerationTables(number).state_name for number in numbers]))


def list_quarantined(connection: Connection) -> list[str]:
    """List the names of quarantined generations, then of quarantined schemas, oldest first."""
    (current,) = connection.execute("SELECT current_schema()").fetchone() or ("",)
    names = {generation.reason for generation in list_generations(connection) if generation.condition == "aside"}
    return sorted(names) + schema.find_quarantined_schemas(connection, current)


# ── notes ────────────────────────────────────────────────────────────────────────────────────────


def read_note(connection: Connection, name: str) -> str | None:
    """Read a note; None if there is none."""
    names = (_validate_note_name(name), *get_part_names(name))
    statement = "SELECT text FROM state WHERE name = %s OR name >= %s AND name < %s ORDER BY name"
    parts = connection.execute(statement, names).fetchall()
    return None if not parts or parts[0] == (None,) else "".join(text for (text,) in parts)


def write_note(connection: Connection, name: str, text: str) -> bool:
    """Write a note. Returns False if the wiki has been moved to another database."""
    first, *others = split_text(_validate_note_name(name), text)
    statement = "INSERT INTO state (name, text) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET text = excluded.text"
    connection.execute(statement, first)
    # A statement of its own: it sees the parts of a writer that the first statement waited for.
    statement = (
        "WITH removed AS (DELETE FROM state WHERE name >= %s AND name < %s)"
        " SELECT text FROM state WHERE name = 'layout'"
    )
    layout = connection.execute(statement, get_part_names(name)).fetchone()
    for part in others:
        connection.execute("INSERT INTO state (name, text) VALUES (%s, %s)", part)
    return layout != (MOVED_MARK,)


def read_lease_text(connection: Connection, name: str) -> str | None:
    """Read the text of a lease; None if nobody holds it."""
    statement = "SELECT text FROM state WHERE name = %s AND holder IS NOT NULL AND until >= clock_timestamp()"
    (text,) = connection.execute(statement, (name,)).fetchone() or (None,)
    return None if text is None else str(text)


def get_schema_bytes(connection: Connection) -> int:
    statement = (
        "SELECT coalesce(sum(pg_total_relation_size(objid)), 0)::int8 FROM pg_depend"
        " WHERE refclassid = 'pg_namespace'::regclass AND refobjid = current_schema()::regnamespace"
        " AND classid = 'pg_class'::regclass"
    )
    (total,) = connection.execute(statement).fetchone() or (0,)
    return int(total)


def _validate_note_name(name: str) -> str:
    """The name. Raises ValueError if the store itself uses it."""
    if name in _RESERVED_NOTES or name.startswith("#") or "." in name:
        raise ValueError(f"the note name {name} is reserved")
    return name
