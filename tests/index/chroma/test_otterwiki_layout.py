"""The collection layout of otterwiki-semantic-search: what other clients find, and what remains after a removal."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.index.chroma.chroma_fixtures import (
    EMBEDDER,
    OTHER_WIKI_ID,
    QUERY,
    WIKI_ID,
    ChromaFixture,
    assert_same_as_store,
    get_metric,
    is_helped_by_chroma,
)
from tests.support.fork_server import CHROMA_MODULES, run_forked
from tests.support.wait import wait_until
from wikiholt.domain.index import IndexChange, IndexedPageMove
from wikiholt.testing.fakes import make_entry

READER_SCRIPT = """
import json, sys, chromadb
from chromadb.config import Settings
client = chromadb.PersistentClient(sys.argv[1], Settings(anonymized_telemetry=False))
found = {}
for collection in client.list_collections():
    plain = client.get_collection(collection.name, embedding_function=None)
    rows = plain.get(include=["metadatas", "documents", "embeddings"])
    near = plain.query(query_embeddings=[json.loads(sys.argv[2])], n_results=3, where={"page_name": "p3"})
    found[collection.name] = {
        "ids": rows["ids"], "documents": rows["documents"], "metadatas": rows["metadatas"],
        "width": len(rows["embeddings"][0]), "near": near["ids"][0],
    }
print(json.dumps(found))
"""


def read_collections(path: Path) -> dict[str, Any]:
    """What a plain Chroma client finds in a directory."""
    command = [sys.executable, "-c", READER_SCRIPT, str(path), json.dumps(QUERY.tolist())]
    collections: dict[str, Any] = json.loads(run_forked(command, modules=CHROMA_MODULES, text=True, check=True).stdout)
    return collections


def test_a_plain_client_finds_the_documented_layout(fixture: ChromaFixture) -> None:
    index = fixture.create_index(WIKI_ID)
    when = datetime(2026, 3, 9, 14, 22, tzinfo=UTC)
    full = make_entry("Trends/Iran Strategy.md", ["river one", "stone two"], EMBEDDER, category="C", tags=("x", "y"))
    index.apply(IndexChange(pages=(full, make_entry("p3.md", ["changed river stone3"], EMBEDDER, updated=when))))
    with fixture.open_engine(layout="seed") as engine:
        cache = fixture.open_cache(engine, slug="robot")
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        index.apply(IndexChange(deleted=("p4.md",), pages=(make_entry("p5.md", ["short now"], EMBEDDER),)))
        index.apply(
            IndexChange(moved=(IndexedPageMove("p6.md", "moved/p6.md", "moved/p6", "p6", (), None, "p6", None),))
        )
        assert_same_as_store(cache, index)
        assert cache.wait_idle(60)
        assert get_metric(engine, "rows_removed") == 5
        assert_same_as_store(cache, index)
        assert is_helped_by_chroma(cache)
        cache.close()
    found = read_collections(fixture.path)
    assert set(found) == {"otterwiki_pages_robot"}
    rows = found["otterwiki_pages_robot"]
    assert rows["width"] == EMBEDDER.dimensions
    assert rows["near"] == ["p3::chunk_0"]
    by_id = dict(zip(rows["ids"], zip(rows["documents"], rows["metadatas"], strict=True), strict=True))
    assert len(by_id) == index.get_state().chunks
    assert "p4::chunk_0" not in by_id
    assert "p5::chunk_1" not in by_id
    assert "p6::chunk_0" not in by_id
    assert by_id["moved/p6::chunk_0"][1]["page_path"] == "moved/p6"
    text, marks = by_id["Trends/Iran Strategy::chunk_1"]
    assert text == "stone two"
    assert {name: marks[name] for name in marks if name != "wikiholt_chunk"} == {
        "page_path": "Trends/Iran Strategy",
        "page_name": "Iran Strategy",
        "category": "C",
        "tags": "x, y",
        "last_updated": "",
        "chunk_index": 1,
    }
    assert by_id["p3::chunk_0"][1]["last_updated"] == when.isoformat()


@pytest.mark.parametrize("layout", ["id", "seed"])
def test_a_removed_wiki_leaves_no_byte_and_the_other_wiki_unchanged(fixture: ChromaFixture, layout: str) -> None:
    fixture.create_index(WIKI_ID, word="canaryword")
    other = fixture.create_index(OTHER_WIKI_ID, 20, "forest")
    with fixture.open_engine(layout=layout) as engine:
        gone, stays = fixture.open_cache(engine), fixture.open_cache(engine, OTHER_WIKI_ID, "other")
        wait_until(lambda: is_helped_by_chroma(gone) and is_helped_by_chroma(stays), "both use Chroma")
        chroma = engine.client
        before = chroma.find_collection(stays._name)
        gone.close()
        fixture.open_indexes.pop(WIKI_ID).close()
        engine.delete_wiki(WIKI_ID, "one")
        assert [found.id for found in chroma.iter_collections()] == [before.id if before else ""]
        assert is_helped_by_chroma(stays)
        assert_same_as_store(stays, other)
        assert get_metric(engine, "rebuilds") == 2
        stays.close()
    assert len([place for place in fixture.path.iterdir() if place.is_dir()]) == 1
    assert not [file for file in fixture.path.rglob("*") if file.is_file() and b"canaryword" in file.read_bytes()]


def test_a_wiki_removed_while_chroma_was_unavailable_is_deleted_later(fixture: ChromaFixture) -> None:
    fixture.create_index(WIKI_ID, word="canaryword")
    fixture.create_index(OTHER_WIKI_ID, 20, "forest")
    with fixture.open_engine(layout="seed") as engine:
        caches = fixture.open_cache(engine), fixture.open_cache(engine, OTHER_WIKI_ID, "other")
        wait_until(lambda: all(map(is_helped_by_chroma, caches)), "both use Chroma")
        for cache in caches:
            cache.close()
    fixture.open_indexes.pop(WIKI_ID).close()
    with fixture.open_engine(layout="seed") as engine:
        cache = fixture.open_cache(engine, OTHER_WIKI_ID, "other")
        wait_until(lambda: is_helped_by_chroma(cache), "the remaining wiki")
        assert [found.name for found in engine.client.iter_collections()] == ["otterwiki_pages_other"]
        cache.close()
    assert not [file for file in fixture.path.rglob("*") if file.is_file() and b"canaryword" in file.read_bytes()]
