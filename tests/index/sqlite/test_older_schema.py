"""An index of an older schema is refused with a clear message, and the next sync builds a new one."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.support.indexed_wiki import WIKI_ID, IndexedWiki
from wikiholt.domain.index import IndexChange
from wikiholt.errors import IndexCorrupt
from wikiholt.index.page_table import SQLITE_SCHEMA_VERSION
from wikiholt.index.rows import compute_row_checksum, encode_vectors
from wikiholt.index.sqlite.connections import open_connection
from wikiholt.search.request import SearchRequest


def set_schema(file: Path, version: int) -> None:
    """Give the index another schema version, with a valid checksum."""
    with closing(open_connection(file)) as db:
        header = db.execute("SELECT generation, fingerprint, dimensions, pipeline FROM state").fetchone()
        checksum = compute_row_checksum((version, *header))
        db.execute("UPDATE state SET schema = ?, checksum = ?", (version, checksum))


@pytest.mark.parametrize("has_owner", [True, False])
def test_an_index_of_an_older_schema_is_refused_and_rebuilt_by_a_sync(tmp_path: Path, has_owner: bool) -> None:
    wiki = IndexedWiki(tmp_path, {"home.md": "# Home\n\nSee [[heap]].\n", "heap.md": "# Heap\n\nAir.\n"})
    wiki.sync().close()
    directory = wiki.store.get_directory(WIKI_ID)
    set_schema(directory / "g000001.sqlite", SQLITE_SCHEMA_VERSION - 1)
    versions = f"schema {SQLITE_SCHEMA_VERSION - 1}, this one needs {SQLITE_SCHEMA_VERSION}"
    if not has_owner:
        with closing(open_connection(directory / "g000001.sqlite")) as db:
            db.execute("DROP TABLE owner")
    with pytest.raises(IndexCorrupt, match=rf"older Wikiholt \({versions}\)") as caught:
        wiki.store.open(WIKI_ID)
    assert "wikiholt sync" in caught.value.hint

    reopened = IndexedWiki(tmp_path)
    assert reopened.handle.sync().rebuilt
    assert reopened.handle.search(SearchRequest("air")).hits[0].path == "heap"
    assert [link.path for link in reopened.pages.get_links("heap").linked_from] == ["home"]
    assert [name.rpartition("Z-")[2] for name in wiki.store.list_quarantined(WIKI_ID)] == [
        "the-index-was-written-by-an-older-wikiho"
    ]
    reopened.close()


_SCHEMA_5 = """
CREATE TABLE state (
    one INTEGER PRIMARY KEY, schema INTEGER, generation INTEGER, fingerprint TEXT, dimensions INTEGER, pipeline TEXT,
    version INTEGER, horizon INTEGER, revision TEXT, synced_at REAL, seal INTEGER);
CREATE TABLE owner (one INTEGER PRIMARY KEY, wiki_id TEXT, seal INTEGER);
CREATE TABLE vectors (chunk_id INTEGER PRIMARY KEY, page_id INTEGER, hash BLOB, vector BLOB);
"""


def test_an_index_of_the_schema_with_vectors_in_a_table_keeps_them(tmp_path: Path) -> None:
    pages = {"home.md": "# Home\n\nSee [[heap]].\n", "heap.md": "# Heap\n\nAir.\n"}
    wiki = IndexedWiki(tmp_path, pages).sync()
    file = wiki.store.get_directory(WIKI_ID) / "g000001.sqlite"
    recipe = wiki.store.open(WIKI_ID).recipe
    with closing(open_connection(file)) as db:
        hashes = [digest for (digest,) in db.execute("SELECT hash FROM chunks ORDER BY id")]
    vectors = wiki.store.open(WIKI_ID).find_vectors_by_hash(hashes)
    wiki.close()
    for part in file.parent.glob("g000001*"):
        part.unlink()
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.executescript(_SCHEMA_5)
        header = (5, 1, recipe.fingerprint, recipe.dimensions, recipe.pipeline)
        seal = compute_row_checksum(header)
        db.execute("INSERT INTO state VALUES (1, ?, ?, ?, ?, ?, 3, 0, 'r', 1.0, ?)", (*header, seal))
        db.execute("INSERT INTO owner VALUES (1, ?, ?)", (WIKI_ID, compute_row_checksum((WIKI_ID,))))
        encoded = encode_vectors(np.stack([vectors[digest] for digest in hashes]))
        rows = [(number, number, *each) for number, each in enumerate(zip(hashes, encoded, strict=True), 1)]
        db.executemany("INSERT INTO vectors VALUES (?, ?, ?, ?)", rows)
    reopened = IndexedWiki(tmp_path)
    report = reopened.handle.sync()
    assert (report.rebuilt, report.chunks_embedded, report.chunks_reused) == (True, 0, 2)
    assert reopened.handle.search(SearchRequest("air")).hits[0].path == "heap"
    assert "older" in wiki.store.list_quarantined(WIKI_ID)[0]
    reopened.close()


def test_the_keys_and_paths_of_links_have_checksums(tmp_path: Path) -> None:
    wiki = IndexedWiki(tmp_path, {"home.md": "# Home\n\nSee [[heap]].\n"}).sync()
    index = wiki.store.open(WIKI_ID)
    assert index.check() == []
    for change in (
        "links SET key = 'x'",
        "links SET paths = '[\"x\"]'",
        "pages SET last_key = 'x'",
        "pages SET length = 1",
    ):
        with closing(open_connection(wiki.store.get_directory(WIKI_ID) / "g000001.sqlite")) as db:
            db.execute("BEGIN")
            db.execute(f"UPDATE {change}")
            db.execute("COMMIT")
        assert index.check(), change
        index.apply(IndexChange(deleted=("home.md",)))
        index.close()
        wiki.repository.commit({"home.md": f"# Home\n\n{change} [[heap]].\n"})
        wiki.sync()
        index = wiki.store.open(WIKI_ID)
    index.close()
    wiki.close()
