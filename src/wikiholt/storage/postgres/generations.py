"""The generations of one wiki's index: rows of `state`, and the tables each has.

What these functions are given is a connection whose search path is the wiki's schema. Rows are written as the wiki's
role; tables are made and dropped by the operator, whose transaction then also holds the row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from psycopg import sql

from wikiholt.domain.index import Recipe
from wikiholt.errors import IndexMissing
from wikiholt.storage.postgres import rows, schema
from wikiholt.storage.postgres.placements import Placement
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.schema import MOVED_MARK, SchemaLayout

_GENERATION_COLUMNS = (
    "number, published, origin, condition, why, fingerprint, dimensions, pipeline, model, precision, revision"
)
_SELECT_PUBLISHED = (
    "SELECT number, version, seal FROM state WHERE published OR condition = 'good'"
    " ORDER BY published DESC, revision IS NOT NULL DESC, number DESC LIMIT 1"
)
"""Where it was lost which one is published, it is the newest good one that stands for a revision."""


_LOST_TABLES_WINDOW = 20


class PostgresGenerationOrigin(StrEnum):
    """What a generation is made from."""

    SCRATCH = "nothing"
    PREVIOUS = "before"
    """Vectors of the published one are taken over."""
    BACKUP = "backup"


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """A row of `state`, as far as it says what a generation is."""

    number: int
    published: bool
    origin: PostgresGenerationOrigin
    condition: str
    """building, good or aside"""
    reason: str
    recipe: Recipe
    revision: str | None


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """What one statement tells of a wiki's schema."""

    layout: SchemaLayout | None
    """None where the wiki has been moved to another database."""
    published: int | None
    change_token: str
    """Another after anything was written."""
    last_change_token: str
    """The stamp as the last writer left it."""


def read_status(connection: Connection) -> SchemaStatus:
    """How the wiki stands; cheap enough for every search."""
    order = (
        "SELECT (SELECT text FROM notes WHERE name = 'layout'), (SELECT text FROM notes WHERE name = 'mark'),"
        f" number, version, seal FROM (SELECT 1) AS one LEFT JOIN ({_SELECT_PUBLISHED}) AS published ON true"
    )
    text, mark, number, version, seal = connection.execute(order).fetchone() or (None,) * 5
    stamp = f"{number} {version} {seal}" if number is not None else "None"
    return SchemaStatus(None if text == MOVED_MARK else SchemaLayout.parse(text), number, stamp, mark or "")


def write_change_mark(connection: Connection) -> None:
    """Note the stamp as it is now."""
    order = "INSERT INTO notes (name, text) VALUES ('mark', %s) ON CONFLICT (name) DO UPDATE SET text = excluded.text"
    connection.execute(order, (read_status(connection).change_token,))


def list_generations(connection: Connection) -> list[GenerationRow]:
    """Every generation, those set aside too, in order."""
    found = connection.execute(f"SELECT {_GENERATION_COLUMNS} FROM state ORDER BY number").fetchall()
    return [
        GenerationRow(number, published, PostgresGenerationOrigin(origin), condition, why, Recipe(*recipe), revision)
        for number, published, origin, condition, why, *recipe, revision in found
    ]


def create_generation(
    connection: Connection,
    placement: Placement,
    recipe: Recipe,
    origin: PostgresGenerationOrigin,
    *,
    published: bool = False,
) -> int:
    """Make an empty generation, as the operator; its number was never another's."""
    order = (
        "SELECT greatest((SELECT max(number) FROM state), (SELECT max(substring(relname FROM '^g([0-9]+)_')::int4)"
        " FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'), 0) + 1"
    )
    (number,) = connection.execute(order).fetchone() or (1,)
    statements = schema.build_create_statements(placement.schema, number, recipe.dimensions, placement.role)
    connection.execute(sql.SQL("; ").join(statements))
    standing = rows.make_initial_state(number, recipe)
    values = (
        *standing.row,
        standing.get_checksum(placement.wiki_id),
        published,
        origin,
        "good" if published else "building",
    )
    order = (
        f"INSERT INTO state ({rows.STATE_COLUMNS}, seal, published, origin, condition)"
        f" VALUES ({', '.join(['%s'] * len(values))})"
    )
    connection.execute(order, values)
    return int(number)


def remove_generations(connection: Connection, placement: Placement, numbers: Sequence[int]) -> None:
    """Remove generations with their tables, as the operator."""
    for number in numbers:
        connection.execute(schema.build_drop_statement(placement.schema, number))
    connection.execute("DELETE FROM state WHERE number = ANY(%s)", (list(numbers),))


def publish_generation(connection: Connection, number: int) -> None:
    """Make that one the published one, in one statement; raises IndexMissing."""
    order = (
        "UPDATE state SET published = (number = %(number)s), condition = 'good',"
        " ended = CASE WHEN number = %(number)s THEN NULL ELSE clock_timestamp() END"
        " WHERE published OR number = %(number)s RETURNING number"
    )
    changed = connection.execute(order, {"number": number}).fetchall()
    if (number,) not in changed:
        raise IndexMissing("this generation is not there", hint="run `wikiholt sync`")


def find_old_generations(connection: Connection, linger_s: float) -> list[int]:
    """Those that were before the published one, for longer than any search that began in one may take."""
    order = (
        "SELECT number FROM state WHERE number < (SELECT max(number) FROM state WHERE published)"
        " AND condition <> 'aside' AND coalesce(ended < clock_timestamp() - %s * interval '1 second', true)"
    )
    # And tables that have lost their row; to look for names is cheap, to look through a schema of thousands is not.
    lost = (
        "SELECT number FROM (SELECT max(number) AS last FROM state WHERE published) AS published,"
        f" generate_series(greatest(1, last - {_LOST_TABLES_WINDOW}), last - 1) AS number"
        " WHERE to_regclass(format('g%%s_pages', number)) IS NOT NULL AND number NOT IN (SELECT number FROM state)"
    )
    return [number for (number,) in connection.execute(f"{order} UNION ALL {lost}", (linger_s,))]


def find_abandoned(connection: Connection) -> list[int]:
    """Copies whose restoring never came to its end."""
    order = (
        "SELECT number FROM state WHERE origin = 'backup' AND condition = 'building'"
        " AND number > (SELECT max(number) FROM state WHERE published)"
    )
    return [number for (number,) in connection.execute(order)]


def set_origin(connection: Connection, number: int, origin: PostgresGenerationOrigin) -> None:
    """Say what a generation that is gone on with is made from."""
    connection.execute("UPDATE state SET origin = %s WHERE number = %s", (origin, number))


def quarantine_generations(connection: Connection, numbers: Sequence[int], name: str) -> None:
    """Mark generations as set aside under a name: they are kept, and nothing opens them."""
    order = "UPDATE state SET published = false, condition = 'aside', why = %s WHERE number = ANY(%s)"
    connection.execute(order, (name, list(numbers)))


def list_quarantined(connection: Connection) -> list[str]:
    """The names of what was set aside, oldest first: generations, then schemas that had lost their tables."""
    schemas = "SELECT nspname FROM pg_namespace WHERE nspname ~ ('^b[0-9]{14}_' || current_schema() || '$') ORDER BY 1"
    names = {each.reason for each in list_generations(connection) if each.condition == "aside"}
    return sorted(names) + [name for (name,) in connection.execute(schemas)]
