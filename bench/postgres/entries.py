"""Prepared real pages, computed once: every store gets the same ones, and nothing is embedded."""

import pickle
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from bench.corpus import open_large_index
from bench.postgres.parts import SAVED_RESULTS
from bench.report import DATA
from wikiholt.domain.git import TreeEntry
from wikiholt.domain.index import IndexChange, PageEntry, Recipe
from wikiholt.domain.protocols import Embedder
from wikiholt.git.source import GitSource
from wikiholt.index.pipeline import PageTask, PreparedPage, TextPipeline
from wikiholt.models import load_embedder

CHUNKS = 100_000
BATCH = 48
"""Pages a transaction, as a sync has."""
REVISION = "0" * 40


def load_pages(chunks: int = CHUNKS) -> list[PageEntry]:
    """The first pages of the large wiki, with `chunks` chunks in total."""
    file = SAVED_RESULTS / "entries.pickle"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pickle.dumps(list(_prepare_pages(max(chunks, CHUNKS))), protocol=5))
    found: list[PageEntry] = pickle.loads(file.read_bytes())
    return list(_limit_chunks(chunks, found))


def build_recipe(embedder: Embedder) -> Recipe:
    return TextPipeline().build_recipe(embedder)


def iter_changes(entries: Sequence[PageEntry]) -> Iterator[IndexChange]:
    """The pages as a sync would write them, the last change with a revision."""
    rest = iter(entries)
    while some := tuple(islice(rest, BATCH)):
        yield IndexChange(some)
    yield IndexChange(revision=REVISION)


def make_small_wiki(pool: Sequence[PageEntry], number: int, chunks: int = 20) -> IndexChange:
    """A small wiki of exactly `chunks` chunks, the same for the same number."""
    rng, taken, left = random.Random(number), {}, chunks
    while left:
        page = pool[rng.randrange(len(pool))]
        if 0 < len(page.chunks) <= left and page.page.file not in taken:
            taken[page.page.file] = page
            left -= len(page.chunks)
    return IndexChange(tuple(taken.values()), revision=REVISION)


def _limit_chunks(chunks: int, entries: Sequence[PageEntry]) -> Iterator[PageEntry]:
    left = chunks
    for entry in entries:
        if left <= 0:
            return
        left -= len(entry.chunks)
        yield entry


def _prepare_pages(chunks: int) -> Iterator[PageEntry]:
    source, began = GitSource(DATA / "mdn.git"), time.perf_counter()
    tree = source.read_tree(source.get_head())
    with open_large_index(chunks) as index, load_embedder() as embedder:
        files = iter(sorted(tree))
        while chunks > 0 and (some := list(islice(files, 500))):
            drafts = _read_drafts(source, some, tree, embedder)
            known = index.find_vectors_by_hash([each for draft in drafts for each in draft.hashes])
            for draft in drafts:
                missing = [text for text, h in zip(draft.texts, draft.hashes, strict=True) if h not in known]
                fresh = iter(embedder.embed_passages(missing) if missing else ())
                vectors = [known[each] if each in known else next(fresh) for each in draft.hashes]
                block = np.stack(vectors) if vectors else np.empty((0, embedder.dimensions), np.float32)
                yield PageEntry(draft.blob, draft.page, draft.chunks, draft.hashes, block, draft.terms)
                chunks -= len(vectors)
            print(f"{max(0, chunks):,} chunks left, {time.perf_counter() - began:.0f} s", flush=True)


def _read_drafts(
    source: GitSource, files: list[str], tree: Mapping[str, TreeEntry], embedder: Embedder
) -> list[PreparedPage]:

    pipeline = TextPipeline()
    blobs = source.read_blobs([tree[file].blob for file in files], pipeline.max_bytes)
    drafts = [pipeline.prepare(PageTask(file, blob, None), embedder) for file, blob in zip(files, blobs, strict=True)]
    return [draft for draft in drafts if isinstance(draft, PreparedPage)]
