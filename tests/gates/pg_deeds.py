"""What processes do in a round on PostgreSQL: the deeds of the embedded store, and those that only databases know."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from deeds import DEEDS, SERVE, Bench, Deed, WikiHandle
from farm import product
from processes import Line
from psycopg import sql

from wikiholt.errors import Busy, PageNotFound, WikiNotFound
from wikiholt.ports import Databases
from wikiholt.stores.postgres import layout, pool, store
from wikiholt.stores.postgres.operating import PostgresDatabases
from wikiholt.stores.postgres.placing import Placements
from wikiholt.stores.postgres.store import PostgresStore

HOME, SECOND = "home", "second"
LEASE = 1.0
"""Seconds of a lease in a round; a node that sleeps for longer has lost what it held."""


def _move(bench: Bench) -> None:
    """To the other database and back, so that both ends of the way are reached."""
    wiki_id = bench.service.registry.get("victim").id
    for to in (SECOND, HOME) if bench.rng.random() < 0.5 else (HOME, SECOND):
        databases_of(bench).move(wiki_id, to)


def _add(bench: Bench) -> None:
    """A new wiki: registered, placed, indexed."""
    slug = f"extra-{bench.own}"
    bench.line.tell("begin", "wiki", slug, None)
    wiki = bench.service.add(slug, str(bench.elsewhere), {})
    bench.line.tell("done", "wiki", slug, wiki.id)
    bench.service.wiki(slug).sync()


def _upgrade(bench: Bench) -> None:
    newer()
    assert databases_of(bench).upgrade(lambda _, __: None) == ()


def databases_of(bench: Bench) -> Databases:
    databases = bench.service.workshop.databases
    assert databases is not None
    return databases


def newer() -> None:
    """Let this process be a program of the next version, with another layout."""
    migration = layout.Migration(layout.Layout(layout.LAYOUT + 1, 1), _wider)
    layout.MIGRATIONS = (*layout.MIGRATIONS, migration)
    layout.LAYOUT = store.LAYOUT = migration.layout.number


def _wider(schema: str, numbers: Sequence[int], _: str) -> Iterator[sql.Composed]:
    for table in ("notes", *(f"g{number}_pages" for number in numbers)):
        yield sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS later text").format(sql.Identifier(schema, table))


_BESIDE = ("sync", "back up", "write pages", "register", "reindex")
PG_DEEDS = {
    "sync": replace(DEEDS["sync"], steps=120),
    "reindex": replace(DEEDS["reindex"], steps=160),
    "other model": replace(DEEDS["other model"], steps=160),
    "publish": replace(DEEDS["publish"], window=(PostgresStore, "publish"), steps=4),
    "back up": replace(DEEDS["back up"], steps=300),
    "restore": replace(DEEDS["restore"], steps=200),
    "restore registry": replace(DEEDS["restore registry"], steps=60),
    "remove": replace(DEEDS["remove"], steps=60),
    "write pages": DEEDS["write pages"],
    "fetch": replace(DEEDS["fetch"], steps=120),
    "register": replace(DEEDS["register"], steps=100),
    "move": Deed(_move, (PostgresDatabases, "move"), 150, _BESIDE),
    "add": Deed(_add, (Placements, "make"), 100, _BESIDE),
    "upgrade": Deed(_upgrade, (PostgresDatabases, "upgrade"), 60, ("sync", "back up", "write pages", "register")),
}
ALONE_WITH_ITS_LEASE = ("sync", "reindex", "other model", "publish", "restore", "move")
"""Deeds that write under a lease, which another can take over while they sleep."""


def do_pg(name: str, bench: Bench) -> None:
    """Do it; that others are at work, or have removed what it is about, is no fault."""
    try:
        PG_DEEDS[name].task(bench)
    except (Busy, PageNotFound):
        bench.line.tell("gave way", name, None, None)
    bench.service.close()


def bench_on(
    name: str, data: Path, elsewhere: Path, own: str, rng: Random, line: Line, tokens: dict[str, str]
) -> Bench:
    pool._STILL = "2s"
    service = product(data, PG_DEEDS[name].model, 0.02)
    return Bench(service, rng, line, [(key_id, token) for token, key_id in sorted(tokens.items())], elsewhere, own)


__all__ = ["PG_DEEDS", "SERVE", "WikiHandle", "WikiNotFound", "bench_on", "do_pg", "newer"]
