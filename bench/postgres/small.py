"""Many small wikis: provisioning, disk, searches warm and cold, beside files and beside one shared table."""

import random
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.embedders import CachingEmbedder
from bench.many_wikis.repositories import make_slug
from bench.postgres import entries, queries, wiki_costs
from bench.postgres.parts import ReportPart
from bench.postgres.server import run_server
from bench.postgres.shared_table import SharedTable
from bench.postgres.sides import Side
from tests.support.postgres_server import PostgresServer
from wikiholt.domain.index import IndexChange, PageEntry
from wikiholt.errors import WikiholtError
from wikiholt.models import load_embedder
from wikiholt.search.request import SearchRequest
from wikiholt.text.keyword_query import parse_query


@dataclass(frozen=True)
class SmallWikis:
    """The same small wikis in files, in PostgreSQL and in the shared table."""

    files: Side
    postgres: Side
    shared: SharedTable
    pool: Sequence[PageEntry]
    count: int
    rng: random.Random

    @property
    def both(self) -> tuple[Side, Side]:
        return self.files, self.postgres

    def make_change(self, number: int) -> IndexChange:
        return entries.make_small_wiki(self.pool, number)

    def get_question(self, number: int) -> str:
        """A title of one of its pages that contains a word."""
        titles = [entry.page.name for entry in self.make_change(number).pages]
        return next((title for title in self.rng.sample(titles, len(titles)) if parse_query(title)), "example")


def run(wikis: int, rounds: int) -> None:
    """Create `wikis` wikis in every store, measure, and save the result."""
    part = ReportPart(f"small-{wikis}", f"{wikis:,} wikis of 20 chunks")
    pool = entries.load_pages()
    with (
        run_server() as server,
        load_embedder() as model,
        open_sides(server, CachingEmbedder(model)) as (files, postgres, shared),
    ):
        small = SmallWikis(files, postgres, shared, pool, wikis, random.Random(9))
        wiki_costs.create_wikis(small, part, server, entries.build_recipe(model))
        queries.run_searches(small, part, rounds)
        queries.measure_cpu(small, part, server, rounds)
        queries.report_backends(part, server)
        run_crash(small, part, server)
        part.save()  # the removal takes long
        wiki_costs.remove_wikis(small, part)
    part.save()


@contextmanager
def open_sides(server: PostgresServer, embedder: CachingEmbedder) -> Iterator[tuple[Side, Side, SharedTable]]:
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        files = Side("files", Path(place) / "files", embedder)
        postgres = Side("PostgreSQL", Path(place) / "postgres", embedder, server.create_database())
        shared = SharedTable(server.create_database(), embedder)
        try:
            yield files, postgres, shared
        finally:
            files.close()
            postgres.close()
            shared.close()


def run_crash(small: SmallWikis, part: ReportPart, server: PostgresServer) -> None:
    """Stop the server like a power cut does, and start it again."""
    server.stop(signal.SIGQUIT)
    began = time.perf_counter()
    server.start()
    up = time.perf_counter()
    while True:
        try:
            small.postgres.service.get_handle(make_slug(0)).search(SearchRequest(small.get_question(0)))
            break
        except WikiholtError:
            assert time.perf_counter() - up < 60
            time.sleep(0.05)
    found = time.perf_counter() - up
    part.add(f"After SIGQUIT the server accepted connections {up - began:.1f} s after its start; the running service could search {found:.1f} s later.", "")  # fmt: skip
