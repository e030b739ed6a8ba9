"""What the exact cache promises to a searcher: the same answers as the truth, whatever was added or dropped."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.caches.brute_force_index import (
    DIMENSIONS,
    BruteForceIndex,
    assert_same,
    measure_recall,
    normalize,
    random_vectors,
)
from wikiholt.caches.cache_file import CacheNotReady
from wikiholt.caches.vectors.cache_state import Array
from wikiholt.caches.vectors.exact import ExactVectorCache, QuantizedEngine
from wikiholt.domain.index import FloatArray
from wikiholt.errors import InvalidQuery

QUERY = random_vectors(1, seed=99)[0]
QUANTIZED = QuantizedEngine(scan_max_rows=0)


def open_cache(truth: BruteForceIndex, folder: Path, **options: object) -> ExactVectorCache:
    cache = ExactVectorCache(truth.as_index(), folder, **{"background": False, **options})  # type: ignore[arg-type]
    cache.refresh()
    return cache


def list_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_finds_what_the_truth_finds(tmp_path: Path) -> None:
    truth = BruteForceIndex(500)
    cache = open_cache(truth, tmp_path)
    assert cache.version == truth.get_version()
    assert_same(cache.search(QUERY, 10, None), truth.search_vectors(QUERY, 10))


def test_a_limit_beyond_the_rows_gives_them_all(tmp_path: Path) -> None:
    truth = BruteForceIndex(7)
    assert_same(open_cache(truth, tmp_path).search(QUERY, 500, None), truth.search_vectors(QUERY, 500))


@pytest.mark.parametrize("engine", [QuantizedEngine(), QUANTIZED])
def test_an_empty_index_gives_an_empty_answer_and_grows(tmp_path: Path, engine: QuantizedEngine) -> None:
    truth = BruteForceIndex()
    cache = open_cache(truth, tmp_path, engine=engine)
    assert len(cache.search(QUERY, 10, None).chunk_ids) == 0
    truth.add(random_vectors(30), [1] * 30)
    cache.refresh()
    assert_same(cache.search(QUERY, 10, None), truth.search_vectors(QUERY, 10))
    assert_same(open_cache(truth, tmp_path, engine=engine).search(QUERY, 10, None), truth.search_vectors(QUERY, 10))


def test_an_empty_cache_follows_the_version_without_a_rebuild(tmp_path: Path) -> None:
    index = BruteForceIndex()
    cache = open_cache(index, tmp_path)
    index.log.append(((), ()))
    cache.refresh()
    assert cache.version == index.get_version()
    assert index.snapshots == 1


@pytest.mark.parametrize("engine", [QuantizedEngine(), QUANTIZED])
def test_ties_are_settled_by_chunk_id_wherever_the_rows_lie(tmp_path: Path, engine: QuantizedEngine) -> None:
    truth = BruteForceIndex()
    same = np.repeat(random_vectors(1), 60, axis=0)
    truth.add(same, [1] * 60)
    cache = open_cache(truth, tmp_path, engine=engine)
    truth.add(same, [2] * 60)
    truth.replace(3, same[0])
    cache.refresh()
    found = cache.search(QUERY, 100, None)
    assert found.chunk_ids.tolist() == list(range(1, 101))


@pytest.mark.parametrize("engine", [QuantizedEngine(), QUANTIZED])
@pytest.mark.parametrize("pages", [[], [3], [2, 5, 7, 1000], list(range(1, 41)), list(range(1, 600))])
def test_a_filter_never_costs_recall(tmp_path: Path, engine: QuantizedEngine, pages: list[int]) -> None:
    truth = BruteForceIndex(6_000)
    cache = open_cache(truth, tmp_path, engine=engine)
    truth.remove([25, 26, 400])
    truth.add(random_vectors(20, seed=5), [3] * 10 + [601] * 10)
    cache.refresh()
    allowed = np.array(pages, np.int64)
    expected = truth.search_vectors(QUERY, 20, allowed)
    found = cache.search(QUERY, 20, allowed)
    assert set(found.page_ids.tolist()) <= set(pages)
    assert_same(found, expected)


def test_rows_of_one_page_are_found_though_they_lie_far_apart(tmp_path: Path) -> None:
    truth = BruteForceIndex()
    truth.add(random_vectors(300), [1 + i % 7 for i in range(300)])
    allowed = np.array([2, 6], np.int64)
    assert_same(open_cache(truth, tmp_path).search(QUERY, 50, allowed), truth.search_vectors(QUERY, 50, allowed))


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 10, 100, 500])
@pytest.mark.parametrize("turned", [True, False])
def test_a_sketch_finds_ninety_nine_of_a_hundred(tmp_path: Path, limit: int, turned: bool) -> None:
    """Also where a few dimensions hold most of the variance; turned, every dimension holds as much, as in real text."""
    turn = np.linalg.qr(np.random.default_rng(4).normal(size=(96, 96)))[0] if turned else np.eye(96)
    truth = BruteForceIndex(dimensions=96)
    truth.add(normalize(random_vectors(30_000, dimensions=96) @ turn), [1 + i // 10 for i in range(30_000)])
    cache = open_cache(truth, tmp_path)
    queries = normalize(random_vectors(20, seed=3, dimensions=96) @ turn)
    found = [
        measure_recall(cache.search(query, limit, None), truth.search_vectors(query, limit)) for query in queries[:5]
    ]
    assert np.mean(found) >= 0.99


@pytest.mark.parametrize("dimensions", [1, 24, 64, 100, 600])
def test_a_sketch_is_made_of_vectors_of_any_length(tmp_path: Path, dimensions: int) -> None:
    truth = BruteForceIndex(900, dimensions=dimensions)
    query = random_vectors(1, seed=5, dimensions=dimensions)[0]
    cache = open_cache(truth, tmp_path, engine=QUANTIZED)
    assert measure_recall(cache.search(query, 20, None), truth.search_vectors(query, 20)) >= 0.95
    assert_same(cache.search(query, 900, None), truth.search_vectors(query, 900))


def test_a_change_needs_neither_a_new_file_nor_the_whole_truth(tmp_path: Path) -> None:
    truth = BruteForceIndex(500)
    cache = open_cache(truth, tmp_path)
    before = list_files(tmp_path)
    for round_ in range(15):
        truth.remove([round_ + 1, 100 + round_])
        truth.add(random_vectors(10, seed=round_ + 1), [51 + round_] * 10)
        cache.refresh()
        assert cache.version == truth.get_version()
        assert_same(cache.search(QUERY, 30, None), truth.search_vectors(QUERY, 30))
    assert list_files(tmp_path) == before
    assert truth.snapshots == 1


def test_a_chunk_dropped_after_it_was_added_is_gone(tmp_path: Path) -> None:
    truth = BruteForceIndex(20)
    cache = open_cache(truth, tmp_path)
    (added,) = truth.add(QUERY[None], [9])
    cache.refresh()
    assert cache.search(QUERY, 1, None).chunk_ids.tolist() == [added]
    truth.remove([added])
    cache.refresh()
    assert_same(cache.search(QUERY, 5, None), truth.search_vectors(QUERY, 5))


def test_a_chunk_that_got_another_vector_is_replaced(tmp_path: Path) -> None:
    truth = BruteForceIndex(20)
    cache = open_cache(truth, tmp_path)
    for vector in (QUERY, random_vectors(1, seed=7)[0]):
        truth.replace(5, vector)
        cache.refresh()
        assert_same(cache.search(QUERY, 20, None), truth.search_vectors(QUERY, 20))


def test_many_changes_are_merged_into_a_new_file_and_the_old_one_goes(tmp_path: Path) -> None:
    truth = BruteForceIndex(100)
    cache = open_cache(truth, tmp_path)
    truth.add(random_vectors(2_500, seed=1), [20] * 2_500)
    truth.remove([1, 2, 3])
    cache.refresh()
    assert list_files(tmp_path) == [f"vectors-g000001-v{truth.get_version()}.exact"]
    assert truth.snapshots == 1
    assert_same(cache.search(QUERY, 50, None), truth.search_vectors(QUERY, 50))


@pytest.mark.slow
def test_a_small_wiki_that_is_edited_over_and_over_does_not_take_more_and_more_memory(tmp_path: Path) -> None:
    truth = BruteForceIndex(20)
    cache = open_cache(truth, tmp_path)
    written = set()
    for number in range(1_500):
        truth.replace(3, random_vectors(1, seed=number)[0])
        cache.refresh()
        written.update(list_files(tmp_path))
    held = cache._state.added.buffer.vectors  # type: ignore[union-attr]
    assert held.nbytes <= 1_000 * DIMENSIONS * 4
    assert 3 <= len(written) <= 20  # merged a few times, not at every change
    assert_same(cache.search(QUERY, 50, None), truth.search_vectors(QUERY, 50))


def test_a_merge_in_the_background_loses_no_change_made_meanwhile(tmp_path: Path) -> None:
    truth = BruteForceIndex(100)
    cache = open_cache(truth, tmp_path, background=True)
    truth.add(random_vectors(2_500, seed=1), [20] * 2_500)
    cache.refresh()
    merged = truth.get_version()
    truth.add(QUERY[None], [30])
    truth.remove([5])
    cache.refresh()
    assert cache.wait_idle(30)
    cache.refresh()
    assert list_files(tmp_path) == [f"vectors-g000001-v{merged}.exact"]
    assert cache.version == truth.get_version()
    assert_same(cache.search(QUERY, 50, None), truth.search_vectors(QUERY, 50))
    cache.close()


def test_a_large_index_is_built_in_the_background_and_search_says_so(tmp_path: Path) -> None:
    truth = BruteForceIndex(300)
    cache = ExactVectorCache(truth.as_index(), tmp_path, inline_build_rows=100)
    cache.refresh()
    if cache.version is None:
        with pytest.raises(CacheNotReady, match="not built yet"):
            cache.search(QUERY, 10, None)
    assert cache.wait_idle(30)
    cache.refresh()
    assert_same(cache.search(QUERY, 10, None), truth.search_vectors(QUERY, 10))
    cache.close()


def test_before_the_first_refresh_search_says_it_is_not_ready(tmp_path: Path) -> None:
    cache = ExactVectorCache(BruteForceIndex(5).as_index(), tmp_path)
    assert cache.version is None
    with pytest.raises(CacheNotReady):
        cache.search(QUERY, 10, None)


def test_a_closed_cache_refuses(tmp_path: Path) -> None:
    cache = open_cache(BruteForceIndex(5), tmp_path)
    cache.close()
    with pytest.raises(CacheNotReady):
        cache.search(QUERY, 10, None)
    with pytest.raises(CacheNotReady):
        cache.refresh()


@pytest.mark.slow
def test_a_search_sees_one_version_while_others_refresh(tmp_path: Path) -> None:
    truth = BruteForceIndex(200)
    cache = open_cache(truth, tmp_path, background=True)
    done = threading.Event()
    wrong: list[str] = []

    def search() -> None:
        while not done.is_set():
            found = cache.search(QUERY, 1_000_000, None).chunk_ids
            # Every change swaps ten rows, so each version holds just two hundred.
            if len(found) != 200 or len(set(found.tolist())) != 200:
                wrong.append(f"{len(found)} rows")

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for round_ in range(300):
        ids = sorted(truth.rows)[:10]
        new = truth.next_id
        truth.rows.update({new + i: (1, vector) for i, vector in enumerate(random_vectors(10, seed=round_))})
        truth.next_id += 10
        for i in ids:
            del truth.rows[i]
        truth.log.append((tuple(range(new, new + 10)), tuple(ids)))
        cache.refresh()
    done.set()
    for thread in threads:
        thread.join()
    cache.close()
    assert not wrong


def test_a_vector_that_is_not_of_length_one_is_refused_and_not_hidden(tmp_path: Path) -> None:
    truth = BruteForceIndex(20)
    truth.replace(4, np.zeros(DIMENSIONS, np.float32))
    cache = ExactVectorCache(truth.as_index(), tmp_path, background=False)
    with pytest.raises(Exception, match="chunk 4 is not of length one"):
        cache.refresh()
    assert cache.version is None
    assert list_files(tmp_path) == []


def test_the_first_of_equal_scores_at_the_limit_is_kept(tmp_path: Path) -> None:
    truth = BruteForceIndex()
    near, far = normalize(QUERY + 0.01), normalize(-QUERY)
    truth.add(np.stack([far, near, far, near, near]), [1, 2, 3, 4, 5])
    cache = open_cache(truth, tmp_path)
    assert cache.search(QUERY, 2, None).chunk_ids.tolist() == [2, 4]


@pytest.mark.parametrize("query", [np.full(DIMENSIONS, np.nan, np.float32), np.ones(DIMENSIONS + 1, np.float32)])
def test_a_query_that_does_not_fit_is_refused_and_the_cache_stays(tmp_path: Path, query: FloatArray) -> None:
    truth = BruteForceIndex(20)
    cache = open_cache(truth, tmp_path)
    with pytest.raises(InvalidQuery):
        cache.search(query, 5, None)
    assert_same(cache.search(QUERY, 5, None), truth.search_vectors(QUERY, 5))
    assert truth.snapshots == 1


def test_the_truth_is_let_go_before_the_vectors_are_studied(tmp_path: Path) -> None:
    truth = BruteForceIndex(50)
    open_while_deriving: list[int] = []

    class Watching(QuantizedEngine):
        def build_sections(self, vectors: FloatArray) -> Iterator[tuple[str, Array]]:
            open_while_deriving.append(truth.reading)
            return super().build_sections(vectors)

    open_cache(truth, tmp_path, engine=Watching(scan_max_rows=0))
    assert open_while_deriving == [0]
