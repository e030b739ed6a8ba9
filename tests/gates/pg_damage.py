"""What an operator's slip, or a disk, can do to rows; and what nobody must leave behind."""

from collections.abc import Callable
from random import Random

import psycopg
from psycopg import sql

Connection = psycopg.Connection[tuple[object, ...]]
REGISTRY = ("registry key", "registry wiki", "registry seal")
"""Damage of the registry, which a backup of it mends."""


def harm_rows(address: str, schema: str, rng: Random, turn: int) -> list[str]:
    """Damage something of one wiki, or of the registry, in the database it lives in, and say what."""
    kinds = list(_DAMAGE)
    chosen = [kinds[turn % len(kinds)], *(rng.choice(kinds[: -len(REGISTRY)]) for _ in range(rng.randrange(0, 2)))]
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(sql.SQL("SET search_path TO {}, public").format(sql.Identifier(schema)))
        return [kind for kind in chosen if _done(db, kind, rng)]


def _done(db: Connection, kind: str, rng: Random) -> bool:
    """Whether there was something to be damaged."""
    tables = [
        str(name) for (name,) in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    ]
    numbers = sorted({int(name[1:].split("_")[0]) for name in tables if name.endswith("_pages")})
    if not numbers and kind not in REGISTRY:
        return False
    names = (
        {each: sql.Identifier(f"g{numbers[-1]}_{each}") for each in ("pages", "chunks", "dropped")} if numbers else {}
    )
    return db.execute(sql.SQL(_DAMAGE[kind](rng)).format(**names)).rowcount != 0


def _one(table: str, change: str) -> Callable[[Random], str]:
    """Change one row, any."""

    def order(rng: Random) -> str:
        row = f"(SELECT ctid FROM {{{table}}} ORDER BY ctid OFFSET {rng.randrange(5)} LIMIT 1)"
        return f"UPDATE {{{table}}} SET {change} WHERE ctid = {row}"

    return order


def _always(order: str) -> Callable[[Random], str]:
    return lambda _: order


_DAMAGE: dict[str, Callable[[Random], str]] = {
    "page text": _one("pages", "name = name || '!'"),
    "page words": _one("pages", "words = substr(words, 1, length(words) / 2)"),
    "page terms": _one("pages", "terms = 'other:1'::tsvector"),
    "page seal": _one("pages", "seal = seal + 1"),
    "page gone": _always("DELETE FROM {pages} WHERE id = (SELECT min(id) FROM {pages})"),
    "page blob": _one("pages", "blob = reverse(blob)"),
    "chunk text": _one("chunks", "text = 'other'"),
    "chunk vector": _one("chunks", "vector = (SELECT vector FROM {chunks} ORDER BY id DESC LIMIT 1)"),
    "chunks gone": _always("DELETE FROM {chunks} WHERE id % 3 = 0"),
    "all chunks gone": _always("TRUNCATE {chunks}"),
    "state counts": _always("UPDATE state SET pages = pages + 1"),
    "state revision": _always("UPDATE state SET revision = reverse(revision) WHERE revision IS NOT NULL"),
    "state unpublished": _always("UPDATE state SET published = false"),
    "state gone": _always("DELETE FROM state"),
    "notes garbled": _always("UPDATE notes SET text = '{{' WHERE name IN ('health', 'reindex', 'mark')"),
    "notes gone": _always("DELETE FROM notes WHERE name <> 'layout'"),
    "table gone": _always("DROP TABLE {chunks}"),
    "registry key": _always("DELETE FROM wikiholt.keys WHERE id = (SELECT min(id) FROM wikiholt.keys)"),
    "registry wiki": _always("UPDATE wikiholt.wikis SET source = '/elsewhere'"),
    "registry seal": _always("UPDATE wikiholt.sealed SET digest = 'x'"),
}
DAMAGE = tuple(_DAMAGE)
