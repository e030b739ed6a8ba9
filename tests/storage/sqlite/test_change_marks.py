"""The checksum that the last writer of an index records, and reading it without side effects."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from wikiholt.domain.index import IndexChange, Recipe, VerificationResult
from wikiholt.storage.sqlite import store as store_module
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
    monkeypatch.setattr(store_module, "compute_checksum", lambda _: None)
    assert SqliteStore(tmp_path).compare_checksum(WIKI) is VerificationResult.NONE
