"""Copies between the stores are bit-identical in both directions, and damage is found."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from psycopg import sql

from tests.support.postgres_stores import embedded, postgres, shared
from wikiholt.domain.index import IndexChange, Recipe
from wikiholt.domain.page import PageProblem
from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.errors import Busy, IndexCorrupt
from wikiholt.index.postgres.generation_rows import make_vector_rows
from wikiholt.index.postgres.index import PostgresIndex
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.index.rows import make_chunk_rows
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.testing.fakes import make_entry

WIKI = "cccccccccccccccccccc"
EMBEDDER = FakeEmbedder()
RECIPE = Recipe(EMBEDDER.fingerprint, EMBEDDER.dimensions, "test", "models/m", "int8")
TABLES = (
    "pages",
    "page_words",
    "chunks",
    "tags",
    "links",
    "problems",
    "checksums",
    "model",
    "sqlite_sequence",
)


__all__ = ["embedded", "postgres", "shared"]


def create_filled_index(store: IndexStore) -> WikiIndex:
    """A wiki with history: pages that were added, changed and removed, links, problems."""
    index = store.create(WIKI, RECIPE)
    when = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    pages = [make_entry(f"dir/{n}.md", [f"alpha {n}", f"beta {n}"], EMBEDDER, tags=["T", "Ü"]) for n in range(50)]
    index.apply(IndexChange(tuple(pages), problems=(PageProblem("bad.md", "b" * 40, "binary", "why"),), revision="r1"))
    gone = tuple(f"dir/{n}.md" for n in range(0, 50, 5))
    links = ["My Page", "../b.md", "https://x.example", "dir/7"]
    index.apply(IndexChange((make_entry("dir/7.md", ["gamma 'quoted'"], EMBEDDER, category="C", updated=when),), gone))
    index.apply(IndexChange((make_entry("dir/8.md", ["delta", "日本語"], EMBEDDER, links=links),), revision="r2"))
    return index


def read_content(file: Path, tables: Sequence[str] = (*TABLES, "packed_vectors")) -> dict[str, Any]:
    """The complete content of a file of the embedded store, except its generation."""
    with closing(sqlite3.connect(file)) as db:
        found: dict[str, Any] = {
            table: sorted(db.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in tables
        }
        # The checksum of the state covers the time of the sync, and where vectors are in their file.
        found["checksums"] = [row for row in found["checksums"] if row[0]]
        state = "fingerprint, dimensions, pipeline, version, revision, synced_at"
        found["state"] = db.execute(f"SELECT {state} FROM state").fetchone()
        db.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main', 'words', 'instance')")
        found["words"] = sorted(db.execute("SELECT term, doc, col, offset FROM temp.terms"))
    return found


def test_a_copy_to_the_other_store_and_back_is_bit_identical(
    postgres: PostgresStore, embedded: SqliteStore, tmp_path: Path
) -> None:
    with closing(create_filled_index(embedded)) as index:
        before = index.write_backup(tmp_path / "one")
    number = postgres.import_backup(WIKI, tmp_path / "one")
    postgres.publish(WIKI, number)
    with closing(postgres.open(WIKI)) as index:
        state = index.get_state()
        assert (state.version, state.revision, state.synced_at) == (before.version, "r2", before.synced_at)
        assert (state.pages, state.chunks, state.problems, state.recipe) == (40, 80 - 1, 1, RECIPE)
        assert index.check() == []
        index.write_backup(tmp_path / "two")
    assert read_content(tmp_path / "two") == read_content(tmp_path / "one")
    again = SqliteStore(tmp_path / "again")
    again.publish(WIKI, again.import_backup(WIKI, tmp_path / "two"))
    with closing(again.open(WIKI)) as index:
        assert index.check() == []
        assert index.get_state().version == before.version


def test_the_same_changes_make_the_same_index_in_either_store(
    postgres: PostgresStore, embedded: SqliteStore, tmp_path: Path
) -> None:
    for store, name in ((postgres, "ours"), (embedded, "theirs")):
        with closing(create_filled_index(store)) as index:
            index.write_backup(tmp_path / name)
    ours, theirs = read_content(tmp_path / "ours"), read_content(tmp_path / "theirs")
    assert [name for name in TABLES if ours[name] != theirs[name]] == []
    assert ours["words"] == theirs["words"]


def test_a_damaged_copy_is_refused_and_leaves_nothing(postgres: PostgresStore, tmp_path: Path) -> None:
    with closing(create_filled_index(postgres)) as index:
        index.write_backup(tmp_path / "copy")
        with closing(sqlite3.connect(tmp_path / "copy")) as db:
            db.execute("UPDATE chunks SET content = replace(content, 'alpha', 'another') WHERE id = 3")
            db.commit()
        with pytest.raises(IndexCorrupt):
            postgres.import_backup(WIKI, tmp_path / "copy")
        assert index.get_state().pages == 40
    with postgres.get_connections(WIKI).read_connection() as db:
        assert db.execute("SELECT number FROM state WHERE number IS NOT NULL").fetchall() == [(1,)]


def test_a_stopped_copy_leaves_nothing(postgres: PostgresStore, tmp_path: Path) -> None:
    calls: list[int] = []

    def stop() -> bool:
        calls.append(1)
        return len(calls) > 20

    with closing(create_filled_index(postgres)) as index:
        with pytest.raises(Busy):
            index.write_backup(tmp_path / "copy", stop)
        calls.clear()
        with pytest.raises(Busy):
            index.check(stop)
    assert list(tmp_path.iterdir()) == []


DAMAGE = {
    "a chunk's text": "UPDATE {chunks} SET text = overlay(text placing 'X' from 1 for 1) WHERE id = 30",
    "a number of a vector": "UPDATE {chunks} SET vector = (SELECT vector FROM {chunks} WHERE id = 33) WHERE id = 30",
    "a chunk": "DELETE FROM {chunks} WHERE id = 30",
    "a chunk's page": "UPDATE {chunks} SET page_id = 9999 WHERE id = 30",
    "a page": "DELETE FROM {pages} WHERE id = 12",
    "a page's name": "UPDATE {pages} SET name = 'other' WHERE id = 12",
    "a page's words": "UPDATE {pages} SET words = set_byte(words, 9, 255 - get_byte(words, 9)) WHERE id = 12",
    "a page's tags": "UPDATE {pages} SET tag_keys = '{{}}' WHERE id = 12",
    "a page's links": "UPDATE {pages} SET links = '[' WHERE id = 12",
    "a page, twice": "INSERT INTO {pages} SELECT 9998, {columns} FROM {pages} WHERE id = 12",
    "a problem": "UPDATE {state} SET text = replace(text, 'binary', 'other') WHERE name LIKE '#p%'",
    "a problem, unreadable": "UPDATE {state} SET text = '[' WHERE name LIKE '#p%'",
    "all problems": "DELETE FROM {state} WHERE name LIKE '#p%'",
    "the version": "UPDATE {state} SET version = version + 1",
    "ids": "UPDATE {state} SET next_chunk = 3",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found(what: str, postgres: PostgresStore) -> None:
    create_filled_index(postgres).close()
    index = PostgresIndex(postgres.get_connections(WIKI), 1)
    schema = postgres.placements.get(WIKI).schema
    names = {name: sql.Identifier(schema, f"g1_{name}") for name in ("pages", "chunks")}
    with postgres.placements.get_operator_connections(postgres.placements.get(WIKI)).write_transaction() as db:
        row = db.execute("SELECT * FROM " + f"{schema}.g1_pages LIMIT 0").description or []
        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in row[1:])
        db.execute(sql.SQL(DAMAGE[what]).format(columns=columns, state=sql.Identifier(schema, "state"), **names))
    faults = index.check()
    index.close()
    assert faults
    assert all("quoted" not in fault for fault in faults)


def test_the_checksum_covers_every_bit_of_a_vector() -> None:
    entry = make_entry("a.md", ["alpha"], EMBEDDER)
    chunks = make_chunk_rows(1, 1, entry)
    intact = make_vector_rows(chunks, entry.vectors)
    for number in range(EMBEDDER.dimensions):
        damaged = entry.vectors.copy()
        damaged[0, number] = np.nextafter(damaged[0, number], np.float32(9))
        assert make_vector_rows(chunks, damaged) != intact
