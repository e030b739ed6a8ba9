"""Costs of a wiki: time, disk, relations, and its removal."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from bench.many_wikis.repositories import make_slug
from bench.measures import count_disk_bytes, measure_seconds
from bench.postgres.parts import ReportPart
from bench.postgres.server import get_disk_bytes
from bench.report import make_head
from tests.support.postgres_server import PostgresServer
from wikiholt.domain.index import Recipe

if TYPE_CHECKING:
    from bench.postgres.small import SmallWikis

BATCH = 100
EMPTY = 200
"""Wikis that stay empty, to measure the cost of one."""
_SIZES = """
SELECT pg_database_size(current_database()),
    (SELECT sum(pg_total_relation_size(oid)) FROM pg_class
        WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r'),
    (SELECT count(*) FROM pg_class AS r JOIN pg_namespace AS n ON n.oid = r.relnamespace
        WHERE n.nspname LIKE 'w\\_%' OR (n.nspname = 'pg_toast' AND r.oid >= 16384))
"""


def create_wikis(small: "SmallWikis", part: ReportPart, server: PostgresServer, recipe: Recipe) -> None:
    slugs = [make_slug(number) for number in range(small.count + EMPTY)]
    spent: dict[tuple[str, str], float] = {}
    for side in small.both:
        spent[side.name, "register"] = measure_seconds(side.register, slugs, Path("bench"))
    before = get_disk_bytes(server)
    _create(small, slugs[small.count :], recipe, {})
    empty, empty_file = (get_disk_bytes(server) - before) / EMPTY, count_disk_bytes(small.files.data / "wikis") / EMPTY
    for start in range(0, small.count, BATCH):
        some = range(start, min(start + BATCH, small.count))
        _create(small, [slugs[number] for number in some], recipe, spent)
        _fill(small, some, spent)
        if start % 1000 == 0:
            text = ", ".join(f"{side} {what} {seconds:.1f} s" for (side, what), seconds in spent.items())
            print(f"{start + BATCH:,} wikis; {text}", flush=True)
    small.shared.finish()
    part.add(make_head("| | files | PostgreSQL | ratio |"))
    for what, text in (
        ("register", "written into the registry a second, all at once"),
        ("create", "provisioned a second (an empty index)"),
        ("fill", "filled a second (20 chunks, one transaction)"),
    ):
        a, b = (small.count / spent[side.name, what] for side in small.both)
        part.add(f"| wikis {text} | {a:,.0f} | {b:,.0f} | {b / a:.2f} |")
    _report_disk(small, part, empty, empty_file)


def _create(small: "SmallWikis", slugs: Sequence[str], recipe: Recipe, spent: dict[tuple[str, str], float]) -> None:
    for side in small.both:
        seconds = sum(measure_seconds(side.create, each, recipe) for each in slugs)
        spent[side.name, "create"] = spent.get((side.name, "create"), 0.0) + seconds


def _fill(small: "SmallWikis", some: range, spent: dict[tuple[str, str], float]) -> None:
    changes = {number: small.make_change(number) for number in some}
    for side in small.both:
        seconds = sum(measure_seconds(side.fill, make_slug(n), c) for n, c in changes.items())
        spent[side.name, "fill"] = spent.get((side.name, "fill"), 0.0) + seconds
    for number, change in changes.items():
        small.shared.fill(number, change)


def _report_disk(small: "SmallWikis", part: ReportPart, empty: float, empty_file: float) -> None:
    with psycopg.connect(small.postgres.address, autocommit=True) as database:
        database.execute("CHECKPOINT")
        row = database.execute(_SIZES).fetchone()
    assert row is not None
    total, catalogs, relations = map(int, row)
    wikis = small.count + EMPTY
    file = (count_disk_bytes(small.files.data / "wikis") - EMPTY * empty_file) / small.count
    ours = (total - EMPTY * empty) / small.count
    for what, a, b in (("an empty wiki", empty_file, empty), ("a wiki of 20 chunks", file, ours)):
        part.add(f"| disk of {what}, KiB | {a / 1024:.0f} | {b / 1024:.0f} | {b / a:.1f} |")
    shared, built = small.shared.get_disk_bytes() / small.count / 1024, small.shared.build_s
    part.add(
        "",
        f"In that database: {relations / wikis:.1f} relations a wiki (tables, indexes, TOAST); catalogs "
        f"{catalogs / 2**20:.0f} MB, {catalogs / wikis / 1024:.0f} KiB a wiki (counted above). The shared table takes "
        f"{shared:.0f} KiB a wiki with its indexes, of which HNSW was built in {built:.0f} s.",
        "",
    )


def remove_wikis(small: "SmallWikis", part: ReportPart) -> None:
    slugs = [make_slug(number) for number in (*range(EMPTY // 2), *range(small.count, small.count + EMPTY // 2))]
    files, postgres = (
        len(slugs) / sum(measure_seconds(side.store.delete, side.get_id(each)) for each in slugs) for side in small.both
    )
    part.add(f"Removed a second, with schema and role: {postgres:.0f} (files: {files:.0f}).")
