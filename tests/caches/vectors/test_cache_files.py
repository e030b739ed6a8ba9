"""Files of vector caches: reopened, from another history, on a full disk, with other names."""

import errno
import fcntl
import gc
import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.caches.brute_force_index import BruteForceIndex, assert_same, random_vectors
from tests.caches.vectors.cache_kinds import QUERY, ROWS, exact, get_only_file, parametrize_kinds, sketched
from tests.support.wait import TIMEOUT_S
from wikiholt.caches.cache_file import _READS_PER_RELEASE, CacheNotReady, MappedFile, SectionWriter
from wikiholt.caches.vectors.exact import ExactVectorCache, QuantizedEngine
from wikiholt.caches.vectors.vector_cache import FileVectorCache


@parametrize_kinds
def test_reopening_needs_only_what_changed_since(
    tmp_path: Path, make: Callable[[BruteForceIndex, Path], FileVectorCache]
) -> None:
    reference = BruteForceIndex(ROWS)
    make(reference, tmp_path).refresh()
    reference.remove([1, 2])
    reference.add(random_vectors(5, seed=2), [50] * 5)
    cache = make(reference, tmp_path)
    cache.refresh()
    assert reference.snapshots == 1
    assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))


def test_a_file_too_old_to_be_updated_is_rebuilt(tmp_path: Path) -> None:
    reference = BruteForceIndex(ROWS)
    exact(reference, tmp_path).refresh()
    reference.remove([1])
    reference.horizon = reference.get_version()
    cache = exact(reference, tmp_path)
    cache.refresh()
    assert reference.snapshots == 2
    assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))


def test_a_file_too_old_to_be_updated_is_released(tmp_path: Path) -> None:
    reference = BruteForceIndex(ROWS)
    sketched(reference, tmp_path).refresh()
    reference.remove([1])
    reference.horizon = reference.get_version()
    cache = ExactVectorCache(reference.as_index(), tmp_path, engine=QuantizedEngine(scan_max_rows=0))
    cache.refresh()
    assert cache.wait_idle(TIMEOUT_S)
    cache.refresh()
    gc.collect()
    files = [item for item in gc.get_objects() if isinstance(item, MappedFile) and item.path.parent == tmp_path]
    assert [file.path for file in files] == [get_only_file(tmp_path)]
    cache.close()


def test_a_file_from_another_history_is_not_used(tmp_path: Path) -> None:
    reference = BruteForceIndex(ROWS)
    reference.remove([1])
    cache = exact(reference, tmp_path)
    cache.refresh()
    restored = BruteForceIndex(ROWS - 10, seed=8)
    late = exact(restored, tmp_path)
    late.refresh()
    assert_same(late.search(QUERY, 30, None), restored.search_vectors(QUERY, 30))
    restored.remove([2])
    again = exact(restored, tmp_path)
    again.refresh()
    assert_same(again.search(QUERY, 30, None), restored.search_vectors(QUERY, 30))


def test_an_index_with_an_older_version_is_followed(tmp_path: Path) -> None:
    reference = BruteForceIndex(ROWS)
    cache = exact(reference, tmp_path)
    reference.remove([1])
    cache.refresh()
    restored = BruteForceIndex(ROWS, seed=8)
    reference.rows, reference.log = restored.rows, restored.log
    cache.refresh()
    assert cache.version == 1
    assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))


def test_a_cache_with_a_wrong_row_count_is_rebuilt(tmp_path: Path) -> None:
    reference = BruteForceIndex(ROWS)
    cache = exact(reference, tmp_path)
    cache.refresh()
    del reference.rows[7]
    reference.log.append(((), ()))
    cache.refresh()
    assert reference.snapshots == 2
    assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))


def test_another_generation_removes_this_file_instead_of_using_it(tmp_path: Path) -> None:
    old, new = BruteForceIndex(ROWS), BruteForceIndex(ROWS, seed=4)
    exact(old, tmp_path).refresh()
    new.generation = 2
    cache = exact(new, tmp_path)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), new.search_vectors(QUERY, 30))
    assert get_only_file(tmp_path).name == "vectors-g000002-v1.exact"


def test_a_file_with_another_wikis_name_is_not_used(tmp_path: Path) -> None:
    old, new = BruteForceIndex(ROWS), BruteForceIndex(ROWS, seed=4)
    exact(old, tmp_path).refresh()
    new.generation = 2
    get_only_file(tmp_path).rename(tmp_path / "vectors-g000002-v1.exact")
    cache = exact(new, tmp_path)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), new.search_vectors(QUERY, 30))


def test_without_a_directory_it_works_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    reference = BruteForceIndex(ROWS)
    for cache in (exact(reference, blocked / "cache"), sketched(reference, blocked / "cache")):
        with caplog.at_level(logging.WARNING):
            cache.refresh()
        assert "stays in memory" in caplog.text
        assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))
        reference.add(random_vectors(2_500, seed=3), [60] * 2_500)
        cache.refresh()
        assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))
        cache.verify()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_is_read(tmp_path: Path) -> None:
    reference = BruteForceIndex(ROWS)
    tmp_path.chmod(0o500)
    try:
        cache = exact(reference, tmp_path)
        cache.refresh()
        assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))
    finally:
        tmp_path.chmod(0o700)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SectionWriter, "finish", full)
    reference = BruteForceIndex(ROWS)
    cache = exact(reference, tmp_path)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_the_name_of_the_file_is_ignored(tmp_path: Path) -> None:
    reference = BruteForceIndex(ROWS)
    exact(reference, tmp_path).refresh()
    taken = get_only_file(tmp_path)
    taken.unlink()
    taken.mkdir()
    cache = exact(reference, tmp_path)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))


def test_files_of_a_killed_writer_are_removed_and_that_of_a_live_writer_is_not(tmp_path: Path) -> None:
    dead = tmp_path / "vectors-g000001-v1.exact.aaaa.writing"
    alive = tmp_path / "vectors-g000001-v1.exact.bbbb.writing"
    dead.write_bytes(b"half")
    alive.write_bytes(b"half")
    with alive.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        exact(BruteForceIndex(ROWS), tmp_path).refresh()
        assert not dead.exists()
        assert alive.exists()


def test_files_of_a_killed_writer_are_removed_if_another_has_written_the_cache(tmp_path: Path) -> None:
    reference = BruteForceIndex(ROWS)
    exact(reference, tmp_path).refresh()
    written = get_only_file(tmp_path)
    Path(f"{written}.aaaa.writing").write_bytes(b"half")
    exact(reference, tmp_path).refresh()
    assert get_only_file(tmp_path) == written


def test_a_failed_build_gives_its_reason_and_is_not_retried_on_every_search(tmp_path: Path) -> None:
    reference = BruteForceIndex(ROWS)
    reference.replace(4, np.full(24, np.nan, np.float32))
    now = [0.0]
    cache = FileVectorCache(
        reference.as_index(), tmp_path, QuantizedEngine(), background=True, inline_build_rows=10, clock=lambda: now[0]
    )
    for _ in range(3):
        cache.refresh()
        assert cache.wait_idle(TIMEOUT_S)
    assert reference.snapshots == 1
    with pytest.raises(CacheNotReady, match="chunk 4 is not of length one"):
        cache.search(QUERY, 3, None)
    reference.replace(4, QUERY)
    now[0] = 100.0
    cache.refresh()
    assert cache.wait_idle(TIMEOUT_S)
    cache.refresh()
    assert cache.search(QUERY, 1, None).chunk_ids.tolist() == [4]
    cache.close()


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux lists the memory of a mapped file")
def test_rows_that_were_read_do_not_stay_in_the_memory_of_the_process(tmp_path: Path) -> None:
    reference = BruteForceIndex(20 * ROWS)
    cache = sketched(reference, tmp_path)
    cache.refresh()
    state = cache._get_state()
    assert state.file is not None
    section_kb = len(state.file.get_section("vectors").tobytes()) // 1024
    cache.search(QUERY, 30, None)
    before = _count_resident_kb(state.file.path)
    for _ in range(_READS_PER_RELEASE - 1):
        assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))
    state.file.verify_checksums(["vectors"])
    assert _count_resident_kb(state.file.path) <= before - section_kb * 3 // 4
    assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))


def _count_resident_kb(file: Path) -> int:
    """The memory that the mapped file takes in this process."""
    sizes, is_mapping = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if not line.split()[0].endswith(":"):
            is_mapping = line.endswith(str(file))
        elif is_mapping and line.startswith("Rss:"):
            sizes += int(line.split()[1])
    return sizes
