"""The cache's files: reopened, damaged, shared, not writable; and its threads."""

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.index.keywords.keyword_fixtures import (
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
from tests.support.tiers import choose
from tests.support.wait import TIMEOUT_S
from wikiholt.domain.index import IndexChange
from wikiholt.domain.search import KeywordQuery
from wikiholt.errors import CacheCannotAnswer
from wikiholt.index.keywords import keyword_cache
from wikiholt.index.keywords.keyword_cache import FileKeywordCache
from wikiholt.index.keywords.keyword_file import CacheBroken, open_draft
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.index.sqlite.store import SqliteStore


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

    def refuse(*_: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(keyword_cache, "write_keyword_file", refuse)
    assert_agree(open_cache(index, tmp_path), index)


@pytest.mark.parametrize("damage", [cut, flip, flip_header, zero, empty, Path.unlink])
def test_a_damaged_file_is_replaced_when_opened(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    index = create_index(tmp_path, make_random_pages(100))
    open_cache(index, tmp_path).close()
    damage(get_only_file(tmp_path))
    assert_agree(open_cache(index, tmp_path), index)
    assert_agree(open_cache(index, tmp_path), index)


def test_a_file_of_another_generation_or_wiki_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    index = create_index(tmp_path, make_random_pages(50))
    open_cache(index, tmp_path).close()
    (tmp_path / "other").mkdir()
    other = create_index(tmp_path / "other", make_random_pages(50), "wikiwikiwiki")
    shutil.copy(get_only_file(tmp_path), tmp_path / "other" / "wikiwikiwiki")
    with caplog.at_level("WARNING"):
        cache = FileKeywordCache(other, tmp_path / "other" / "wikiwikiwiki", background=False)
        cache.refresh()
    assert_agree(cache, other)
    assert "belongs to another wiki" in caplog.text


def test_a_file_of_another_history_gives_the_pages_of_this_one(tmp_path: Path) -> None:
    """A quarantined and rebuilt index has the same generation and may reach the same version."""
    index = create_index(tmp_path, make_random_pages(80))
    open_cache(index, tmp_path).close()
    index.close()
    (file,) = tmp_path.rglob("g000001.keywords")
    content = file.read_bytes()
    SqliteStore(tmp_path).quarantine(WIKI, "broken")
    other = create_index(tmp_path, list(reversed(make_random_pages(80))))
    file.write_bytes(content)
    assert_agree(open_cache(other, tmp_path), other)


def test_a_file_of_a_version_that_a_restored_index_has_not_reached_gives_the_pages_of_the_index(tmp_path: Path) -> None:
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
    cache = FileKeywordCache(index, tmp_path / "file" / "deeper", background=False)
    cache.refresh()
    assert_agree(cache, index)
    index.apply(IndexChange(tuple(make_random_pages(450, seed=3, start=50))))
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


def test_a_draft_of_a_killed_writer_is_used_again_and_that_of_a_live_one_is_not(tmp_path: Path) -> None:
    index = create_index(tmp_path, make_random_pages(10))
    file = tmp_path / WIKI / "g000001.keywords"
    with open_draft(file):
        waiting = open_cache(index, tmp_path)
        assert waiting.version is None
        assert list_files(tmp_path) == ["g000001.keywords.writing"]
    (tmp_path / WIKI / "g000001.keywords.writing").write_bytes(b"half" * 9_000)
    assert_agree(open_cache(index, tmp_path), index)
    assert list_files(tmp_path) == ["g000001.keywords"]


@pytest.mark.parametrize("seed", range(choose(12, 3)))
def test_random_damage_never_changes_an_answer(tmp_path: Path, seed: int) -> None:
    """A damaged file is noticed when it is opened, while it is used, and by a verification."""
    rng = random.Random(seed)
    index = create_index(tmp_path, make_random_pages(60))
    cache = open_cache(index, tmp_path)
    file = get_only_file(tmp_path)
    for _ in range(8):
        data = bytearray(file.read_bytes())
        start = rng.choice((rng.randrange(len(data)), rng.randrange(200)))
        status = file.stat()
        damaged = data[:start] if rng.random() < 0.3 else data[:start] + bytes([data[start] ^ 1]) + data[start + 1 :]
        file.write_bytes(damaged)
        way = rng.choice(("open", "use", "verify"))
        if way == "open":
            cache.close()
            cache = open_cache(index, tmp_path)
        elif way == "use":
            with pytest.raises(CacheBroken):
                cache.search(KeywordQuery(("disk",)), 5, None)
        elif start >= 4096 or len(damaged) < len(data):
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a disk damages a file
            with pytest.raises(CacheBroken):
                cache.verify()
            assert list_files(tmp_path) == []
        cache.refresh()
        assert_agree(cache, index, (5,))
    assert list_files(tmp_path) == [file.name]


def test_postings_are_built_in_the_background(tmp_path: Path) -> None:
    index = create_index(tmp_path, make_random_pages(120))
    cache = open_cache(index, tmp_path, background=True)
    with pytest.raises(CacheCannotAnswer):
        cache.search(KeywordQuery(("disk",)), 5, None)
    assert cache.wait_idle(TIMEOUT_S)
    cache.refresh()
    assert_agree(cache, index)
    cache.close()
    with pytest.raises(CacheCannotAnswer):
        cache.refresh()


def test_a_failed_build_is_logged_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    index = create_index(tmp_path, make_random_pages(20))
    monkeypatch.setattr(keyword_cache, "RETRY_DELAY_S", 0.0)
    with monkeypatch.context() as patched:
        patched.delattr(SqliteIndex, "open_keywords")
        cache = open_cache(index, tmp_path, background=True)
        assert cache.wait_idle(TIMEOUT_S)
    assert cache.version is None
    assert "could not be built" in caplog.text
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
    cache.wait_idle(TIMEOUT_S)
    cache.refresh()
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
from tests.index.keywords.keyword_fixtures import WIKI, assert_agree, make_random_pages, open_cache
from wikiholt.domain.index import IndexChange
from wikiholt.index.sqlite.store import SqliteStore
root = Path(sys.argv[1])
index = SqliteStore(root).open(WIKI)
for turn in range(6):
    if sys.argv[2] == "writer":
        with SqliteStore(root).write_lock(WIKI, 30):
            index.apply(IndexChange(tuple(make_random_pages(120, seed=turn, start=90 * turn))))
    cache = open_cache(index, root)
    cache.refresh()
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
