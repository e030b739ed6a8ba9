"""Files of vector caches: opened again, from another history, without room, under others' names."""

import errno
import fcntl
import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.caches.brute_force_index import BruteForceIndex, assert_same, random_vectors
from tests.caches.vectors.cache_kinds import QUERY, ROWS, exact, get_only_file, parametrize_kinds, sketched
from wikiholt.caches.cache_file import CacheNotReady, SectionWriter
from wikiholt.caches.vectors.exact import QuantizedEngine
from wikiholt.caches.vectors.vector_cache import FileVectorCache


@parametrize_kinds
def test_reopening_needs_only_what_changed_since(
    tmp_path: Path, make: Callable[[BruteForceIndex, Path], FileVectorCache]
) -> None:
    truth = BruteForceIndex(ROWS)
    make(truth, tmp_path).refresh()
    truth.remove([1, 2])
    truth.add(random_vectors(5, seed=2), [50] * 5)
    cache = make(truth, tmp_path)
    cache.refresh()
    assert truth.snapshots == 1
    assert_same(cache.search(QUERY, 30, None), truth.search_vectors(QUERY, 30))


def test_a_file_too_old_to_be_brought_up_to_date_is_rebuilt(tmp_path: Path) -> None:
    truth = BruteForceIndex(ROWS)
    exact(truth, tmp_path).refresh()
    truth.remove([1])
    truth.horizon = truth.get_version()
    cache = exact(truth, tmp_path)
    cache.refresh()
    assert truth.snapshots == 2
    assert_same(cache.search(QUERY, 30, None), truth.search_vectors(QUERY, 30))


def test_a_file_from_another_history_is_not_believed(tmp_path: Path) -> None:
    truth = BruteForceIndex(ROWS)
    truth.remove([1])
    cache = exact(truth, tmp_path)
    cache.refresh()
    restored = BruteForceIndex(ROWS - 10, seed=8)
    late = exact(restored, tmp_path)
    late.refresh()
    assert_same(late.search(QUERY, 30, None), restored.search_vectors(QUERY, 30))
    restored.remove([2])
    again = exact(restored, tmp_path)
    again.refresh()
    assert_same(again.search(QUERY, 30, None), restored.search_vectors(QUERY, 30))


def test_an_index_that_went_back_is_followed(tmp_path: Path) -> None:
    truth = BruteForceIndex(ROWS)
    cache = exact(truth, tmp_path)
    truth.remove([1])
    cache.refresh()
    restored = BruteForceIndex(ROWS, seed=8)
    truth.rows, truth.log = restored.rows, restored.log
    cache.refresh()
    assert cache.version == 1
    assert_same(cache.search(QUERY, 30, None), truth.search_vectors(QUERY, 30))


def test_a_cache_that_lost_count_is_rebuilt(tmp_path: Path) -> None:
    truth = BruteForceIndex(ROWS)
    cache = exact(truth, tmp_path)
    cache.refresh()
    del truth.rows[7]
    truth.log.append(((), ()))
    cache.refresh()
    assert truth.snapshots == 2
    assert_same(cache.search(QUERY, 30, None), truth.search_vectors(QUERY, 30))


def test_another_generation_never_uses_this_ones_file_and_clears_it_away(tmp_path: Path) -> None:
    old, new = BruteForceIndex(ROWS), BruteForceIndex(ROWS, seed=4)
    exact(old, tmp_path).refresh()
    new.generation = 2
    cache = exact(new, tmp_path)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), new.search_vectors(QUERY, 30))
    assert get_only_file(tmp_path).name == "vectors-g000002-v1.exact"


def test_a_file_under_anothers_name_is_not_believed(tmp_path: Path) -> None:
    old, new = BruteForceIndex(ROWS), BruteForceIndex(ROWS, seed=4)
    exact(old, tmp_path).refresh()
    new.generation = 2
    get_only_file(tmp_path).rename(tmp_path / "vectors-g000002-v1.exact")
    cache = exact(new, tmp_path)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), new.search_vectors(QUERY, 30))


def test_where_no_folder_can_be_made_it_works_from_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    truth = BruteForceIndex(ROWS)
    for cache in (exact(truth, blocked / "cache"), sketched(truth, blocked / "cache")):
        with caplog.at_level(logging.WARNING):
            cache.refresh()
        assert "stays in memory" in caplog.text
        assert_same(cache.search(QUERY, 30, None), truth.search_vectors(QUERY, 30))
        truth.add(random_vectors(2_500, seed=3), [60] * 2_500)
        cache.refresh()
        assert_same(cache.search(QUERY, 30, None), truth.search_vectors(QUERY, 30))
        cache.verify()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_read_and_not_needed(tmp_path: Path) -> None:
    truth = BruteForceIndex(ROWS)
    tmp_path.chmod(0o500)
    try:
        cache = exact(truth, tmp_path)
        cache.refresh()
        assert_same(cache.search(QUERY, 30, None), truth.search_vectors(QUERY, 30))
    finally:
        tmp_path.chmod(0o700)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SectionWriter, "finish", full)
    truth = BruteForceIndex(ROWS)
    cache = exact(truth, tmp_path)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), truth.search_vectors(QUERY, 30))
    assert list(tmp_path.iterdir()) == []


def test_a_name_taken_by_a_directory_does_no_harm(tmp_path: Path) -> None:
    truth = BruteForceIndex(ROWS)
    exact(truth, tmp_path).refresh()
    taken = get_only_file(tmp_path)
    taken.unlink()
    taken.mkdir()
    cache = exact(truth, tmp_path)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), truth.search_vectors(QUERY, 30))


def test_what_a_killed_writer_left_is_swept_and_a_live_writers_file_is_not(tmp_path: Path) -> None:
    dead = tmp_path / "vectors-g000001-v1.exact.aaaa.writing"
    alive = tmp_path / "vectors-g000001-v1.exact.bbbb.writing"
    dead.write_bytes(b"half")
    alive.write_bytes(b"half")
    with alive.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        exact(BruteForceIndex(ROWS), tmp_path).refresh()
        assert not dead.exists()
        assert alive.exists()


def test_a_failing_build_says_why_and_is_not_tried_on_every_search(tmp_path: Path) -> None:
    truth = BruteForceIndex(ROWS)
    truth.replace(4, np.full(24, np.nan, np.float32))
    now = [0.0]
    cache = FileVectorCache(
        truth.as_index(), tmp_path, QuantizedEngine(), background=True, inline_build_rows=10, clock=lambda: now[0]
    )
    for _ in range(3):
        cache.refresh()
        assert cache.wait_idle(30)
    assert truth.snapshots == 1
    with pytest.raises(CacheNotReady, match="chunk 4 is not of length one"):
        cache.search(QUERY, 3, None)
    truth.replace(4, QUERY)
    now[0] = 100.0
    cache.refresh()
    assert cache.wait_idle(30)
    cache.refresh()
    assert cache.search(QUERY, 1, None).chunk_ids.tolist() == [4]
    cache.close()
