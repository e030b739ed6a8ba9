"""A cache file may be damaged, deleted, doubled or impossible to write: the answers stay those of the truth."""

import errno
import fcntl
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from vector_truth import Truth, assert_same, random_vectors

from wikiholt.cachefile.file import ALIGNMENT, SectionWriter
from wikiholt.vectors import CacheBroken, CacheNotReady, ExactCache, FaissCache, FaissEngine, SketchEngine
from wikiholt.vectors.derived import DerivedCache

QUERY = random_vectors(1, seed=99)[0]
ROWS = 400


def exact(truth: Truth, folder: Path) -> DerivedCache:
    return ExactCache(truth.as_index(), folder, background=False)


def sketched(truth: Truth, folder: Path) -> DerivedCache:
    return ExactCache(truth.as_index(), folder, background=False, engine=SketchEngine(scan_below=0))


def faiss(truth: Truth, folder: Path) -> DerivedCache:
    pytest.importorskip("faiss")
    return FaissCache(truth.as_index(), folder, background=False, engine=FaissEngine(scan_below=0))


every_kind = pytest.mark.parametrize("make", [exact, sketched, faiss])


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


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


def replace_by_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


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


@every_kind
def test_reopening_needs_only_what_changed_since(tmp_path: Path, make: Callable[[Truth, Path], DerivedCache]) -> None:
    truth = Truth(ROWS)
    make(truth, tmp_path).refresh()
    truth.drop([1, 2])
    truth.add(random_vectors(5, seed=2), [50] * 5)
    cache = make(truth, tmp_path)
    cache.refresh()
    assert truth.snapshots == 1
    assert_same(cache.search(QUERY, 30, None), truth.nearest(QUERY, 30))


def test_a_file_too_old_to_be_brought_up_to_date_is_rebuilt(tmp_path: Path) -> None:
    truth = Truth(ROWS)
    exact(truth, tmp_path).refresh()
    truth.drop([1])
    truth.horizon = truth.version()
    cache = exact(truth, tmp_path)
    cache.refresh()
    assert truth.snapshots == 2
    assert_same(cache.search(QUERY, 30, None), truth.nearest(QUERY, 30))


def test_a_file_from_another_history_is_not_believed(tmp_path: Path) -> None:
    truth = Truth(ROWS)
    truth.drop([1])
    cache = exact(truth, tmp_path)
    cache.refresh()
    restored = Truth(ROWS - 10, seed=8)
    late = exact(restored, tmp_path)
    late.refresh()
    assert_same(late.search(QUERY, 30, None), restored.nearest(QUERY, 30))
    restored.drop([2])
    again = exact(restored, tmp_path)
    again.refresh()
    assert_same(again.search(QUERY, 30, None), restored.nearest(QUERY, 30))


def test_an_index_that_went_back_is_followed(tmp_path: Path) -> None:
    truth = Truth(ROWS)
    cache = exact(truth, tmp_path)
    truth.drop([1])
    cache.refresh()
    restored = Truth(ROWS, seed=8)
    truth.rows, truth.log = restored.rows, restored.log
    cache.refresh()
    assert cache.version == 1
    assert_same(cache.search(QUERY, 30, None), truth.nearest(QUERY, 30))


def test_a_cache_that_lost_count_is_rebuilt(tmp_path: Path) -> None:
    truth = Truth(ROWS)
    cache = exact(truth, tmp_path)
    cache.refresh()
    del truth.rows[7]
    truth.log.append(((), ()))
    cache.refresh()
    assert truth.snapshots == 2
    assert_same(cache.search(QUERY, 30, None), truth.nearest(QUERY, 30))


def test_another_generation_never_uses_this_ones_file_and_clears_it_away(tmp_path: Path) -> None:
    old, new = Truth(ROWS), Truth(ROWS, seed=4)
    exact(old, tmp_path).refresh()
    new.generation = 2
    cache = exact(new, tmp_path)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), new.nearest(QUERY, 30))
    assert only_file(tmp_path).name == "vectors-g000002-v1.exact"


def test_a_file_under_anothers_name_is_not_believed(tmp_path: Path) -> None:
    old, new = Truth(ROWS), Truth(ROWS, seed=4)
    exact(old, tmp_path).refresh()
    new.generation = 2
    only_file(tmp_path).rename(tmp_path / "vectors-g000002-v1.exact")
    cache = exact(new, tmp_path)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), new.nearest(QUERY, 30))


def test_where_no_folder_can_be_made_it_works_from_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    truth = Truth(ROWS)
    for cache in (exact(truth, blocked / "cache"), sketched(truth, blocked / "cache")):
        with caplog.at_level(logging.WARNING):
            cache.refresh()
        assert "stays in memory" in caplog.text
        assert_same(cache.search(QUERY, 30, None), truth.nearest(QUERY, 30))
        truth.add(random_vectors(2_500, seed=3), [60] * 2_500)
        cache.refresh()
        assert_same(cache.search(QUERY, 30, None), truth.nearest(QUERY, 30))
        cache.verify()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_read_and_not_needed(tmp_path: Path) -> None:
    truth = Truth(ROWS)
    tmp_path.chmod(0o500)
    try:
        cache = exact(truth, tmp_path)
        cache.refresh()
        assert_same(cache.search(QUERY, 30, None), truth.nearest(QUERY, 30))
    finally:
        tmp_path.chmod(0o700)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SectionWriter, "finish", full)
    truth = Truth(ROWS)
    cache = exact(truth, tmp_path)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), truth.nearest(QUERY, 30))
    assert list(tmp_path.iterdir()) == []


def test_a_name_taken_by_a_directory_does_no_harm(tmp_path: Path) -> None:
    truth = Truth(ROWS)
    exact(truth, tmp_path).refresh()
    replace_by_a_directory(only_file(tmp_path))
    cache = exact(truth, tmp_path)
    cache.refresh()
    assert_same(cache.search(QUERY, 30, None), truth.nearest(QUERY, 30))


def test_what_a_killed_writer_left_is_swept_and_a_live_writers_file_is_not(tmp_path: Path) -> None:
    dead = tmp_path / "vectors-g000001-v1.exact.aaaa.writing"
    alive = tmp_path / "vectors-g000001-v1.exact.bbbb.writing"
    dead.write_bytes(b"half")
    alive.write_bytes(b"half")
    with alive.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        exact(Truth(ROWS), tmp_path).refresh()
        assert not dead.exists()
        assert alive.exists()


def test_a_failing_build_says_why_and_is_not_tried_on_every_search(tmp_path: Path) -> None:
    truth = Truth(ROWS)
    truth.replace(4, np.full(24, np.nan, np.float32))
    now = [0.0]
    cache = DerivedCache(
        truth.as_index(), tmp_path, SketchEngine(), background=True, build_at_once=10, clock=lambda: now[0]
    )
    for _ in range(3):
        cache.refresh()
        assert cache.settle(30)
    assert truth.snapshots == 1
    with pytest.raises(CacheNotReady, match="chunk 4 is not of length one"):
        cache.search(QUERY, 3, None)
    truth.replace(4, QUERY)
    now[0] = 100.0
    cache.refresh()
    assert cache.settle(30)
    cache.refresh()
    assert cache.search(QUERY, 1, None).chunk_ids.tolist() == [4]
    cache.close()


BUILDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from vector_truth import Truth, assert_same, random_vectors
from wikiholt.vectors import ExactCache

truth = Truth(3_000)
query = random_vectors(1, seed=99)[0]
for round_ in range(6):
    cache = ExactCache(truth.as_index(), Path(sys.argv[1]), background=False)
    cache.refresh()
    assert_same(cache.search(query, 30, None), truth.nearest(query, 30))
    truth.add(random_vectors(2_100, seed=round_ + 1), [900 + round_] * 2_100)
    cache.refresh()
    assert_same(cache.search(query, 30, None), truth.nearest(query, 30))
"""


def test_processes_that_build_at_once_do_one_another_no_harm(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUILDER, str(tmp_path), str(Path(__file__).parent)]
    builders = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    for builder in builders:
        _, errors = builder.communicate(timeout=120)
        assert builder.returncode == 0, errors.decode()
    assert not list(tmp_path.glob("*.writing"))


def test_a_process_far_behind_takes_the_newer_file_of_another(tmp_path: Path) -> None:
    truth = Truth(ROWS)
    behind = exact(truth, tmp_path)
    behind.refresh()
    truth.add(random_vectors(2_500, seed=3), [60] * 2_500)
    for _ in range(250):
        truth.log.append(((), ()))
    (tmp_path / "elsewhere").mkdir()
    exact(truth, tmp_path / "elsewhere").refresh()
    only = next((tmp_path / "elsewhere").iterdir())
    only.rename(tmp_path / only.name)
    truth.horizon = truth.version()
    behind.refresh()
    assert truth.snapshots == 2
    assert_same(behind.search(QUERY, 30, None), truth.nearest(QUERY, 30))


FORKING = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from vector_truth import Truth, random_vectors
from wikiholt.vectors import ExactCache, FaissCache, FaissEngine

truth = Truth(3_000)
query = random_vectors(1, seed=99)[0]
if sys.argv[3] == "faiss":
    cache = FaissCache(truth.as_index(), Path(sys.argv[1]), background=False, engine=FaissEngine(scan_below=0))
else:
    cache = ExactCache(truth.as_index(), Path(sys.argv[1]), background=False)
cache.refresh()
cache.search(query, 5, None)
with cache._lock:
    child = os.fork()
    if child == 0:
        truth.add(query[None], [900])
        cache.refresh()
        os._exit(0 if cache.search(query, 1, None).chunk_ids.tolist() == [3_001] else 1)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("kind", ["exact", "faiss"])
def test_a_forked_child_searches_and_refreshes(tmp_path: Path, kind: str) -> None:
    if kind == "faiss":
        pytest.importorskip("faiss")
    command = [sys.executable, "-c", FORKING, str(tmp_path), str(Path(__file__).parent), kind]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0
