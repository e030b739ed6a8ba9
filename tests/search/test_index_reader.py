"""What searches of one version of an index share, and what one search does when a cache fails."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.index.brute_force_index import random_vectors
from wikiholt.domain.index import IntArray, VectorHits, VectorRows
from wikiholt.domain.search import StoredPage
from wikiholt.errors import DatabaseUnavailable, NothingIndexed
from wikiholt.search.index_reader import IndexReader, IndexView

VECTOR = random_vectors(1, seed=9)[0]


class CountingIndex:
    """An index with two passages on each page, which counts the pages that are read."""

    def __init__(self, pages: int = 3) -> None:
        self.read: list[int] = []
        self.means_read: list[int] = []
        self.pages = pages

    def get_state(self) -> Any:
        return SimpleNamespace(pages=self.pages, version=1)

    def get_pages(self, page_ids: Sequence[int]) -> dict[int, StoredPage]:
        self.read.extend(page_ids)
        return {
            number: StoredPage(number, f"{number}.md", str(number), f"Page {number}", None, (), None, 2)
            for number in page_ids
            if number < 100
        }

    def get_page_vectors(self, page_ids: Sequence[int]) -> VectorRows:
        self.means_read.extend(page_ids)
        of_pages = np.repeat(np.array(page_ids, np.int64), 2)
        return VectorRows(np.arange(len(of_pages)), of_pages, np.tile(VECTOR, (len(of_pages), 1)))

    def get_page_means(self, page_ids: IntArray) -> None:
        return None

    def read_ahead(self, page_ids: IntArray) -> None:
        return None

    def search_vectors(self, vector: object, limit: int, page_ids: IntArray | None) -> VectorHits:
        return VectorHits.rank(np.array([5]), np.array([1]), np.array([0.5], np.float32))


def open_view(index: CountingIndex) -> IndexView:
    return IndexView(cast(Any, index), "english")


def test_an_index_without_pages_is_an_error() -> None:
    with pytest.raises(NothingIndexed):
        open_view(CountingIndex(pages=0))


class FailingCache:
    """A vector cache that raises whatever it is asked."""

    version = 1

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0

    def refresh(self) -> None:
        self.asked += 1
        raise self.error


def test_a_cache_that_fails_is_reported_once_and_not_asked_again_in_the_same_search(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = FailingCache(ValueError("a damaged file"))
    reader = IndexReader(open_view(CountingIndex()), cast(Any, cache), None)
    for _ in range(2):
        assert reader.search_vectors(VECTOR, 3, None).chunk_ids.tolist() == [5]
    assert reader.score_pages(VECTOR, np.array([1])).tolist() == pytest.approx([1.0])
    assert reader.read_ahead([1]) is None
    assert reader.faults == ["the vector cache failed; searched the index directly"]
    assert cache.asked == 1
    assert "a damaged file" in caplog.text


def test_a_database_that_does_not_answer_fails_the_search() -> None:
    reader = IndexReader(open_view(CountingIndex()), cast(Any, FailingCache(DatabaseUnavailable("away"))), None)
    with pytest.raises(DatabaseUnavailable):
        reader.search_vectors(VECTOR, 3, None)
