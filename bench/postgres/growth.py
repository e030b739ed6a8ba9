"""On-boarding, removal, checkpoint, restart and searches while one database grows, with a login that is no superuser."""

import random
import signal
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg

from bench.embedders import CachingEmbedder
from bench.many_wikis.repositories import make_slug
from bench.measures import get_percentiles_ms, measure_seconds, read_private_mb
from bench.postgres.load import read_tree_cpu_s
from bench.postgres.parts import ReportPart
from bench.postgres.server import get_disk_bytes, get_pid, run_server
from bench.postgres.sides import Side
from bench.report import make_head
from tests.support.postgres_server import PostgresServer
from wikiholt.domain.index import IndexChange, PageEntry, Recipe
from wikiholt.domain.search import SearchMode
from wikiholt.domain.wiki import HOME_DATABASE
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.postgres.catalog import CATALOG_SCHEMA
from wikiholt.index.postgres.generations import create_generation
from wikiholt.index.postgres.placements import reserve_placement, write_condition
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.index.sqlite.wiki_directory import GenerationOrigin
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.testing.fakes import make_entry

STAGES = (1_000, 5_000, 10_000)
DIMENSIONS = 384
TIMED = 200
"""The wikis before each stage whose on-boarding is timed; after it the first of them are filled, searched, removed."""
BATCH = 50
"""Wikis per transaction, of those whose on-boarding is not timed."""
FILLED = 60
REMOVED = 40
_NAPTIME_S = 5
_SETTINGS = {"autovacuum": "on", "autovacuum_naptime": f"{_NAPTIME_S}s", "max_locks_per_transaction": "1024"}
"""pg_dump locks every table."""
_IDLE_PASSES = 4
_CATALOG_MB = """
SELECT (SELECT count(*) FROM pg_class), (SELECT sum(pg_total_relation_size(oid)) FROM pg_class
  WHERE relkind = 'r' AND relnamespace = 'pg_catalog'::regnamespace) / 1e6
"""
_RELATIONS = """
SELECT count(*) FROM pg_class AS r JOIN pg_namespace AS n ON n.oid = r.relnamespace
WHERE n.nspname LIKE 'w\\_%' OR (n.nspname = 'pg_toast' AND r.oid >= 16384)
"""


def run(stages: Sequence[int]) -> None:
    part = ReportPart("growth", "One database that grows")
    part.add(
        f"Empty wikis are created, the last {TIMED} of each size one after another, by a login with CREATEROLE that is no superuser. At each size "
        f"{FILLED} wikis get 20 chunks and are searched, and {REMOVED} are removed. Times in ms are p50 (p10) by the "
        "clock; CPU is this process and all of PostgreSQL.",
        "",
        make_head(
            "| wikis | create | CPU | remove | relations a wiki | KiB a wiki | checkpoint s | restart s "
            "| after SIGQUIT s | search warm | search cold | search warm p95 | pg_class rows | catalogs MB "
            "| pg_dump --schema-only s | idle autovacuum CPU ms a pass | MB a backend |"
        ),
    )
    embedder = CachingEmbedder(FakeEmbedder(DIMENSIONS))
    with run_server(**_SETTINGS) as server, tempfile.TemporaryDirectory(prefix="bench-") as place:
        side = Side("PostgreSQL", Path(place), embedder, _make_database(server))
        before = get_disk_bytes(server)
        try:
            count = 0
            for stage in stages:
                slugs = [make_slug(number) for number in range(count, stage)]
                side.register(slugs, Path("bench"))
                row = _grow(side, server, slugs)
                part.add(f"| {stage:,} | " + " | ".join([*row, *_measure(side, server, slugs, stage, before)]) + " |")
                count = stage
                part.save()
        finally:
            side.close()
    part.save()


def _make_database(server: PostgresServer) -> str:
    """A database that belongs to a login with CREATEROLE and nothing else."""
    address = server.create_database()
    name = str(psycopg.conninfo.conninfo_to_dict(address)["dbname"])
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE ROLE plain LOGIN CREATEROLE PASSWORD 'plain'")
        connection.execute(f"ALTER DATABASE {name} OWNER TO plain")
    return server.get_dsn(name, "plain", "plain")


def _grow(side: Side, server: PostgresServer, slugs: Sequence[str]) -> list[str]:
    recipe = TextPipeline().build_recipe(side.embedder)
    store = side.store
    assert isinstance(store, PostgresStore)
    for start in range(0, len(slugs) - TIMED, BATCH):
        some = slugs[start : min(start + BATCH, len(slugs) - TIMED)]
        _create_many(store, [side.get_id(name) for name in some], recipe)
        if start % 500 == 0:
            print(f"{slugs[start]}", flush=True)
    cpu = _cpu(server)
    times = [measure_seconds(side.create, name, recipe) for name in slugs[-TIMED:]]
    return [_format(times), f"{(_cpu(server) - cpu) / TIMED * 1e3:.1f}"]


def _create_many(store: PostgresStore, wiki_ids: Sequence[str], recipe: Recipe) -> None:
    """Create wikis as `create` does, but in one transaction and without logging in to each."""
    placements = store.placements
    with placements.catalog.write_transaction() as connection:
        for wiki_id in wiki_ids:
            placement = placements.provision_schema(connection, reserve_placement(connection, wiki_id, HOME_DATABASE))
            write_condition(connection, placement)
            connection.execute(f"SET LOCAL search_path TO {placement.schema}, public")
            create_generation(connection, placement, recipe, GenerationOrigin.SCRATCH, published=True)
            connection.execute(f"SET LOCAL search_path TO {CATALOG_SCHEMA}, public")


def _measure(side: Side, server: PostgresServer, slugs: Sequence[str], stage: int, before: int) -> list[str]:
    # The autovacuum and the checkpoint that a server of this size has anyway.
    relations, checkpoint = _checkpoint(side, server)
    size = (get_disk_bytes(server) - before) / stage / 1024
    restart, crash = _restart(server, signal.SIGINT), _restart(server, signal.SIGQUIT)
    recent = slugs[-TIMED:]
    for number, name in enumerate(recent[:FILLED]):
        side.fill(name, _make_pages(side.embedder, number))
    warm, cold = _search(side, recent[:FILLED])
    catalog = _measure_catalog(side, server)
    removed = [measure_seconds(side.store.delete, side.get_id(name)) for name in recent[-REMOVED:]]
    return [
        _format(removed),
        f"{relations / stage:.1f}",
        f"{size:.0f}",
        f"{checkpoint:.1f}",
        f"{restart:.1f}",
        f"{crash:.1f}",
        _format(warm),
        _format(cold),
        f"{get_percentiles_ms(warm)[1]:.1f}",
        *catalog,
    ]


def _measure_catalog(side: Side, server: PostgresServer) -> list[str]:
    """What the number of relations costs besides requests."""
    address = server.get_dsn(str(psycopg.conninfo.conninfo_to_dict(side.address)["dbname"]))
    with psycopg.connect(address, autocommit=True) as connection:
        rows, megabytes = connection.execute(_CATALOG_MB).fetchone() or (0, 0)
        backends = connection.execute("SELECT pid FROM pg_stat_activity WHERE usename ~ '^w_'").fetchall()
    memory = [read_private_mb(pid, ("Private_",)) for (pid,) in backends]
    dump = measure_seconds(server.dump_schema, address)
    time.sleep(_NAPTIME_S)  # the passes that have something to do
    cpu = read_tree_cpu_s(get_pid(server))
    time.sleep(_NAPTIME_S * _IDLE_PASSES)
    idle = (read_tree_cpu_s(get_pid(server)) - cpu) / _IDLE_PASSES
    return [f"{rows:,}", f"{megabytes:.0f}", f"{dump:.1f}", f"{idle * 1e3:.0f}", f"{statistics.median(memory):.1f}"]


def _checkpoint(side: Side, server: PostgresServer) -> tuple[int, float]:
    """The relations, and the seconds of a checkpoint after 1,000 further wikis were written to."""
    name = str(psycopg.conninfo.conninfo_to_dict(side.address)["dbname"])
    with psycopg.connect(server.get_dsn(name), autocommit=True) as connection:
        (relations,) = connection.execute(_RELATIONS).fetchone() or (0,)
        return int(relations), measure_seconds(connection.execute, "CHECKPOINT")


def _restart(server: PostgresServer, how: signal.Signals) -> float:
    """Seconds from the signal, or after a crash from the start, until the server accepts connections."""
    began = time.perf_counter()
    server.stop(how)
    if how is signal.SIGQUIT:
        began = time.perf_counter()
    server.start()
    return time.perf_counter() - began


def _make_pages(embedder: CachingEmbedder, number: int) -> IndexChange:
    rng = random.Random(number)
    words = [f"word{rng.randrange(5_000)}" for _ in range(4_000)]

    def make(page: int) -> PageEntry:
        texts = [" ".join(rng.choices(words, k=180)) for _ in range(2)]
        return make_entry(f"Page {page}.md", texts, embedder)  # type: ignore[arg-type]

    return IndexChange(tuple(make(page) for page in range(10)), revision="0" * 40)


def _search(side: Side, slugs: Sequence[str]) -> tuple[list[float], list[float]]:
    """Seconds of hybrid searches in wikis with an open session, and of the first in each."""
    warm, cold, request = [], [], SearchRequest("Page 3", mode=SearchMode.HYBRID)
    for turn in range(11):
        for name in slugs if turn == 0 else slugs[:10]:
            (warm if turn else cold).append(measure_seconds(side.service.get_handle(name).search, request))
    return warm[10:], cold


def _cpu(server: PostgresServer) -> float:
    return time.process_time() + read_tree_cpu_s(get_pid(server))


def _format(seconds: Sequence[float]) -> str:
    least = statistics.quantiles(seconds, n=10)[0] * 1e3
    return f"{get_percentiles_ms(seconds)[0]:.1f} ({least:.1f})"
