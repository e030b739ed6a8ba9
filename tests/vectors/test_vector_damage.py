"""Files of vector caches, damaged in every way: noticed, never answered from, built anew."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from vector_kinds import QUERY, ROWS, every_kind, only_file, sketched
from vector_truth import Truth, assert_same

from wikiholt.cachefile.file import ALIGNMENT
from wikiholt.vectors import CacheBroken, ExactCache, SketchEngine
from wikiholt.vectors.derived import DerivedCache


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
        file.write(b"\0" * ALIGNMENT)


def flip_in_the_header(path: Path) -> None:
    flip(path, 40)


def flip_in_a_vector(path: Path) -> None:
    flip(path, ALIGNMENT + 24 * 4 * 17 + 3)


def zero_a_vector(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(ALIGNMENT + 24 * 4 * 17)
        file.write(b"\0" * 24 * 4)


def flip_in_the_last_section(path: Path) -> None:
    flip(path, path.stat().st_size - 20)


def delete(path: Path) -> None:
    path.unlink()


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x55]))


every_damage = pytest.mark.parametrize(
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
        flip_in_the_last_section,
        delete,
    ],
)


@every_kind
@every_damage
def test_a_damaged_file_is_rebuilt_when_it_is_opened(
    tmp_path: Path, make: Callable[[Truth, Path], DerivedCache], damage: Callable[[Path], None]
) -> None:
    truth = Truth(ROWS)
    make(truth, tmp_path).refresh()
    damage(only_file(tmp_path))
    cache = make(truth, tmp_path)
    cache.refresh()
    assert truth.snapshots == 2
    assert_same(cache.search(QUERY, 30, None), truth.nearest(QUERY, 30))
    assert only_file(tmp_path).name.startswith(f"vectors-g000001-v{truth.version()}.")


@every_kind
@every_damage
def test_damage_to_a_file_in_use_is_never_answered_from(
    tmp_path: Path, make: Callable[[Truth, Path], DerivedCache], damage: Callable[[Path], None]
) -> None:
    truth = Truth(ROWS)
    cache = make(truth, tmp_path)
    cache.refresh()
    damage(only_file(tmp_path))
    if damage is not delete:
        with pytest.raises(CacheBroken):
            cache.search(QUERY, 30, None)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), truth.nearest(QUERY, 30))


def test_a_row_that_changed_behind_the_clock_is_noticed_when_it_is_scored(tmp_path: Path) -> None:
    truth = Truth(ROWS)
    cache = sketched(truth, tmp_path)
    cache.refresh()
    path = only_file(tmp_path)
    before = path.stat()
    zero_a_vector(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(CacheBroken, match="length one"):
        cache.search(QUERY, ROWS, None)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), truth.nearest(QUERY, 30))


def test_verify_finds_what_no_search_has_touched(tmp_path: Path) -> None:
    truth = Truth(ROWS)
    cache = sketched(truth, tmp_path)
    cache.refresh()
    cache.verify()
    path = only_file(tmp_path)
    before = path.stat()
    flip_in_the_last_section(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(CacheBroken, match="bytes"):
        cache.verify()
    assert list(tmp_path.iterdir()) == []
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), truth.nearest(QUERY, 30))


def test_a_large_file_is_verified_in_the_background_after_it_was_opened(tmp_path: Path) -> None:
    truth = Truth(ROWS)
    sketched(truth, tmp_path).refresh()
    flip_in_the_last_section(only_file(tmp_path))
    cache = ExactCache(truth.as_index(), tmp_path, engine=SketchEngine(scan_below=0))
    cache.refresh()
    assert cache.settle(30)
    cache.refresh()
    assert truth.snapshots == 2
    assert_same(cache.search(QUERY, 30, None), truth.nearest(QUERY, 30))
    cache.close()
