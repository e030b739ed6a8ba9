"""Files of vector caches with every kind of damage: detected, never used for answers, rebuilt."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.caches.brute_force_index import BruteForceIndex, assert_same
from tests.caches.vectors.cache_kinds import QUERY, ROWS, get_only_file, parametrize_kinds, sketched
from tests.support.wait import TIMEOUT_S
from wikiholt.caches import cache_file
from wikiholt.caches.cache_file import ALIGNMENT_BYTES, CacheBroken, CacheFileHeader, FileSection
from wikiholt.caches.vectors.exact import ExactVectorCache, QuantizedEngine
from wikiholt.caches.vectors.vector_cache import FileVectorCache
from wikiholt.search.vector_channel import compute_page_means


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 5)


def cut_to_nothing(path: Path) -> None:
    os.truncate(path, 0)


def lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0" * 100)


def fill_with_noise(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(path.stat().st_size))


def zero_the_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\0" * ALIGNMENT_BYTES)


def flip_in_the_header(path: Path) -> None:
    flip_bits(path, 40)


def flip_in_a_vector(path: Path) -> None:
    flip_bits(path, ALIGNMENT_BYTES + 24 * 4 * 17 + 3)


def zero_a_vector(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(ALIGNMENT_BYTES + 24 * 4 * 17)
        file.write(b"\0" * 24 * 4)


def zero_a_mean(path: Path) -> None:
    section = find_section(path, "means")
    with path.open("r+b") as file:
        file.seek(section.offset + 24 * 4 * 3)
        file.write(b"\0" * 24 * 4)


def find_section(path: Path, name: str) -> FileSection:
    header = CacheFileHeader.decode(path.read_bytes()[:ALIGNMENT_BYTES])
    return next(section for section in header.sections if section.name == name)


def flip_in_the_last_section(path: Path) -> None:
    flip_bits(path, path.stat().st_size - 20)


def delete(path: Path) -> None:
    path.unlink()


def flip_bits(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x55]))


parametrize_damages = pytest.mark.parametrize(
    "damage",
    [
        cut_short,
        cut_to_nothing,
        lengthen,
        fill_with_noise,
        zero_the_header,
        flip_in_the_header,
        flip_in_a_vector,
        zero_a_vector,
        zero_a_mean,
        flip_in_the_last_section,
        delete,
    ],
)


@parametrize_kinds
@parametrize_damages
def test_a_damaged_file_is_rebuilt_when_it_is_opened(
    tmp_path: Path, make: Callable[[BruteForceIndex, Path], FileVectorCache], damage: Callable[[Path], None]
) -> None:
    reference = BruteForceIndex(ROWS)
    make(reference, tmp_path).refresh()
    damage(get_only_file(tmp_path))
    cache = make(reference, tmp_path)
    cache.refresh()
    assert reference.snapshots == 2
    assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))
    assert get_only_file(tmp_path).name.startswith(f"vectors-g000001-v{reference.get_version()}.")


@parametrize_kinds
@parametrize_damages
def test_a_file_damaged_in_use_gives_no_answers(
    tmp_path: Path, make: Callable[[BruteForceIndex, Path], FileVectorCache], damage: Callable[[Path], None]
) -> None:
    reference = BruteForceIndex(ROWS)
    cache = make(reference, tmp_path)
    cache.refresh()
    damage(get_only_file(tmp_path))
    if damage is not delete:
        with pytest.raises(CacheBroken):
            cache.search(QUERY, 30, None)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))


def test_a_row_changed_without_a_new_timestamp_is_detected_when_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_file, "_COPY_MAX_BYTES", 0)  # a mapped file
    reference = BruteForceIndex(ROWS)
    cache = sketched(reference, tmp_path)
    cache.refresh()
    path = get_only_file(tmp_path)
    before = path.stat()
    zero_a_vector(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(CacheBroken, match="length one"):
        cache.search(QUERY, ROWS, None)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))


def test_a_mean_changed_without_a_new_timestamp_is_detected_when_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_file, "_COPY_MAX_BYTES", 0)  # a mapped file
    reference = BruteForceIndex(ROWS)
    cache = sketched(reference, tmp_path)
    cache.refresh()
    page_ids = np.unique(reference.search_vectors(QUERY, ROWS).page_ids)
    expected = cache.get_page_means(page_ids)
    path = get_only_file(tmp_path)
    before = path.stat()
    zero_a_mean(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(CacheBroken, match=r"page \d+ is not of length one"):
        cache.get_page_means(page_ids)
    cache.refresh()
    np.testing.assert_array_equal(cache.get_page_means(page_ids), expected)


@parametrize_kinds
def test_a_file_of_a_version_without_means_is_rebuilt(
    tmp_path: Path, make: Callable[[BruteForceIndex, Path], FileVectorCache]
) -> None:
    reference = BruteForceIndex(ROWS)
    make(reference, tmp_path).refresh()
    path = get_only_file(tmp_path)
    header = CacheFileHeader.decode(path.read_bytes()[:ALIGNMENT_BYTES])
    sections = tuple(section for section in header.sections if section.name not in ("means", "mean_pages"))
    with path.open("r+b") as file:
        file.write(replace(header, sections=sections).encode())
    cache = make(reference, tmp_path)
    cache.refresh()
    assert reference.snapshots == 2
    assert find_section(get_only_file(tmp_path), "means").length
    assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))


def test_a_mean_without_a_direction_is_computed_when_it_is_read(tmp_path: Path) -> None:
    reference = BruteForceIndex(ROWS)
    page_ids = np.unique(reference.search_vectors(QUERY, ROWS).page_ids)
    chunks = [chunk for chunk, (page, _) in reference.rows.items() if page == page_ids[0]]
    for number, chunk in enumerate(chunks[: len(chunks) // 2 * 2]):
        reference.replace(chunk, QUERY if number % 2 else -QUERY)
    cache = sketched(reference, tmp_path)
    cache.refresh()
    rows = reference.get_table(sorted(reference.rows))
    np.testing.assert_array_equal(cache.get_page_means(page_ids), compute_page_means(rows, page_ids))


def test_verify_finds_damage_that_no_search_has_read(tmp_path: Path) -> None:
    reference = BruteForceIndex(ROWS)
    cache = sketched(reference, tmp_path)
    cache.refresh()
    cache.verify()
    path = get_only_file(tmp_path)
    before = path.stat()
    flip_in_the_last_section(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(CacheBroken, match="bytes"):
        cache.verify()
    assert list(tmp_path.iterdir()) == []
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))


def test_a_large_file_is_verified_in_the_background_after_it_was_opened(tmp_path: Path) -> None:
    reference = BruteForceIndex(ROWS)
    sketched(reference, tmp_path).refresh()
    flip_in_the_last_section(get_only_file(tmp_path))
    cache = ExactVectorCache(reference.as_index(), tmp_path, engine=QuantizedEngine(scan_max_rows=0))
    cache.refresh()
    assert cache.wait_idle(TIMEOUT_S)
    cache.refresh()
    assert reference.snapshots == 2
    assert_same(cache.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))
    cache.close()
