"""One table for all wikis with `WHERE tenant_id = …` and one HNSW index: its recall for each wiki."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psycopg
from psycopg import sql

from bench.measures import get_percentiles_ms
from bench.postgres.parts import ReportPart
from bench.postgres.rows import PassageRows, encode_copy, encode_int4, encode_vector, format_vector, load_rows
from bench.postgres.server import run_server
from bench.report import make_head
from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.domain.protocols import Embedder
from wikiholt.index.postgres import queries
from wikiholt.index.postgres.schema import GenerationTables
from wikiholt.models import load_embedder

ROWS = 100_000
SIZES = {20_000: 1, 5_000: 2, 1_000: 5, 100: 10}
"""The number of searched wikis of each size; the other rows are wikis of a thousand."""
LIMIT = 30
QUERIES = 20
"""Questions a wiki; fewer where a size has many wikis."""

_TABLES = GenerationTables(1)
_FIND = "SELECT id FROM chunks WHERE {} = %s ORDER BY vector <#> %s::vector LIMIT 30"
_WAYS: dict[str, tuple[str, ...]] = {
    "shared table, HNSW (as usual)": (),
    "the same, iterative scan": ("SET hnsw.iterative_scan = strict_order",),
    "the same, iterative scan to the end": (
        "SET hnsw.iterative_scan = strict_order",
        "SET hnsw.max_scan_tuples = 1000000",
    ),
}


@dataclass
class TenantWiki:
    """The rows of one wiki, and its queries."""

    number: int
    rows: IntArray
    queries: FloatArray = field(default_factory=lambda: np.empty((0, 0), np.float32))


@dataclass
class WayResults:
    """The results of one way to search, for wikis of one size."""

    rows: list[int] = field(default_factory=list)
    recalls: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def format_row(self) -> str:
        p50, p95 = get_percentiles_ms(self.times)
        return f"{np.mean(self.rows):.1f} | {np.mean(self.recalls):.2f} | {p50:.2f} | {p95:.2f}"


Way = Callable[[TenantWiki, FloatArray], tuple[list[int], float]]
Database = psycopg.Connection[tuple[Any, ...]]


def run(rows: int = ROWS, queries: int = QUERIES) -> None:
    """Measure both ways to split rows into wikis, and save the result."""
    part = ReportPart("shared", "One shared table, and its recall loss")
    real = load_rows(rows)
    part.add(
        f"{rows:,} real passages (of a real wiki's pages) in one table `chunks` with one HNSW index "
        f"(m 16, ef_construction 64, ef_search 40) and `WHERE tenant_id = …`; {LIMIT} rows requested, questions are "
        "titles of pages. Recall@10 is against a scan of the wiki's own rows. An own table is searched by the "
        "store's own code, exactly.",
        "",
    )
    with (
        run_server() as server,
        load_embedder() as embedder,
        psycopg.connect(server.create_database(), autocommit=True) as database,
    ):
        by_lot = split_rows(np.random.default_rng(5).permutation(rows))
        by_place = split_rows(np.arange(rows))
        began = time.perf_counter()
        fill(database, real, by_lot, by_place)
        print(f"filled and indexed in {time.perf_counter() - began:.0f} s", flush=True)
        for column, wikis, about in (
            ("lot", by_lot, "Wikis about the same subjects (rows assigned at random; questions from all pages)"),
            (
                "place",
                by_place,
                "Wikis with subjects of their own (neighbouring pages; questions from their own pages)",
            ),
        ):
            searched_wikis = make_questions(wikis, real, embedder, queries, own=column == "place")
            part.add(f"### {about}", "", *run_ways(database, column, searched_wikis, real), "")
    part.save()


def split_rows(order: IntArray) -> list[TenantWiki]:
    """Wikis of the searched sizes, then wikis of a thousand."""
    sizes = [size for size, count in SIZES.items() for _ in range(count) if size < len(order)]
    sizes += [1_000] * max(0, (len(order) - sum(sizes)) // 1_000)
    ends = np.cumsum(sizes)
    return [
        TenantWiki(number, np.sort(order[end - size : end]))
        for number, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]


def fill(database: Database, real: PassageRows, *cuts: Sequence[TenantWiki]) -> None:
    """Fill the shared table, and a table per searched wiki in its own schema."""
    of = [np.full(len(real.vectors), -1, np.int64) for _ in cuts]
    for owners, wikis in zip(of, cuts, strict=True):
        for wiki in wikis:
            owners[wiki.rows] = wiki.number
    database.execute("CREATE TABLE chunks (id int, lot int, place int, vector vector(384) STORAGE PLAIN)")
    order = np.random.default_rng(6).permutation(len(real.vectors))
    copy_rows(
        database, sql.Identifier("chunks"), ((n, *(int(owners[n]) for owners in of)) for n in order.tolist()), real
    )
    database.execute("CREATE INDEX chunks_near ON chunks USING hnsw (vector vector_ip_ops)")
    for name, wikis in zip(("lot", "place"), cuts, strict=True):
        for wiki in wikis[: sum(SIZES.values())]:
            schema = f"{name}_{wiki.number}"
            database.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
            table = sql.Identifier(schema, _TABLES.chunks)
            create = "CREATE TABLE {} (id int, page_id int, vector vector(384) STORAGE PLAIN)"
            database.execute(sql.SQL(create).format(table))
            copy_rows(database, table, ((n, 0) for n in wiki.rows.tolist()), real)
    database.execute("ANALYZE")


def copy_rows(database: Database, table: sql.Identifier, rows: Iterable[tuple[int, ...]], real: PassageRows) -> None:
    with database.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(table)) as copy:
        for piece in encode_copy((*map(encode_int4, row), encode_vector(real.vectors[row[0]])) for row in rows):
            copy.write(piece)


def make_questions(
    wikis: Sequence[TenantWiki], real: PassageRows, embedder: Embedder, count: int, *, own: bool
) -> list[TenantWiki]:
    """The searched wikis with their questions."""
    rng = np.random.default_rng(8)
    searched_wikis = []
    everywhere = np.unique(real.pages)
    for wiki in wikis[: sum(SIZES.values())]:
        each = max(4, count // SIZES[len(wiki.rows)])
        pages = np.unique(real.pages[wiki.rows]) if own else everywhere
        titles = [real.names[int(page)] for page in rng.choice(pages, min(each, len(pages)), replace=False)]
        searched_wikis.append(
            TenantWiki(wiki.number, wiki.rows, np.stack([embedder.embed_query(title) for title in titles]))
        )
    return searched_wikis


def run_ways(database: Database, column: str, wikis: Sequence[TenantWiki], real: PassageRows) -> list[str]:
    """Search every question in every way in turn; last with an index on tenant_id, which would change the other plans."""
    ways = {name: _search_shared(database, column, settings) for name, settings in _WAYS.items()}
    ways["one schema a wiki"] = _search_own(database, column)
    found = run_queries(ways, wikis, real)
    database.execute(sql.SQL("CREATE INDEX chunks_tenant ON chunks ({})").format(sql.Identifier(column)))
    indexed = {
        "shared table, an index on tenant_id too, the planner's choice": _search_shared(
            database, column, ("RESET ALL",)
        )
    }
    found |= run_queries(indexed, wikis, real)
    database.execute("DROP INDEX chunks_tenant")
    lines = [
        make_head("| rows of the wiki | way | rows of 30 | recall@10 | p50 ms | p95 ms |"),
    ]
    order = [*_WAYS, *indexed, "one schema a wiki"]
    return lines + [f"| {size:,} | {name} | {found[name, size].format_row()} |" for size in SIZES for name in order]


def run_queries(
    ways: dict[str, Way], wikis: Sequence[TenantWiki], real: PassageRows
) -> dict[tuple[str, int], WayResults]:
    """The results of each way for wikis of each size."""
    found: dict[tuple[str, int], WayResults] = {}
    for _ in range(2):
        for wiki in wikis:
            own = real.vectors[wiki.rows]
            for query in wiki.queries:
                best = set(wiki.rows[np.argsort(-(own @ query), kind="stable")[:10]].tolist())
                for name, way in ways.items():
                    ids, took = way(wiki, query)
                    seen = found.setdefault((name, len(wiki.rows)), WayResults())
                    seen.times.append(took)
                    seen.rows.append(len(ids))
                    seen.recalls.append(len(set(ids[:10]) & best) / len(best))
    return found


def _search_shared(database: Database, column: str, settings: Sequence[str]) -> Way:
    find = sql.SQL(_FIND).format(sql.Identifier(column))

    def search(wiki: TenantWiki, query: FloatArray) -> tuple[list[int], float]:
        # The planner would read the whole table for a small wiki; the index is what is measured.
        database.execute("RESET ALL; SET enable_seqscan = off")
        for setting in settings:
            database.execute(setting)
        return _run_query(database, find, wiki.number, format_vector(query))

    return search


def _search_own(database: Database, column: str) -> Way:
    """Search with the code of the product in the schema of the wiki."""

    def search(wiki: TenantWiki, query: FloatArray) -> tuple[list[int], float]:
        path = sql.Identifier(f"{column}_{wiki.number}")
        database.execute(sql.SQL("RESET ALL; SET search_path TO {}, public").format(path))
        began = time.perf_counter()
        with database.transaction():
            found = queries.search_exact(database, _TABLES, query, LIMIT, None)
        return found.chunk_ids.tolist(), time.perf_counter() - began

    return search


def _run_query(database: Database, find: sql.Composed, *values: object) -> tuple[list[int], float]:
    began = time.perf_counter()
    rows = database.execute(find, values, prepare=False).fetchall()
    return [int(row[0]) for row in rows], time.perf_counter() - began
