"""Damage to rows, as caused by a mistake of an operator or by a disk."""

from collections.abc import Callable
from random import Random

import psycopg
from psycopg import sql

Connection = psycopg.Connection[tuple[object, ...]]
ALL_STATE_GONE = "all state gone"
"""The damage after which the schema of a wiki is quarantined."""
REGISTRY_DAMAGES = ("registry key", "registry wiki", "registry version")
"""Damage to the registry, which is repaired from its backup."""


def damage_rows(address: str, schema: str, rng: Random, round_number: int) -> list[str]:
    """Damage rows of one wiki, or of the registry, in its database. Returns the kinds of damage."""
    kinds = list(_DAMAGE_STATEMENTS)
    chosen = [
        kinds[round_number % len(kinds)],
        *(rng.choice(kinds[: -len(REGISTRY_DAMAGES)]) for _ in range(rng.randrange(0, 2))),
    ]
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(sql.SQL("SET search_path TO {}, public").format(sql.Identifier(schema)))
        return [kind for kind in chosen if _apply_damage(db, kind, rng)]


def _apply_damage(db: Connection, kind: str, rng: Random) -> bool:
    """Returns whether rows were changed."""
    existing = [
        str(name) for (name,) in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    ]
    numbers = sorted({int(name[1:].split("_")[0]) for name in existing if name.endswith("_pages")})
    if not numbers and kind not in REGISTRY_DAMAGES:
        return False
    names = {table: sql.Identifier(f"g{numbers[-1]}_{table}") for table in ("pages", "chunks")} if numbers else {}
    return db.execute(sql.SQL(_DAMAGE_STATEMENTS[kind](rng)).format(**names)).rowcount != 0


def _change_one_row(table: str, change: str) -> Callable[[Random], str]:
    """A statement that changes one random row."""

    def make_statement(rng: Random) -> str:
        row = f"(SELECT ctid FROM {{{table}}} ORDER BY ctid OFFSET {rng.randrange(5)} LIMIT 1)"
        return f"UPDATE {{{table}}} SET {change} WHERE ctid = {row}"

    return make_statement


def _make_statement(statement: str) -> Callable[[Random], str]:
    return lambda _: statement


_DAMAGE_STATEMENTS: dict[str, Callable[[Random], str]] = {
    "page text": _change_one_row("pages", "name = name || '!'"),
    "page words": _change_one_row("pages", "words = substr(words, 1, length(words) / 2)"),
    "page seal": _change_one_row("pages", "seal = seal + 1"),
    "page gone": _make_statement("DELETE FROM {pages} WHERE id = (SELECT min(id) FROM {pages})"),
    "page blob": _change_one_row("pages", "blob = reverse(blob)"),
    "chunk text": _change_one_row("chunks", "text = 'other'"),
    "chunk vector": _change_one_row("chunks", "vector = (SELECT vector FROM {chunks} ORDER BY id DESC LIMIT 1)"),
    "chunks gone": _make_statement("DELETE FROM {chunks} WHERE id % 3 = 0"),
    "all chunks gone": _make_statement("TRUNCATE {chunks}"),
    "state counts": _make_statement("UPDATE state SET pages = pages + 1"),
    "state revision": _make_statement("UPDATE state SET revision = reverse(revision) WHERE revision IS NOT NULL"),
    "state unpublished": _make_statement("UPDATE state SET published = false WHERE published"),
    "state gone": _make_statement("DELETE FROM state WHERE number > 0"),
    ALL_STATE_GONE: _make_statement("DELETE FROM state"),
    "dropped ids garbled": _make_statement("UPDATE state SET text = '[' WHERE name LIKE '#d%'"),
    "notes garbled": _make_statement("UPDATE state SET text = '{{' WHERE name IN ('health', 'reindex', 'mark')"),
    "notes gone": _make_statement("DELETE FROM state WHERE name <> 'layout' AND name NOT LIKE '#%'"),
    "table gone": _make_statement("DROP TABLE {chunks}"),
    "registry key": _make_statement("UPDATE wikiholt.keys SET wiki_id = 'aaaaaaaaaaaa'"),
    "registry wiki": _make_statement("UPDATE wikiholt.wikis SET source = '/elsewhere'"),
    "registry version": _make_statement("DELETE FROM wikiholt.state"),
}
