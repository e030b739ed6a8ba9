"""Large wikis: writing them, and finding nearest passages by reading all of them or by an HNSW index."""

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from bench.postgres import entries
from bench.postgres.parts import Part
from bench.postgres.server import started
from bench.postgres.sides import PreparedEmbedder, Side
from bench.postgres.times import Times
from wikiholt.domain.index import FloatArray, IndexChange, PageEntry
from wikiholt.domain.search import PageFilter
from wikiholt.embedding import load_embedder
from wikiholt.text.keyword_query import parse_query

SIZES = (10_000, 100_000)
LIMIT = 30
QUESTIONS = 60
EDITS = 20
NEVER = 10**9
SIDES = (
    ("files", "auto", NEVER),
    ("PostgreSQL", "auto", 10_000),
    ("PostgreSQL alone, exact", "store", NEVER),
    ("PostgreSQL alone, HNSW", "store", 10_000),
)
"""Name, what finds the nearest, and from how many passages on there is an HNSW index."""


def main(sizes: Sequence[int] = SIZES) -> None:
    """Write each wiki on every side in turns, ask, and save the result."""
    part = Part("large", "Large wikis")
    part.say("As set by default, nodes keep a cache of a large wiki's vectors; alone (`vectors = \"store\"`), the database finds them.", "")  # fmt: skip
    with load_embedder() as model, started() as server, tempfile.TemporaryDirectory(prefix="bench-") as place:
        embedder, sides = PreparedEmbedder(model), []
        for name, vectors, hnsw in SIDES:
            address = "" if name == "files" else server.create_database()
            given = {"vectors": vectors, "postgres__hnsw_from": hnsw}
            sides.append(Side(name, Path(place) / name, embedder, address, **given))
        for size in sizes:
            pool = entries.pages(size)
            part.say(f"### {sum(len(each.chunks) for each in pool):,} chunks, {len(pool):,} pages", "")
            for side in sides:
                side.register([f"w{size}"], Path("bench"))
                side.create(f"w{size}", entries.recipe(model))
            written(part, sides, f"w{size}", pool)
            asked(part, sides, f"w{size}", pool, embedder)
            edited(part, sides, f"w{size}", pool)
        for side in sides:
            side.close()
    part.keep()


def written(part: Part, sides: Sequence[Side], slug: str, pool: Sequence[PageEntry]) -> None:
    """All pages, 48 a transaction as in a sync, batch by batch in turns; then what is done when it has grown."""
    spent, tended = dict.fromkeys([side.name for side in sides], 0.0), {}
    with ExitStack() as stack:
        indexes = {side.name: stack.enter_context(side.writing(slug)) for side in sides}
        for change in entries.whole(pool):
            for name, index in indexes.items():
                began = time.perf_counter()
                index.apply(change)
                spent[name] += time.perf_counter() - began
    for side in sides:
        began = time.perf_counter()
        side.grown(side.id_of(slug))
        tended[side.name] = time.perf_counter() - began
    part.say("| | pages/s written | to files | its indexes built, s | disk MB |", "|---|---|---|---|---|")
    for side in sides:
        rate, base = len(pool) / spent[side.name], len(pool) / spent["files"]
        disk = side.store.get_disk_bytes(side.id_of(slug)) / 1e6
        part.say(f"| {side.name} | {rate:.0f} | {rate / base:.2f} | {tended[side.name]:.1f} | {disk:.0f} |")
    part.say("")


def asked(part: Part, sides: Sequence[Side], slug: str, pool: Sequence[PageEntry], embedder: PreparedEmbedder) -> None:
    """Titles as questions, to every side in turn; recall against a product of all vectors."""
    rng = np.random.default_rng(4)
    titles = [pool[int(at)].page.name for at in rng.choice(len(pool), QUESTIONS, replace=False)]
    vectors = np.concatenate([entry.vectors for entry in pool])
    times, recalls = Times(), {side.name: [] for side in sides}
    indexes = {side.name: (side.index(slug), side.vectors(slug)) for side in sides}
    for turn in range(3):
        for title in titles:
            query, words = embedder.embed_query(title), parse_query(title)
            best = np.sort(1 - vectors @ query)[:10]
            for name, (index, cache) in indexes.items():
                found: list[FloatArray] = []
                times.take("nearest 30 passages", name, lambda c=cache, f=found, q=query: f.append(c.search(q, LIMIT, None).distances))  # fmt: skip
                if turn == 0:
                    # Passages that are equally near are equally right.
                    recalls[name].append(float(np.mean(found[0][:10] <= best[-1] + 1e-5)))
                if words:
                    times.take(
                        "words, best 30 pages, by the store alone",
                        name,
                        lambda i=index, w=words: i.search_keywords(w, LIMIT, PageFilter()),
                    )
    part.say(*times.table("as a search asks", [side.name for side in sides]), "")
    text = "; ".join(f"{name} {np.mean(some):.3f} (worst question {min(some):.1f})" for name, some in recalls.items())
    part.say(f"Recall@10: {text}.", "")


def edited(part: Part, sides: Sequence[Side], slug: str, pool: Sequence[PageEntry]) -> None:
    """Pages of about ten chunks replaced one by one, each in a transaction of its own."""
    some = [entry for entry in pool if 8 <= len(entry.chunks) <= 12][:EDITS]
    times = Times()
    for entry in some:
        for side in sides:
            again = PageEntry("1" * 40, entry.page, entry.chunks, entry.hashes, entry.vectors, entry.terms)
            times.take(
                "a page of ten chunks replaced", side.name, lambda s=side, e=again: s.fill(slug, IndexChange((e,)))
            )
    part.say(*times.table("one page", [side.name for side in sides]), "")
