"""A cache over a real index: pages change and go, the cache agrees with the index's own scan."""

from pathlib import Path

import numpy as np
from vector_truth import assert_same

from wikiholt.model import Change, Recipe
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.testing.embedder import FakeEmbedder
from wikiholt.testing.entries import entry
from wikiholt.vectors import ExactCache


def test_a_cache_follows_the_pages_of_a_real_index(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    store = SqliteStore(tmp_path / "wikis")
    index = store.create("w1w1w1w1", Recipe(embedder.fingerprint, embedder.dimensions, "text"))
    cache = ExactCache(index, tmp_path / "cache", background=False)
    query = embedder.query("river and bridge")
    changes = [
        Change(pages=tuple(entry(f"p{i}.md", [f"river {i}", f"bridge {i} stone"], embedder) for i in range(20))),
        Change(pages=(entry("p3.md", ["river 3", "a new bridge", "river and bridge"], embedder),)),
        Change(deleted=("p4.md", "p5.md"), pages=(entry("q.md", ["the old river"], embedder),)),
        Change(pages=(entry("p3.md", ["nothing of the kind"], embedder),), revision="a" * 40),
    ]
    for change in changes:
        index.apply(change)
        cache.refresh()
        assert cache.version == index.version()
        for limit in (1, 5, 100):
            assert_same(cache.search(query, limit, None), index.nearest(query, limit, None))
        pages = np.array(sorted({int(page) for page in index.nearest(query, 7, None).page_ids}), np.int64)
        assert_same(cache.search(query, 50, pages), index.nearest(query, 50, pages))
    reopened = ExactCache(index, tmp_path / "cache", background=False)
    reopened.refresh()
    assert_same(reopened.search(query, 100, None), index.nearest(query, 100, None))
    index.close()
