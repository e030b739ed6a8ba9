"""The file of vectors changes together with the index, whatever is killed, and damage in it gives no wrong answer."""

import os
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.index.brute_force_index import DIMENSIONS, assert_same, random_vectors
from tests.index.sqlite.vector_index import VectorIndex, flip_byte
from tests.support.small_disk import run_on_small_disk
from tests.support.wait import TIMEOUT_S
from wikiholt.domain.index import FloatArray, VectorRows, compute_page_means
from wikiholt.errors import IndexCorrupt, IndexUnavailable, InvalidQuery, StorageError
from wikiholt.index.sqlite import index_writer, vector_file
from wikiholt.index.sqlite import vectors as index_vectors
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.index.sqlite.vector_file import VectorFileHeader

QUERY = random_vectors(1, seed=99)[0]


class SimulatedKill(BaseException):
    """Stands in for SIGKILL: no handler of Exception runs after it."""


@pytest.fixture
def vectors(tmp_path: Path) -> VectorIndex:
    """An index of twelve pages with one to four chunks each."""
    made = VectorIndex(tmp_path)
    made.write({f"p{n}.md": random_vectors(1 + n % 4, seed=n) for n in range(12)}, revision="r1")
    return made


def assert_right(vectors: VectorIndex, index: SqliteIndex | None = None) -> None:
    """Every search finds what brute force finds, and every page has its vectors and their mean."""
    index = index or vectors.index
    assert_same(index.search_vectors(QUERY, 10, None), vectors.find_expected(QUERY, 10))
    assert_same(index.search_vectors(QUERY, 1000, None), vectors.find_expected(QUERY, 1000))
    some = vectors.get_page_ids(*list(vectors.pages)[::3])
    assert_same(index.search_vectors(QUERY, 5, some), vectors.find_expected(QUERY, 5, some))
    for file, expected in vectors.pages.items():
        ids = vectors.get_page_ids(file)
        rows = index.get_page_vectors(ids.tolist())
        np.testing.assert_array_equal(rows.vectors, expected)
        np.testing.assert_array_equal(index.get_page_means(ids), compute_page_means(rows, ids))
    assert index.check() == []


def replace_often(vectors: VectorIndex, changes: int = 30, seed: int = 0) -> None:
    """Replace twelve pages so often that dead rows are removed several times."""
    for change in range(changes):
        vectors.write({f"p{n}.md": random_vectors(4, seed=seed + change * 12 + n) for n in range(12)})


# ── searching ────────────────────────────────────────────────────────────────────────────────────


def test_answers_are_those_of_brute_force_after_every_kind_of_change(vectors: VectorIndex) -> None:
    assert_right(vectors)
    with closing(vectors.open()) as other:
        for change in range(6):
            pages = {f"p{change}.md": random_vectors(2 + change, seed=50 + change), f"new{change}.md": QUERY[None]}
            vectors.write(pages, deleted=(f"p{11 - change}.md",) if change else ())
            assert_right(vectors)
            assert_right(vectors, other)
    with closing(vectors.open()) as reopened:
        assert_right(vectors, reopened)


def test_an_empty_index_gives_an_empty_answer_and_grows(tmp_path: Path) -> None:
    vectors = VectorIndex(tmp_path)
    assert len(vectors.index.search_vectors(QUERY, 10, None).chunk_ids) == 0
    assert vectors.index.check() == []
    vectors.write({"empty.md": random_vectors(0), "a.md": random_vectors(3)})
    means = vectors.index.get_page_means(vectors.get_page_ids("empty.md"))
    np.testing.assert_array_equal(means, np.zeros((1, DIMENSIONS)))
    assert_same(vectors.index.search_vectors(QUERY, 10, None), vectors.find_expected(QUERY, 10))
    vectors.write({}, deleted=("empty.md", "a.md"))
    assert len(vectors.index.search_vectors(QUERY, 10, None).chunk_ids) == 0
    assert vectors.index.check() == []


def test_equal_scores_are_ordered_by_chunk(tmp_path: Path) -> None:
    vectors = VectorIndex(tmp_path)
    same = np.repeat(random_vectors(1), 60, axis=0)
    vectors.write({"a.md": same, "b.md": same})
    assert vectors.index.search_vectors(QUERY, 100, None).chunk_ids.tolist() == list(range(1, 101))


def test_chunks_are_scored_by_id_and_unknown_ids_are_ignored(vectors: VectorIndex) -> None:
    found = vectors.index.score_chunks(QUERY, np.array([9, 2, 5, 10_000, 0]), 2)
    scored = vectors.find_expected(QUERY, 1000)
    expected = [chunk_id for chunk_id in scored.chunk_ids.tolist() if chunk_id in (2, 5, 9)]
    assert found.chunk_ids.tolist() == expected[:2]


@pytest.mark.parametrize("query", [np.full(DIMENSIONS, np.nan, np.float32), np.ones(DIMENSIONS + 1, np.float32)])
def test_a_query_of_another_size_is_refused(vectors: VectorIndex, query: FloatArray) -> None:
    with pytest.raises(InvalidQuery):
        vectors.index.search_vectors(query, 5, None)


def test_a_search_sees_one_version_while_others_write(vectors: VectorIndex) -> None:
    stop, faults = threading.Event(), list[str]()

    def search() -> None:
        while not stop.is_set():
            with vectors.index.open_search():
                first = vectors.index.search_vectors(QUERY, 1000, None)
                again = vectors.index.search_vectors(QUERY, 1000, None)
                known = vectors.index.get_chunks(first.chunk_ids.tolist())
            if first.chunk_ids.tolist() != again.chunk_ids.tolist() or known.keys() != set(first.chunk_ids.tolist()):
                faults.append("another version")

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    replace_often(vectors, 40)
    stop.set()
    for thread in threads:
        thread.join()
    assert not faults
    assert_right(vectors)


# ── dead rows ────────────────────────────────────────────────────────────────────────────────────


def test_dead_rows_are_removed_and_readers_keep_the_old_file(vectors: VectorIndex) -> None:
    with closing(vectors.open()) as other, other.open_search():
        before = other.search_vectors(QUERY, 1000, None)
        replace_often(vectors)
        assert len(list(vectors.directory.glob("*.vectors"))) > 1
        assert_same(other.search_vectors(QUERY, 1000, None), before)
    with closing(vectors.open()) as reopened:
        assert_right(vectors, reopened)
    size = vectors.vector_file.stat().st_size
    for file in vectors.directory.glob("*.vectors"):
        os.utime(file, (1, 1))
    for seed in range(900, 1200, 10):
        replace_often(vectors, 1, seed)
        for file in vectors.directory.glob("*.vectors"):
            os.utime(file, (1, 1))
    vectors.write({"last.md": random_vectors(1)})
    assert [file.stat().st_size <= 2 * size for file in vectors.directory.glob("*.vectors")] == [True]
    assert_right(vectors)


def test_a_writer_killed_while_it_removes_dead_rows_changes_nothing(
    vectors: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = vector_file.append_rows

    def kill(file: Path, header: VectorFileHeader, start: int, rows: VectorRows) -> None:
        original(file, header, start, rows)
        if file.name.endswith("-2.vectors"):
            raise SimulatedKill

    monkeypatch.setattr(index_vectors, "append_rows", kill)
    with pytest.raises(SimulatedKill):
        replace_often(vectors)
    monkeypatch.undo()
    assert (vectors.directory / "g000001-2.vectors").exists()
    with closing(vectors.open()) as other:
        assert_right(vectors, other)
    vectors.index = vectors.open()
    replace_often(vectors)
    assert_right(vectors)


# ── kills ────────────────────────────────────────────────────────────────────────────────────────


def test_rows_of_a_writer_killed_before_the_commit_are_overwritten(
    vectors: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> None:
        raise SimulatedKill

    monkeypatch.setattr(index_writer, "write_state", kill)
    before = vectors.vector_file.read_bytes()
    with pytest.raises(SimulatedKill):
        vectors.write({"p3.md": random_vectors(300, seed=7)})
    monkeypatch.undo()
    assert vectors.vector_file.stat().st_size > len(before)
    with closing(vectors.open()) as other:
        assert_right(vectors, other)
    vectors.index = vectors.open()
    vectors.write({"p4.md": random_vectors(2, seed=8)})
    assert vectors.vector_file.stat().st_size == len(before)
    assert_right(vectors)


def test_a_full_disk_changes_nothing(vectors: VectorIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fail)
        with pytest.raises(StorageError, match="No space"):
            vectors.write({"p3.md": random_vectors(3, seed=7)})
    assert_right(vectors)
    vectors.write({"p3.md": random_vectors(3, seed=7)})
    assert_right(vectors)


# ── damage ───────────────────────────────────────────────────────────────────────────────────────


def find_row(vectors: VectorIndex, row: FloatArray) -> int:
    """The position of a vector in the file."""
    return vectors.vector_file.read_bytes().index(row.astype("<f4").tobytes())


@pytest.mark.parametrize("is_open", [True, False])
def test_a_row_with_a_flipped_bit_is_noticed_when_it_would_enter_an_answer(vectors: VectorIndex, is_open: bool) -> None:
    flip_byte(vectors.vector_file, find_row(vectors, vectors.pages["p5.md"][0]) + 1)
    with closing(vectors.index if is_open else vectors.open()) as index:
        pages = vectors.get_page_ids("p5.md")
        for ask in (
            lambda: index.search_vectors(QUERY, 1000, None),
            lambda: index.search_vectors(QUERY, 3, pages),
            lambda: index.get_page_vectors(pages.tolist()),
        ):
            with pytest.raises(IndexCorrupt, match="vectors"):
                ask()
        assert index.check()
        others = index.search_vectors(QUERY, 3, vectors.get_page_ids("p6.md"))
        assert len(others.chunk_ids) == 3, "rows that are intact may be read"


def test_a_damaged_mean_is_noticed(vectors: VectorIndex) -> None:
    pages = vectors.get_page_ids("p3.md")
    flip_byte(vectors.vector_file, find_row(vectors, vectors.index.get_page_means(pages)[0]) + 2)
    with closing(vectors.open()) as index:
        with pytest.raises(IndexCorrupt):
            index.get_page_means(pages)
        assert index.check()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_hides_no_other(vectors: VectorIndex, value: float) -> None:
    position = find_row(vectors, vectors.pages["p5.md"][0])
    content = bytearray(vectors.vector_file.read_bytes())
    content[position : position + 4] = np.float32(value).tobytes()
    vectors.vector_file.write_bytes(content)
    with closing(vectors.open()) as index, pytest.raises(IndexCorrupt):
        index.search_vectors(QUERY, 1, None)


def test_only_intact_vectors_are_reused(vectors: VectorIndex) -> None:
    hashes = [f"p7.md {number} 1".encode() for number in range(4)]
    assert vectors.index.find_vectors_by_hash(hashes).keys() == set(hashes)
    flip_byte(vectors.vector_file, find_row(vectors, vectors.pages["p7.md"][1]) + 1)
    found = vectors.open().find_vectors_by_hash([*hashes, b"unknown"])
    assert found.keys() == set(hashes) - {hashes[1]}
    np.testing.assert_array_equal(found[hashes[2]], vectors.pages["p7.md"][2])


@pytest.mark.parametrize("damage", ["lost", "empty", "cut", "of another wiki", "of another generation", "a directory"])
def test_a_file_that_is_not_the_one_of_the_index_is_refused(vectors: VectorIndex, damage: str) -> None:
    file = vectors.vector_file
    content = file.read_bytes()
    if damage == "a directory":
        file.unlink()
        file.mkdir()
    elif damage == "lost":
        file.unlink()
    elif damage.startswith("of"):
        wiki_id = vectors.directory.name if "generation" in damage else "other"
        header = VectorFileHeader(wiki_id, 2 if "generation" in damage else 1, DIMENSIONS)
        file.write_bytes(header.encode() + content[4096:])
    else:
        file.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    with pytest.raises(IndexCorrupt):
        vectors.open()


def test_a_reader_finds_the_file_that_a_deletion_has_just_replaced(tmp_path: Path) -> None:
    """However long ago the file was written for the last time."""
    vectors = VectorIndex(tmp_path)
    vectors.write({f"p{n}.md": random_vectors(10, seed=n) for n in range(30)})
    os.utime(vectors.vector_file, (1, 1))
    with closing(vectors.open()) as reader:
        reader._release_vectors()  # as when other indexes need its open files
        expected = vectors.find_expected(QUERY, 10)
        with reader.open_search():
            reader.get_version()
            vectors.write({}, deleted=tuple(f"p{n}.md" for n in range(20)))
            vectors.write({"new.md": QUERY[None]})
            assert_same(reader.search_vectors(QUERY, 10, None), expected)
    assert_right(vectors)


def test_a_file_truncated_while_it_is_in_use_ends_no_process(vectors: VectorIndex) -> None:
    vectors.index.search_vectors(QUERY, 3, None)
    os.truncate(vectors.vector_file, 5000)
    with pytest.raises(IndexCorrupt):
        vectors.index.search_vectors(QUERY, 3, None)


FULL_DISK_SCRIPT = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.index.sqlite.test_vectors import QUERY, assert_right
from tests.index.sqlite.vector_index import VectorIndex

disk = Path(sys.argv[1])
directory = disk / "wiki"
directory.mkdir()
vectors = VectorIndex(directory)
vectors.write({"a.md": QUERY[None]})
status = os.statvfs(disk)
(disk / "other").write_bytes(bytes(status.f_bavail * status.f_bsize))
assert_right(vectors)
"""


def test_a_full_disk_in_memory_ends_no_process_that_searches(tmp_path: Path) -> None:
    """Such a disk allocates a hole in a file when a map of it is read."""
    assert run_on_small_disk(tmp_path, FULL_DISK_SCRIPT) == ""


def test_a_lack_of_memory_is_no_damage(vectors: VectorIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(vector_file.mmap, "mmap", fail)
    with pytest.raises(StorageError, match="memory"):
        vectors.open()


def test_a_lost_row_is_noticed_when_the_index_is_opened(vectors: VectorIndex) -> None:
    ids = np.array([1], "<i8").tobytes()
    content = vectors.vector_file.read_bytes()
    position = content.index(ids, 4096)
    vectors.vector_file.write_bytes(content[:position] + bytes(8) + content[position + 8 :])
    with pytest.raises(IndexCorrupt, match="vectors"):
        vectors.open()


def test_a_child_that_is_forked_while_a_thread_reads_the_vectors_can_search(vectors: VectorIndex) -> None:
    with vectors.index._vectors._lock:  # of a thread that the child does not have
        child = os.fork()
        if not child:
            signal.alarm(round(TIMEOUT_S))
            with closing(vectors.open()) as index:
                index._vectors = vectors.index._vectors
                found = len(index.search_vectors(QUERY, 5, None).chunk_ids)
            os._exit(0 if found == 5 else 1)
        assert os.waitpid(child, 0)[1] == 0


# ── copies ───────────────────────────────────────────────────────────────────────────────────────


def test_a_copy_has_the_vectors_and_damage_in_it_is_found(vectors: VectorIndex, tmp_path: Path) -> None:
    vectors.write({"p1.md": random_vectors(3, seed=70)}, deleted=("p2.md",))
    copy = tmp_path / "copy.sqlite"
    assert vectors.index.write_backup(copy) == vectors.index.get_state()
    assert [file.name for file in tmp_path.glob("copy*")] == ["copy.sqlite"]
    with closing(SqliteIndex(copy)) as index:
        assert index.check() == []
        assert index.get_state() == vectors.index.get_state()
        with pytest.raises(IndexUnavailable):
            index.search_vectors(QUERY, 1, None)
    with closing(sqlite3.connect(copy, isolation_level=None)) as db:
        db.execute(
            "UPDATE packed_vectors SET vector = CAST(substr(vector, 1, 9) || x'01' || substr(vector, 11) AS BLOB)"
        )
    with closing(SqliteIndex(copy)) as index:
        assert any("vectors" in fault for fault in index.check())
