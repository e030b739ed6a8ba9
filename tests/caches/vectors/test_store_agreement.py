"""A cache over a real index: pages change and are removed, the cache agrees with the index's own scan."""

from pathlib import Path

import numpy as np

from tests.caches.brute_force_index import assert_same
from wikiholt.caches.vectors.exact import ExactVectorCache
from wikiholt.domain.index import IndexChange, Recipe, compute_page_means
from wikiholt.storage.sqlite.store import SqliteStore
from wikiholt.testing.fakes import FakeEmbedder, make_entry


def test_a_cache_follows_the_pages_of_a_real_index(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    store = SqliteStore(tmp_path / "wikis")
    index = store.create("w1w1w1w1", Recipe(embedder.fingerprint, embedder.dimensions, "text"))
    cache = ExactVectorCache(index, tmp_path / "cache", background=False)
    query = embedder.embed_query("river and bridge")
    changes = [
        IndexChange(
            pages=tuple(make_entry(f"p{i}.md", [f"river {i}", f"bridge {i} stone"], embedder) for i in range(20))
        ),
        IndexChange(pages=(make_entry("p3.md", ["river 3", "a new bridge", "river and bridge"], embedder),)),
        IndexChange(deleted=("p4.md", "p5.md"), pages=(make_entry("q.md", ["the old river"], embedder),)),
        IndexChange(pages=(make_entry("p3.md", ["nothing of the kind"], embedder),), revision="a" * 40),
    ]
    for change in changes:
        index.apply(change)
        cache.refresh()
        assert cache.version == index.get_version()
        for limit in (1, 5, 100):
            assert_same(cache.search(query, limit, None), index.search_vectors(query, limit, None))
        pages = np.array(sorted({int(page) for page in index.search_vectors(query, 7, None).page_ids}), np.int64)
        assert_same(cache.search(query, 50, pages), index.search_vectors(query, 50, pages))
        expected = compute_page_means(index.get_page_vectors(pages.tolist()), pages)
        np.testing.assert_array_equal(cache.get_page_means(pages), expected)
    reopened = ExactVectorCache(index, tmp_path / "cache", background=False)
    reopened.refresh()
    assert_same(reopened.search(query, 100, None), index.search_vectors(query, 100, None))
    index.close()
