"""The seed's layout: what other readers of the collections find, and what is left when a wiki goes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from chroma_ground import EMBEDDER, ONE, OTHER, QUERY, Ground, assert_right, figure, helped, until

from wikiholt.model import Change
from wikiholt.testing.entries import entry

READER = """
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


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.close()


def read(path: Path) -> dict[str, Any]:
    """What a plain client of Chroma's finds in a directory."""
    command = [sys.executable, "-W", "ignore", "-c", READER, str(path), json.dumps(QUERY.tolist())]
    told: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return told


def test_a_plain_client_finds_what_the_seed_promised(ground: Ground) -> None:
    index = ground.wiki(ONE)
    when = datetime(2026, 3, 9, 14, 22, tzinfo=UTC)
    full = entry("Trends/Iran Strategy.md", ["river one", "stone two"], EMBEDDER, category="C", tags=("x", "y"))
    index.apply(Change(pages=(full, entry("p3.md", ["changed river stone3"], EMBEDDER, updated=when))))
    with ground.chroma(layout="seed") as engine:
        cache = ground.cache(engine, slug="robot")
        until(lambda: helped(cache), "the first build")
        index.apply(Change(deleted=("p4.md",), pages=(entry("p5.md", ["short now"], EMBEDDER),)))
        assert_right(cache, index)
        assert cache.settle(60)
        assert figure(engine, "rows_removed") == 4
        assert_right(cache, index)
        assert helped(cache)
        cache.close()
    found = read(ground.path)
    assert set(found) == {"otterwiki_pages_robot"}
    rows = found["otterwiki_pages_robot"]
    assert rows["width"] == EMBEDDER.dimensions
    assert rows["near"] == ["p3::chunk_0"]
    by_id = dict(zip(rows["ids"], zip(rows["documents"], rows["metadatas"], strict=True), strict=True))
    assert len(by_id) == index.state().chunks
    assert "p4::chunk_0" not in by_id
    assert "p5::chunk_1" not in by_id
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
def test_a_removed_wiki_leaves_no_byte_and_its_neighbour_as_it_was(ground: Ground, layout: str) -> None:
    ground.wiki(ONE, word="canaryword")
    other = ground.wiki(OTHER, 20, "forest")
    with ground.chroma(layout=layout) as engine:
        gone, stays = ground.cache(engine), ground.cache(engine, OTHER, "other")
        until(lambda: helped(gone) and helped(stays), "both are helped")
        chroma = engine._caretaker.api
        before = chroma.find(stays._mirror._whose.name)
        gone.close()
        ground.open.pop(ONE).close()
        engine.forget(ONE, "one")
        assert [found.id for found in chroma.all()] == [before.id if before else ""]
        assert helped(stays)
        assert_right(stays, other)
        assert figure(engine, "rebuilds") == 2
        stays.close()
    assert len([place for place in ground.path.iterdir() if place.is_dir()]) == 1
    assert not [file for file in ground.path.rglob("*") if file.is_file() and b"canaryword" in file.read_bytes()]


def test_a_wiki_removed_while_chroma_was_away_goes_when_it_is_back(ground: Ground) -> None:
    ground.wiki(ONE, word="canaryword")
    ground.wiki(OTHER, 20, "forest")
    with ground.chroma(layout="seed") as engine:
        caches = ground.cache(engine), ground.cache(engine, OTHER, "other")
        until(lambda: all(map(helped, caches)), "both are helped")
        for cache in caches:
            cache.close()
    ground.open.pop(ONE).close()
    with ground.chroma(layout="seed") as engine:
        cache = ground.cache(engine, OTHER, "other")
        until(lambda: helped(cache), "the one that is left")
        assert [found.name for found in engine._caretaker.api.all()] == ["otterwiki_pages_other"]
        cache.close()
    assert not [file for file in ground.path.rglob("*") if file.is_file() and b"canaryword" in file.read_bytes()]
