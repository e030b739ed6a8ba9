"""The cache's files: reopened, damaged, shared, not writable; and its threads."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.caches.keywords.keyword_fixtures import (
    WIKI,
    assert_agree,
    create_index,
    list_files,
    make_page,
    make_random_pages,
    open_cache,
)
from tests.support.fork_server import ForkedPopen
from tests.support.paths import PYTHON_PATH
from tests.support.wait import TIMEOUT_S
from wikiholt.caches.cache_file import CacheBroken, CacheDirectory, CacheNotReady
from wikiholt.caches.keywords.keyword_cache import FileKeywordCache
from wikiholt.domain.index import IndexChange
from wikiholt.domain.search import KeywordQuery
from wikiholt.storage.sqlite.index import SqliteIndex
from wikiholt.storage.sqlite.store import SqliteStore


def get_only_file(root: Path) -> Path:
    (name,) = list_files(root)
    return root / WIKI / name


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) - 9] ^= 0xFF
    path.write_bytes(data)


def flip_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF
    path.write_bytes(data)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def test_a_file_is_opened_again_without_building(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = create_index(tmp_path, make_random_pages(100))
    open_cache(index, tmp_path).close()
    index.apply(IndexChange(tuple(make_random_pages(10, seed=3, start=95))))

    def refuse(_: SqliteIndex) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(SqliteIndex, "open_keyword_rows", refuse)
    assert_agree(open_cache(index, tmp_path), index)


@pytest.mark.parametrize("damage", [cut, flip, flip_header, zero, empty, Path.unlink])
def test_a_damaged_file_is_replaced_when_opened(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    index = create_index(tmp_path, make_random_pages(100))
    open_cache(index, tmp_path).close()
    damage(get_only_file(tmp_path))
    assert_agree(open_cache(index, tmp_path), index)
    assert_agree(open_cache(index, tmp_path), index)


@pytest.mark.parametrize("damage", [cut, flip, zero])
def test_a_file_damaged_in_use_is_not_read_and_soon_replaced(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    index = create_index(tmp_path, make_random_pages(100))
    cache = open_cache(index, tmp_path)
    damage(get_only_file(tmp_path))
    with pytest.raises(CacheBroken):
        cache.search(KeywordQuery(("disk",)), 5, None)
    cache.refresh()
    assert_agree(cache, index)


def test_a_file_with_a_wrong_name_is_not_used(tmp_path: Path) -> None:
    index = create_index(tmp_path, make_random_pages(50))
    open_cache(index, tmp_path).close()
    index.apply(IndexChange((make_page("p1", body="disk disk"),)))
    get_only_file(tmp_path).rename(tmp_path / WIKI / f"words-g000001-v{index.get_version()}.postings")
    assert_agree(open_cache(index, tmp_path), index)


def test_a_file_of_another_history_is_not_used(tmp_path: Path) -> None:
    """A quarantined and rebuilt index has the same generation and may reach the same version."""
    index = create_index(tmp_path, make_random_pages(80))
    open_cache(index, tmp_path).close()
    index.close()
    SqliteStore(tmp_path).quarantine(WIKI, "broken")
    other = create_index(tmp_path, list(reversed(make_random_pages(80))))
    assert list_files(tmp_path) == [f"words-g000001-v{other.get_version()}.postings"]
    assert_agree(open_cache(other, tmp_path), other)


def test_a_file_with_a_version_the_index_never_reached_is_not_used(tmp_path: Path) -> None:
    index = create_index(tmp_path, make_random_pages(30))
    index.write_backup(tmp_path / "copy")
    index.apply(IndexChange(deleted=("p1",)))
    open_cache(index, tmp_path).close()
    index.close()
    for file in (tmp_path / WIKI).glob("g000001.sqlite*"):
        file.unlink()
    shutil.copy(tmp_path / "copy", tmp_path / WIKI / "g000001.sqlite")
    restored = SqliteStore(tmp_path).open(WIKI)
    assert_agree(open_cache(restored, tmp_path), restored)


def test_a_read_only_directory_is_not_needed(tmp_path: Path) -> None:
    index = create_index(tmp_path, make_random_pages(100))
    (tmp_path / "file").write_text("in the way")
    cache = FileKeywordCache(index, tmp_path / "file" / "deeper", with_positions=True, background=False)
    cache.refresh()
    assert_agree(cache, index)
    index.apply(IndexChange(tuple(make_random_pages(250, seed=3, start=50))))
    cache.refresh()
    assert_agree(cache, index)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = create_index(tmp_path, make_random_pages(30))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    cache = open_cache(index, tmp_path)
    assert_agree(cache, index)
    assert list_files(tmp_path) == []


def test_files_of_a_killed_writer_are_removed_and_those_of_a_live_one_are_not(tmp_path: Path) -> None:
    index = create_index(tmp_path, make_random_pages(10))
    folder = tmp_path / WIKI
    (folder / "words-g000001-v1.postings.0123.writing").write_bytes(b"half")
    (folder / "vectors-g000001-v1.exact").write_bytes(b"not ours")
    live = CacheDirectory(folder, "words")
    cache = FileKeywordCache(index, folder, with_positions=True, background=False)
    from wikiholt.caches.keywords.keyword_cache import make_file_name

    with live.open_for_writing(make_file_name(1, 0)):
        cache.refresh()
        assert len(list(folder.glob("*.writing"))) == 1
    assert_agree(cache, index)
    assert (folder / "vectors-g000001-v1.exact").exists()


def test_files_of_a_killed_writer_are_removed_if_another_has_written_the_cache(tmp_path: Path) -> None:
    index = create_index(tmp_path, make_random_pages(10))
    open_cache(index, tmp_path)
    (written,) = list_files(tmp_path)
    (tmp_path / WIKI / f"{written}.0123.writing").write_bytes(b"half")
    open_cache(index, tmp_path)
    assert not list((tmp_path / WIKI).glob("*.writing"))
    assert list_files(tmp_path) == [written]


def test_a_large_index_is_built_in_the_background(tmp_path: Path) -> None:
    index = create_index(tmp_path, make_random_pages(120))
    cache = open_cache(index, tmp_path, background=True, inline_build_pages=50)
    if cache.version is None:
        with pytest.raises(CacheNotReady):
            cache.search(KeywordQuery(("disk",)), 5, None)
    assert cache.wait_idle(TIMEOUT_S)
    cache.refresh()
    assert_agree(cache, index)
    index.apply(IndexChange(tuple(make_random_pages(80, seed=4))))
    cache.refresh()
    assert cache.version is None
    assert cache.wait_idle(TIMEOUT_S)
    cache.refresh()
    assert_agree(cache, index)
    cache.close()
    with pytest.raises(CacheNotReady):
        cache.refresh()


def test_a_failed_build_is_logged_and_retried_at_the_next_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    index = create_index(tmp_path, make_random_pages(20))
    with monkeypatch.context() as patched:
        patched.delattr(SqliteIndex, "open_keyword_rows")
        cache = open_cache(index, tmp_path, background=True, inline_build_pages=5)
        assert cache.wait_idle(TIMEOUT_S)
        cache.refresh()
    assert cache.version is None
    assert "could not be built" in caplog.text
    index.apply(IndexChange(deleted=("p1",)))
    cache.refresh()
    assert cache.wait_idle(TIMEOUT_S)
    cache.refresh()
    assert_agree(cache, index)


@pytest.mark.slow
def test_threads_search_one_version_while_another_refreshes(tmp_path: Path) -> None:
    index = create_index(
        tmp_path, [make_page(f"p{n}", body="token") for n in range(40)] + [make_page("q", body="x")] * 1
    )
    cache = open_cache(index, tmp_path, background=True)
    stop, faults = threading.Event(), list[object]()

    def search() -> None:
        while not stop.is_set():
            hits = cache.search(KeywordQuery(("token",)), 100, None)
            # Every page contains the word once, so within one version all scores are equal and all pages are found.
            if len(hits) != 40 or len({hit.score for hit in hits}) != 1:
                faults.append(hits)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(12):
        index.apply(IndexChange(tuple(make_page(f"p{n}", body="token" + " more" * turn) for n in range(40))))
        cache.refresh()
    stop.set()
    for thread in threads:
        thread.join()
    assert faults == []
    cache.wait_idle(TIMEOUT_S)
    cache.refresh()
    assert_agree(cache, index)
    cache.close()


OTHER_PROCESS_SCRIPT = """
import sys
from pathlib import Path
from tests.caches.keywords.keyword_fixtures import WIKI, assert_agree, make_random_pages, open_cache
from wikiholt.domain.index import IndexChange
from wikiholt.storage.sqlite.store import SqliteStore
root = Path(sys.argv[1])
index = SqliteStore(root).open(WIKI)
for turn in range(6):
    if sys.argv[2] == "writer":
        with SqliteStore(root).write_lock(WIKI, 30):
            index.apply(IndexChange(tuple(make_random_pages(120, seed=turn, start=60 * turn))))
    cache = open_cache(index, root)
    cache.refresh()
    assert cache.version is not None
    cache.close()
if sys.argv[2] == "writer":
    assert_agree(open_cache(index, root), index)
"""


@pytest.mark.process
def test_several_processes_share_a_directory(tmp_path: Path) -> None:
    index = create_index(tmp_path, make_random_pages(200))
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH}
    roles = ["writer", "reader", "reader"]
    running = [
        ForkedPopen(
            [sys.executable, "-c", OTHER_PROCESS_SCRIPT, str(tmp_path), role], env=environment, stderr=subprocess.PIPE
        )
        for role in roles
    ]
    for process in running:
        _, said = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, said.decode()
    assert_agree(open_cache(index, tmp_path), index)
    assert not list((tmp_path / WIKI).glob("*.writing"))
