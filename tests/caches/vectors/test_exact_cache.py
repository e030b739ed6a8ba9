"""The exact cache gives the answers of the reference index, whatever was added or removed."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.caches.brute_force_index import (
    DIMENSIONS,
    BruteForceIndex,
    assert_same,
    measure_recall,
    normalize,
    random_vectors,
)
from tests.support.tiers import choose
from tests.support.wait import TIMEOUT_S
from wikiholt.caches.cache_file import CacheNotReady
from wikiholt.caches.vectors.cache_state import Array
from wikiholt.caches.vectors.exact import EXCLUDED_DIFFERENCE, ExactVectorCache, QuantizedEngine, select_closest
from wikiholt.domain.index import FloatArray
from wikiholt.errors import InvalidQuery

QUERY = random_vectors(1, seed=99)[0]
QUANTIZED = QuantizedEngine(scan_max_rows=0)


def open_cache(reference: BruteForceIndex, folder: Path, **options: object) -> ExactVectorCache:
    cache = ExactVectorCache(reference.as_index(), folder, **{"background": False, **options})  # type: ignore[arg-type]
    cache.refresh()
    return cache


def list_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_finds_what_the_reference_index_finds(tmp_path: Path) -> None:
    reference = BruteForceIndex(500)
    cache = open_cache(reference, tmp_path)
    assert cache.version == reference.get_version()
    assert_same(cache.search(QUERY, 10, None), reference.search_vectors(QUERY, 10))


def test_a_limit_beyond_the_rows_gives_them_all(tmp_path: Path) -> None:
    reference = BruteForceIndex(7)
    assert_same(open_cache(reference, tmp_path).search(QUERY, 500, None), reference.search_vectors(QUERY, 500))


@pytest.mark.parametrize("engine", [QuantizedEngine(), QUANTIZED])
def test_an_empty_index_gives_an_empty_answer_and_grows(tmp_path: Path, engine: QuantizedEngine) -> None:
    reference = BruteForceIndex()
    cache = open_cache(reference, tmp_path, engine=engine)
    assert len(cache.search(QUERY, 10, None).chunk_ids) == 0
    reference.add(random_vectors(30), [1] * 30)
    cache.refresh()
    assert_same(cache.search(QUERY, 10, None), reference.search_vectors(QUERY, 10))
    assert_same(
        open_cache(reference, tmp_path, engine=engine).search(QUERY, 10, None), reference.search_vectors(QUERY, 10)
    )


def test_an_empty_cache_follows_the_version_without_a_rebuild(tmp_path: Path) -> None:
    index = BruteForceIndex()
    cache = open_cache(index, tmp_path)
    index.log.append(((), ()))
    cache.refresh()
    assert cache.version == index.get_version()
    assert index.snapshots == 1


@pytest.mark.parametrize("engine", [QuantizedEngine(), QUANTIZED])
def test_ties_are_resolved_by_chunk_id_wherever_the_rows_are(tmp_path: Path, engine: QuantizedEngine) -> None:
    reference = BruteForceIndex()
    same = np.repeat(random_vectors(1), 60, axis=0)
    reference.add(same, [1] * 60)
    cache = open_cache(reference, tmp_path, engine=engine)
    reference.add(same, [2] * 60)
    reference.replace(3, same[0])
    cache.refresh()
    found = cache.search(QUERY, 100, None)
    assert found.chunk_ids.tolist() == list(range(1, 101))


@pytest.mark.parametrize("engine", [QuantizedEngine(), QUANTIZED])
@pytest.mark.parametrize("pages", [[], [3], [2, 5, 7, 1000], list(range(1, 41)), list(range(1, 600))])
def test_a_filter_never_reduces_recall(tmp_path: Path, engine: QuantizedEngine, pages: list[int]) -> None:
    reference = BruteForceIndex(6_000)
    cache = open_cache(reference, tmp_path, engine=engine)
    reference.remove([25, 26, 400])
    reference.add(random_vectors(20, seed=5), [3] * 10 + [601] * 10)
    cache.refresh()
    allowed = np.array(pages, np.int64)
    expected = reference.search_vectors(QUERY, 20, allowed)
    found = cache.search(QUERY, 20, allowed)
    assert set(found.page_ids.tolist()) <= set(pages)
    assert_same(found, expected)


@pytest.mark.parametrize("engine", [QuantizedEngine(), QUANTIZED])
def test_a_vector_is_searched_again_in_some_pages_after_all_and_after_changes(
    tmp_path: Path, engine: QuantizedEngine
) -> None:
    """Scores and rows of the last search are kept for the next one, and must not outlive a change."""
    reference = BruteForceIndex(6000)
    cache = open_cache(reference, tmp_path, engine=engine)
    few, many = np.array([3, 5], np.int64), np.unique(reference.search_vectors(QUERY, 5900).page_ids)
    for _ in range(2):
        for pages in (None, few, many, many, few, None):
            for query in (QUERY, random_vectors(1, seed=98)[0]):
                found = cache.search(query, 20, pages)
                assert measure_recall(found, reference.search_vectors(query, 20, pages)) >= 0.95
        assert_same(cache.search(QUERY, 1000, few), reference.search_vectors(QUERY, 1000, few))
        reference.remove(cache.search(QUERY, 5, None).chunk_ids.tolist())
        reference.add(np.stack([QUERY, -QUERY]), [3, 5])
        cache.refresh()


@given(st.lists(st.integers(0, 192) | st.just(EXCLUDED_DIFFERENCE), min_size=1, max_size=400), st.integers(-1, 410))
def test_the_closest_rows_are_those_up_to_the_last_chosen_difference(values: list[int], count: int) -> None:
    differences = np.array(values, np.uint8)
    chosen = sorted(value for value in values if value < EXCLUDED_DIFFERENCE)[: max(0, count)]
    highest = chosen[-1] if chosen else -1
    assert select_closest(differences, count).tolist() == [value <= highest for value in values]


def test_rows_of_one_page_are_found_although_they_are_far_apart(tmp_path: Path) -> None:
    reference = BruteForceIndex()
    reference.add(random_vectors(300), [1 + i % 7 for i in range(300)])
    allowed = np.array([2, 6], np.int64)
    assert_same(
        open_cache(reference, tmp_path).search(QUERY, 50, allowed), reference.search_vectors(QUERY, 50, allowed)
    )


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 10, 100, 500])
@pytest.mark.parametrize("turned", [True, False])
def test_a_sketch_finds_ninety_nine_of_a_hundred(tmp_path: Path, limit: int, turned: bool) -> None:
    """Also if a few dimensions have most of the variance; rotated, all have the same, as in real text."""
    turn = np.linalg.qr(np.random.default_rng(4).normal(size=(96, 96)))[0] if turned else np.eye(96)
    reference = BruteForceIndex(dimensions=96)
    reference.add(normalize(random_vectors(30_000, dimensions=96) @ turn), [1 + i // 10 for i in range(30_000)])
    cache = open_cache(reference, tmp_path)
    queries = normalize(random_vectors(20, seed=3, dimensions=96) @ turn)
    found = [
        measure_recall(cache.search(query, limit, None), reference.search_vectors(query, limit))
        for query in queries[:5]
    ]
    assert np.mean(found) >= 0.99


@pytest.mark.parametrize("dimensions", [1, 24, 64, 100, 600])
def test_a_sketch_is_made_of_vectors_of_any_length(tmp_path: Path, dimensions: int) -> None:
    reference = BruteForceIndex(900, dimensions=dimensions)
    query = random_vectors(1, seed=5, dimensions=dimensions)[0]
    cache = open_cache(reference, tmp_path, engine=QUANTIZED)
    assert measure_recall(cache.search(query, 20, None), reference.search_vectors(query, 20)) >= 0.95
    assert_same(cache.search(query, 900, None), reference.search_vectors(query, 900))


def test_a_change_needs_neither_a_new_file_nor_a_full_read(tmp_path: Path) -> None:
    reference = BruteForceIndex(500)
    cache = open_cache(reference, tmp_path)
    before = list_files(tmp_path)
    for round_ in range(15):
        reference.remove([round_ + 1, 100 + round_])
        reference.add(random_vectors(10, seed=round_ + 1), [51 + round_] * 10)
        cache.refresh()
        assert cache.version == reference.get_version()
        assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))
    assert list_files(tmp_path) == before
    assert reference.snapshots == 1


def test_a_chunk_removed_after_it_was_added_is_gone(tmp_path: Path) -> None:
    reference = BruteForceIndex(20)
    cache = open_cache(reference, tmp_path)
    (added,) = reference.add(QUERY[None], [9])
    cache.refresh()
    assert cache.search(QUERY, 1, None).chunk_ids.tolist() == [added]
    reference.remove([added])
    cache.refresh()
    assert_same(cache.search(QUERY, 5, None), reference.search_vectors(QUERY, 5))


def test_a_chunk_that_got_another_vector_is_replaced(tmp_path: Path) -> None:
    reference = BruteForceIndex(20)
    cache = open_cache(reference, tmp_path)
    for vector in (QUERY, random_vectors(1, seed=7)[0]):
        reference.replace(5, vector)
        cache.refresh()
        assert_same(cache.search(QUERY, 20, None), reference.search_vectors(QUERY, 20))


def test_many_changes_are_merged_into_a_new_file_and_the_old_one_is_removed(tmp_path: Path) -> None:
    reference = BruteForceIndex(100)
    cache = open_cache(reference, tmp_path)
    reference.add(random_vectors(2_500, seed=1), [20] * 2_500)
    reference.remove([1, 2, 3])
    cache.refresh()
    assert list_files(tmp_path) == [f"vectors-g000001-v{reference.get_version()}.exact"]
    assert reference.snapshots == 1
    assert_same(cache.search(QUERY, 50, None), reference.search_vectors(QUERY, 50))


@pytest.mark.slow
def test_memory_of_a_small_wiki_does_not_grow_with_repeated_edits(tmp_path: Path) -> None:
    reference = BruteForceIndex(20)
    cache = open_cache(reference, tmp_path)
    written = set()
    for number in range(1_500):
        reference.replace(3, random_vectors(1, seed=number)[0])
        cache.refresh()
        written.update(list_files(tmp_path))
    held = cache._state.added.buffer.vectors  # type: ignore[union-attr]
    assert held.nbytes <= 1_000 * DIMENSIONS * 4
    assert 3 <= len(written) <= 20  # merged a few times, not at every change
    assert_same(cache.search(QUERY, 50, None), reference.search_vectors(QUERY, 50))


def test_a_merge_in_the_background_loses_no_change_made_meanwhile(tmp_path: Path) -> None:
    reference = BruteForceIndex(100)
    cache = open_cache(reference, tmp_path, background=True)
    reference.add(random_vectors(2_500, seed=1), [20] * 2_500)
    cache.refresh()
    merged = reference.get_version()
    reference.add(QUERY[None], [30])
    reference.remove([5])
    cache.refresh()
    assert cache.wait_idle(TIMEOUT_S)
    cache.refresh()
    assert list_files(tmp_path) == [f"vectors-g000001-v{merged}.exact"]
    assert cache.version == reference.get_version()
    assert_same(cache.search(QUERY, 50, None), reference.search_vectors(QUERY, 50))
    cache.close()


def test_a_large_index_is_built_in_the_background_and_search_says_so(tmp_path: Path) -> None:
    reference = BruteForceIndex(300)
    cache = ExactVectorCache(reference.as_index(), tmp_path, inline_build_rows=100)
    cache.refresh()
    if cache.version is None:
        with pytest.raises(CacheNotReady, match="not built yet"):
            cache.search(QUERY, 10, None)
    assert cache.wait_idle(TIMEOUT_S)
    cache.refresh()
    assert_same(cache.search(QUERY, 10, None), reference.search_vectors(QUERY, 10))
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
    reference = BruteForceIndex(200)
    cache = open_cache(reference, tmp_path, background=True)
    done = threading.Event()
    wrong: list[str] = []

    def search() -> None:
        while not done.is_set():
            found = cache.search(QUERY, 1_000_000, None).chunk_ids
            # Every change replaces ten rows, so each version has two hundred.
            if len(found) != 200 or len(set(found.tolist())) != 200:
                wrong.append(f"{len(found)} rows")

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for round_ in range(choose(300, 40)):
        ids = sorted(reference.rows)[:10]
        new = reference.next_id
        reference.rows.update({new + i: (1, vector) for i, vector in enumerate(random_vectors(10, seed=round_))})
        reference.next_id += 10
        for i in ids:
            del reference.rows[i]
        reference.log.append((tuple(range(new, new + 10)), tuple(ids)))
        cache.refresh()
    done.set()
    for thread in threads:
        thread.join()
    cache.close()
    assert not wrong


def test_a_vector_that_is_not_of_length_one_is_refused_and_not_hidden(tmp_path: Path) -> None:
    reference = BruteForceIndex(20)
    reference.replace(4, np.zeros(DIMENSIONS, np.float32))
    cache = ExactVectorCache(reference.as_index(), tmp_path, background=False)
    with pytest.raises(Exception, match="chunk 4 is not of length one"):
        cache.refresh()
    assert cache.version is None
    assert list_files(tmp_path) == []


def test_the_first_of_equal_scores_at_the_limit_is_kept(tmp_path: Path) -> None:
    reference = BruteForceIndex()
    near, far = normalize(QUERY + 0.01), normalize(-QUERY)
    reference.add(np.stack([far, near, far, near, near]), [1, 2, 3, 4, 5])
    cache = open_cache(reference, tmp_path)
    assert cache.search(QUERY, 2, None).chunk_ids.tolist() == [2, 4]


@pytest.mark.parametrize("query", [np.full(DIMENSIONS, np.nan, np.float32), np.ones(DIMENSIONS + 1, np.float32)])
def test_a_query_of_another_size_is_refused_and_the_cache_stays_usable(tmp_path: Path, query: FloatArray) -> None:
    reference = BruteForceIndex(20)
    cache = open_cache(reference, tmp_path)
    with pytest.raises(InvalidQuery):
        cache.search(query, 5, None)
    assert_same(cache.search(QUERY, 5, None), reference.search_vectors(QUERY, 5))
    assert reference.snapshots == 1


def test_the_snapshot_is_closed_before_sections_are_built(tmp_path: Path) -> None:
    reference = BruteForceIndex(50)
    open_while_deriving: list[int] = []

    class Watching(QuantizedEngine):
        def build_sections(self, vectors: FloatArray) -> Iterator[tuple[str, Array]]:
            open_while_deriving.append(reference.reading)
            return super().build_sections(vectors)

    open_cache(reference, tmp_path, engine=Watching(scan_max_rows=0))
    assert open_while_deriving == [0]
