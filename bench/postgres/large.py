"""Large wikis: writing them, and finding the nearest passages in files, in a copy, or in the database."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from bench.embedders import CachingEmbedder
from bench.measures import measure_seconds
from bench.postgres import entries
from bench.postgres.parts import ReportPart
from bench.postgres.server import run_server
from bench.postgres.sides import Side
from bench.postgres.store_times import StoreTimes
from bench.report import make_head
from wikiholt.domain.index import FloatArray, IndexChange, PageEntry
from wikiholt.domain.search import PageFilter
from wikiholt.models import load_embedder
from wikiholt.text.keyword_query import parse_query

SIZES = (10_000, 100_000)
LIMIT = 30
QUESTIONS = 60
EDITS = 20
SIDES = (("files", "auto"), ("PostgreSQL", "auto"), ("PostgreSQL alone", "store"))
"""Name and setting `vectors`."""


def run(sizes: Sequence[int] = SIZES) -> None:
    """Write each wiki on every side in turns, search, and save the result."""
    part = ReportPart("large", "Large wikis")
    part.add("As set by default, nodes keep a copy of a large wiki; alone (`vectors = \"store\"`), the database answers.", "")  # fmt: skip
    model = load_embedder()
    with run_server() as server, tempfile.TemporaryDirectory(prefix="bench-") as place:
        embedder, sides = CachingEmbedder(model), []
        for name, vectors in SIDES:
            address = "" if name == "files" else server.create_database()
            sides.append(Side(name, Path(place) / name, embedder, address, vectors=vectors))
        for size in sizes:
            pool = entries.load_pages(size)
            part.add(f"### {sum(len(each.chunks) for each in pool):,} chunks, {len(pool):,} pages", "")
            for side in sides:
                side.register([f"w{size}"], Path("bench"))
                side.create(f"w{size}", entries.build_recipe(model))
            write_wiki(part, sides, f"w{size}", pool)
            search_wiki(part, sides, f"w{size}", pool, embedder)
            update_pages(part, sides, f"w{size}", pool)
        for side in sides:
            side.close()
    part.save()


def write_wiki(part: ReportPart, sides: Sequence[Side], slug: str, pool: Sequence[PageEntry]) -> None:
    """All pages, 48 a transaction as in a sync, batch by batch in turns; then build the indexes of a large wiki."""
    spent, build_s = dict.fromkeys([side.name for side in sides], 0.0), {}
    with ExitStack() as stack:
        indexes = {side.name: stack.enter_context(side.open_for_writing(slug)) for side in sides}
        for change in entries.iter_changes(pool):
            for name, index in indexes.items():
                spent[name] += measure_seconds(index.apply, change)
    for side in sides:
        build_s[side.name] = measure_seconds(side.build_indexes, side.get_id(slug))
    part.add(make_head("| | pages/s written | to files | its indexes built, s | disk MB |"))
    for side in sides:
        rate, base = len(pool) / spent[side.name], len(pool) / spent["files"]
        disk = side.store.get_disk_bytes(side.get_id(slug)) / 1e6
        part.add(f"| {side.name} | {rate:.0f} | {rate / base:.2f} | {build_s[side.name]:.1f} | {disk:.0f} |")
    part.add("")


def search_wiki(
    part: ReportPart, sides: Sequence[Side], slug: str, pool: Sequence[PageEntry], embedder: CachingEmbedder
) -> None:
    """Titles as questions, to every side in turn; recall against a product of all vectors."""
    rng = np.random.default_rng(4)
    titles = [pool[int(at)].page.name for at in rng.choice(len(pool), QUESTIONS, replace=False)]
    vectors = np.concatenate([entry.vectors for entry in pool])
    times, recalls = StoreTimes(), {side.name: [] for side in sides}
    indexes = {side.name: side.open_searched(slug) for side in sides}
    for turn in range(3):
        for title in titles:
            query, words = embedder.embed_query(title), parse_query(title)
            best = np.sort(1 - vectors @ query)[:10]
            for name, index in indexes.items():
                found: list[FloatArray] = []
                times.measure("nearest 30 passages", name, lambda i=index, f=found, q=query: f.append(i.search_vectors(q, LIMIT, None).distances))  # fmt: skip
                if turn == 0:
                    # Passages at the same distance count as equally right.
                    recalls[name].append(float(np.mean(found[0][:10] <= best[-1] + 1e-5)))
                if words:
                    times.measure(
                        "words, best 30 pages, by the index alone",
                        name,
                        index.search_keywords,
                        words,
                        LIMIT,
                        PageFilter(),
                    )
    part.add(*times.format_table("as a search asks", [side.name for side in sides]), "")
    text = "; ".join(f"{name} {np.mean(some):.3f} (worst question {min(some):.1f})" for name, some in recalls.items())
    part.add(f"Recall@10: {text}.", "")


def update_pages(part: ReportPart, sides: Sequence[Side], slug: str, pool: Sequence[PageEntry]) -> None:
    """Pages of about ten chunks replaced one by one, each in a transaction of its own."""
    some = [entry for entry in pool if 8 <= len(entry.chunks) <= 12][:EDITS]
    times = StoreTimes()
    for entry in some:
        for side in sides:
            again = PageEntry("1" * 40, entry.page, entry.chunks, entry.hashes, entry.vectors, entry.terms)
            times.measure("a page of ten chunks replaced", side.name, side.fill, slug, IndexChange((again,)))
    part.add(*times.format_table("one page", [side.name for side in sides]), "")
