"""The checksum that the last writer of an index records, and reading it without side effects."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tiers import limit_examples
from wikiholt.domain.index import IndexChange, Recipe, VerificationResult
from wikiholt.storage.sqlite import change_marks
from wikiholt.storage.sqlite import store as store_module
from wikiholt.storage.sqlite.change_marks import Checksums, compute_checksums, update_checksums
from wikiholt.storage.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.testing.fakes import make_entry

WIKI = "aaaaaaaaaaaaaaaaaaaa"
# The last connection that closes a database removes its log. Locks show whether it is the last one.
OTHER_PROCESS = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('SELECT * FROM state'); db.close()"


def write_index(store: SqliteStore) -> Path:
    embedder = FakeEmbedder()
    with store.write_lock(WIKI, 1.0):
        index = store.create(WIKI, Recipe(embedder.fingerprint, embedder.dimensions, "p"))
        index.apply(IndexChange((make_entry("a.md", ["alpha one"], embedder),)))
        index.close()
    return store.get_directory(WIKI) / "g000001.sqlite"


def test_comparing_the_checksum_keeps_the_locks_of_open_connections(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    file = write_index(store)
    log = file.with_name(file.name + "-wal")
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE extra (one INTEGER)")
        db.commit()
        assert log.stat().st_size
        store.compare_checksum(WIKI)
        subprocess.run([sys.executable, "-c", OTHER_PROCESS, str(file)], check=True)
        assert log.stat().st_size, "another process removed the log under an open connection"
        assert db.execute("SELECT count(*) FROM extra").fetchone() == (0,)


def test_an_index_as_its_writer_left_it_has_the_recorded_checksum(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    write_index(store)
    assert store.compare_checksum(WIKI) is VerificationResult.COMPARED


def test_a_checksum_that_cannot_be_read_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path)
    write_index(store)
    monkeypatch.setattr(store_module, "compute_checksums", lambda _: None)
    assert SqliteStore(tmp_path).compare_checksum(WIKI) is VerificationResult.NONE


# Checksums that follow the log


def change_index(store: SqliteStore, name: str, embedder: FakeEmbedder) -> None:
    """Write one page in an index that another connection keeps open, as in a service."""
    with store.write_lock(WIKI, 1.0), closing(store.open(WIKI)) as index:
        index.apply(IndexChange((make_entry(name, [f"words of {name}"], embedder),)))


@pytest.fixture
def open_index(tmp_path: Path) -> Iterator[SqliteStore]:
    """An index that a reader has open, so that its log is not removed."""
    store = SqliteStore(tmp_path)
    write_index(store)
    with closing(store.open(WIKI)) as reader:
        reader.get_state()
        yield store


def test_a_small_change_does_not_read_the_complete_index(
    open_index: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []

    def count_calls(file: Path) -> Checksums | None:
        calls.append(file)
        return compute_checksums(file)

    monkeypatch.setattr(store_module, "compute_checksums", count_calls)
    for name in ("b.md", "c.md", "b.md"):
        change_index(open_index, name, FakeEmbedder())
        with open_index.write_lock(WIKI, 1.0):
            open_index.verify(WIKI)
    assert calls == []
    assert SqliteStore(open_index.get_directory(WIKI).parent).compare_checksum(WIKI) is VerificationResult.COMPARED
    assert len(calls) == 1


def test_the_complete_index_is_read_again_after_a_while(
    open_index: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_COMPARISON_TTL_S", 0.0)
    monkeypatch.setattr(store_module, "compute_checksums", lambda _: change_marks.UNREADABLE)
    monkeypatch.setattr(SqliteStore, "_require_intact", lambda *_: pytest.fail("checked"))
    with pytest.raises(pytest.fail.Exception, match="checked"):
        open_index.verify(WIKI)


def test_a_log_that_the_last_reader_moves_into_the_file_is_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path)
    file = write_index(store)
    with closing(store.open(WIKI)) as reader:
        reader.get_state()
        with closing(sqlite3.connect(file, isolation_level=None)) as busy:
            busy.execute("BEGIN")
            busy.execute("SELECT * FROM state").fetchall()
            change_index(store, "b.md", FakeEmbedder())  # the log cannot be emptied while it is read
    assert not store.is_unmodified(WIKI), "closing has moved the log"
    monkeypatch.setattr(store_module, "_MAX_FULL_READ_BYTES", 0)
    monkeypatch.setattr(SqliteStore, "_require_intact", lambda *_: pytest.fail("checked"))
    for opened in (store, SqliteStore(tmp_path)):
        assert opened.compare_checksum(WIKI) is VerificationResult.COMPARED


def test_a_write_does_not_hide_damage_in_other_blocks(open_index: SqliteStore) -> None:
    file = open_index.get_directory(WIKI) / "g000001.sqlite"
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE filler (x)")
        db.execute("INSERT INTO filler VALUES (randomblob(50000))")
        db.commit()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with open_index.write_lock(WIKI, 1.0):
        open_index.verify(WIKI)
    before = file.stat()
    with file.open("r+b") as data:
        data.seek(-20_000, os.SEEK_END)
        byte = data.read(1)[0]
        data.seek(-1, os.SEEK_CUR)
        data.write(bytes([byte ^ 4]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    change_index(open_index, "b.md", FakeEmbedder())
    mark = change_marks.read_mark(open_index.get_directory(WIKI) / "write.lock")
    assert mark.checksums is not None
    read = compute_checksums(file)
    assert read is not None
    assert (read != mark.checksums).sum() == 1


STATEMENTS = st.sampled_from(
    [
        "INSERT INTO t SELECT randomblob(3000) FROM many",
        "INSERT INTO t VALUES (randomblob(40000))",
        "INSERT INTO t SELECT randomblob(200000) FROM many",
        "UPDATE t SET x = randomblob(900) WHERE rowid % 3 = 0",
        "DELETE FROM t WHERE rowid % 2 = 0",
        "DELETE FROM t",
        "CREATE TABLE IF NOT EXISTS u (y)",
        "DROP TABLE IF EXISTS u",
        "VACUUM",
    ]
)


@pytest.mark.parametrize("block_bytes", [512, 4096, 65_536])
@settings(max_examples=limit_examples(40), deadline=None)
@given(writes=st.lists(st.lists(STATEMENTS, min_size=1, max_size=4), min_size=1, max_size=4), rolled_back=STATEMENTS)
def test_checksums_that_follow_the_log_are_those_of_the_file(
    block_bytes: int, writes: list[list[str]], rolled_back: str
) -> None:
    with TemporaryDirectory() as directory, closing(sqlite3.connect(f"{directory}/x.sqlite")) as db:
        file, log = Path(directory, "x.sqlite"), Path(directory, "x.sqlite-wal")
        db.isolation_level = None
        for statement in (f"page_size = {block_bytes}", "journal_mode = WAL", "wal_autocheckpoint = 0"):
            db.execute(f"PRAGMA {statement}")
        db.execute("CREATE TABLE t (x)")
        db.execute("CREATE TABLE many AS SELECT value FROM json_each('[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]')")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        known = compute_checksums(file)
        for statements in writes:
            for statement in statements:
                db.execute(statement)
            if rolled_back != "VACUUM":
                db.execute("BEGIN")
                db.execute(rolled_back)
                db.execute("ROLLBACK")
            assert known is not None
            known = update_checksums(known, log) if log.stat().st_size else known
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            complete = compute_checksums(file)
            assert known is not None
            assert complete is not None
            assert known.tolist() == complete.tolist()


def test_a_log_that_is_too_large_gives_no_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(tmp_path / "x.sqlite", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (x)")
        known, log = np.zeros(1, np.uint64), tmp_path / "x.sqlite-wal"
        assert update_checksums(known, log) is not None
        monkeypatch.setattr(change_marks, "COMPARED_BYTES", log.stat().st_size - 1)
        assert update_checksums(known, log) is None


@pytest.mark.parametrize("damage", [b"", b"no log at all, but long enough for its header", bytes(32)])
def test_a_log_that_cannot_be_read_gives_no_checksums(tmp_path: Path, damage: bytes) -> None:
    log = tmp_path / "x.sqlite-wal"
    assert update_checksums(np.zeros(1, np.uint64), log) is None
    log.write_bytes(damage)
    assert update_checksums(np.zeros(1, np.uint64), log) is None


def test_every_bit_of_a_block_counts() -> None:
    block = np.random.default_rng(1).integers(0, 256, 512, np.uint8)
    flipped = np.tile(block, (512 * 8, 1))
    for bit in range(512 * 8):
        flipped[bit, bit // 8] ^= 1 << bit % 8
    sums = change_marks.sum_blocks(flipped)
    assert len({*sums.tolist(), *change_marks.sum_blocks(block[None]).tolist()}) == 512 * 8 + 1


@pytest.mark.parametrize("position", [0, 30, 70, -1])
def test_a_damaged_mark_counts_as_missing(open_index: SqliteStore, position: int) -> None:
    lock = open_index.get_directory(WIKI) / "write.lock"
    data = bytearray(lock.read_bytes())
    data[position] ^= 1
    lock.write_bytes(data)
    assert change_marks.read_mark(lock).stamp == ""
