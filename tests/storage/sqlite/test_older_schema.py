"""An index that an older Wikiholt wrote: searched until a sync has built another, with the vectors it has."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.indexed_wiki import WIKI_ID, IndexedWiki
from wikiholt.domain.index import IndexChange
from wikiholt.domain.search import PageFilter
from wikiholt.errors import IndexMissing
from wikiholt.indexing.pipeline import TEXT_VERSION
from wikiholt.search.request import SearchRequest
from wikiholt.storage.checksums import _PAGE_QUERIES_SCHEMA_1, compute_row_checksum
from wikiholt.storage.sqlite.schema import SCHEMA_VERSION, open_connection
from wikiholt.testing import FakeEmbedder


def downgrade_schema(file: Path) -> None:
    """Take from an index what schema 1 did not have, and seal it as schema 1 did."""
    with closing(open_connection(file)) as db:
        db.execute("BEGIN")
        for index in ("pages_key", "pages_last_key", "links_key", "links_other_key"):
            db.execute(f"DROP INDEX {index}")
        for column in ("key", "last_key", "word_count", "length"):
            db.execute(f"ALTER TABLE pages DROP COLUMN {column}")
        for column in ("wiki", "paths", "key", "other_key"):
            db.execute(f"ALTER TABLE links DROP COLUMN {column}")
        _, generation, fingerprint, dimensions, pipeline = db.execute(
            "SELECT schema, generation, fingerprint, dimensions, pipeline FROM state"
        ).fetchone()
        row = (1, generation, fingerprint, dimensions, pipeline.replace(f"text {TEXT_VERSION}", "text 1"))
        db.execute("UPDATE state SET schema = 1, pipeline = ?, seal = ?", (row[-1], compute_row_checksum(row)))
        for (page_id,) in db.execute("SELECT id FROM pages").fetchall():
            db.execute("UPDATE seals SET crc = ? WHERE page_id = ?", (_write_checksum_v1(db, page_id), page_id))
        db.execute("COMMIT")


def _write_checksum_v1(db: sqlite3.Connection, page_id: int) -> int:
    crc = 0
    for sql in _PAGE_QUERIES_SCHEMA_1:
        for row in db.execute(sql, (page_id,)):
            crc = compute_row_checksum(row, crc)
    return crc


def test_an_older_index_answers_until_a_sync_has_built_another(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    notes = IndexedWiki(
        tmp_path, {"home.md": "# Home\n\nSee [[heap]].\n", "heap.md": "# Heap\n\nAir.\n"}, lambda: embedder
    )
    notes.sync().close()
    downgrade_schema(notes.store.get_directory(WIKI_ID) / "g000001.sqlite")

    older = IndexedWiki(tmp_path, embedder=lambda: embedder)
    answer = older.handle.search(SearchRequest("air"))
    assert (answer.hits[0].path, answer.hits[0].page_words) == ("heap", 0)
    assert older.handle.find_similar("home").hits[0].path == "heap"
    assert [page.path for page in older.pages.list().pages] == ["heap", "home"]
    assert older.pages.get_facets(PageFilter()).pages == 2
    with pytest.raises(IndexMissing) as caught:
        older.pages.get_links("home")
    assert "older" in caught.value.message
    assert "not known" in older.pages.read("home").notes[0]
    assert older.handle.check() == []

    embedder.embedded.clear()
    report = older.handle.sync()
    assert report.rebuilt
    assert report.chunks_embedded == 0, "the vectors are those of the index before"
    assert embedder.embedded == []
    assert [link.path for link in older.pages.get_links("heap").linked_from] == ["home"]
    assert older.handle.search(SearchRequest("air")).hits[0].page_words == 3
    left = sorted(file.name for file in notes.store.get_directory(WIKI_ID).iterdir() if "sqlite" in file.name)
    assert left[0].startswith("g000002"), "nothing of the older one is left, nor set aside"
    older.close()


def test_damage_to_an_older_index_is_noticed_all_the_same(tmp_path: Path) -> None:
    notes = IndexedWiki(tmp_path, {"home.md": "# Home\n\nSee [[heap]].\n"}).sync()
    notes.close()
    file = notes.store.get_directory(WIKI_ID) / "g000001.sqlite"
    downgrade_schema(file)
    with closing(open_connection(file)) as db:
        db.execute("UPDATE links SET target = 'other'")
    index = notes.store.open(WIKI_ID)
    assert any("not as it was written" in fault for fault in index.check())
    index.close()


def test_what_links_mean_is_sealed(tmp_path: Path) -> None:
    notes = IndexedWiki(tmp_path, {"home.md": "# Home\n\nSee [[heap]].\n"}).sync()
    index = notes.store.open(WIKI_ID)
    assert index.check() == []
    for change in (
        "links SET key = 'x'",
        "links SET paths = '[\"x\"]'",
        "pages SET last_key = 'x'",
        "pages SET length = 1",
    ):
        with closing(open_connection(notes.store.get_directory(WIKI_ID) / "g000001.sqlite")) as db:
            db.execute("BEGIN")
            db.execute(f"UPDATE {change}")
            db.execute("COMMIT")
        assert index.check(), change
        index.apply(IndexChange(deleted=("home.md",)))
        index.close()
        notes.repository.commit({"home.md": f"# Home\n\n{change} [[heap]].\n"})
        notes.sync()
        index = notes.store.open(WIKI_ID)
    index.close()
    notes.close()
    assert SCHEMA_VERSION == 3
