"""An index of an older schema is refused with a clear message, and the next sync builds a new one."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.support.indexed_wiki import WIKI_ID, IndexedWiki
from wikiholt.errors import IndexCorrupt
from wikiholt.index.page_table import SQLITE_SCHEMA_VERSION
from wikiholt.index.rows import compute_row_checksum
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
