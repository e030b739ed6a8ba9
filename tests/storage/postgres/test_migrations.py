"""Wikis are migrated to a new layout one by one, by any node, while nodes with the old program continue."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from psycopg import sql

from tests.support.fork_server import run_forked
from tests.support.paths import ROOT
from tests.support.postgres_server import PostgresServer
from tests.support.postgres_stores import EMBEDDER, RECIPE, WIKI_ID, create_filled_index, open_node_store
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.index import IndexChange
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.errors import IndexCorrupt, IndexMissing, IndexTooNew
from wikiholt.storage.postgres import maintenance
from wikiholt.storage.postgres import schema as postgres_schema
from wikiholt.storage.postgres.schema import SchemaLayout, SchemaMigration
from wikiholt.storage.postgres.store import PostgresStore
from wikiholt.testing.fakes import make_entry
from wikiholt.text.properties import parse_condition

WIKI_IDS = [f"wiki{number:08d}" for number in range(50)]

LAYOUT = postgres_schema.SCHEMA_LAYOUT

# The newer program: its layout has one more column in two tables. Argument 4 is the wiki at which it is killed.
_NEWER_SCRIPT = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.postgres_stores import open_node_store
from psycopg import sql
from wikiholt.storage.postgres import maintenance, schema as postgres_schema
from wikiholt.storage.postgres.schema import SchemaLayout, SchemaMigration

def statements(schema, numbers, role):
    yield sql.SQL("ALTER TABLE {}.state ADD COLUMN mood text NOT NULL DEFAULT 'good'").format(sql.Identifier(schema))
    if sys.argv[4] in schema:
        os.kill(os.getpid(), signal.SIGKILL)
    for number in numbers:
        table = sql.Identifier(schema, f"g{number}_pages")
        yield sql.SQL("ALTER TABLE {} ADD COLUMN mood text").format(table)

maintenance._LOCK_TRIES = 1000  # the old node may be slow
newer = postgres_schema.SCHEMA_LAYOUT + 1
postgres_schema.SCHEMA_LAYOUT = newer
postgres_schema.MIGRATIONS += (SchemaMigration(SchemaLayout(newer, 1), statements),)
with open_node_store(sys.argv[2], Path(sys.argv[3])) as store:
    done = [0]
    failed = maintenance.upgrade_all(store.placements, done.append)
    print(done[-1], len(failed))
"""


def upgrade_all(store: PostgresStore) -> tuple[int, list[str]]:
    """The number of migrated wikis, and those that failed."""
    done = [0]
    failed = maintenance.upgrade_all(store.placements, done.append)
    return done[-1], [wiki_id for wiki_id, _ in failed]


@pytest.fixture
def store(database: str, tmp_path: Path) -> Iterator[PostgresStore]:
    with open_node_store(database, tmp_path / "node") as made:
        yield made
        for wiki_id in made.list_wiki_ids():
            made.delete(wiki_id)


def start_newer_version(database: str, place: Path, killed_at: str = "nowhere") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _NEWER_SCRIPT, ROOT, database, place, killed_at]
    return run_forked(command, check=False, text=True, timeout=TIMEOUT_S)


def count_upgraded(store: PostgresStore) -> int:
    """How many wikis have the new column in both tables."""
    order = (
        "SELECT count(*) FROM (SELECT nspname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid"
        " JOIN pg_namespace n ON n.oid = relnamespace WHERE attname = 'mood' AND nspname LIKE 'w\\_%'"
        " GROUP BY nspname HAVING count(*) = 2) AS whole"
    )
    with store.placements.catalog.read_connection() as connection:
        return connection.execute(order).fetchall()[0][0]


def count_outdated(store: PostgresStore) -> int:
    with store.placements.catalog.read_connection() as connection:
        return connection.execute("SELECT count(*) FROM placements WHERE layout <= %s", (LAYOUT,)).fetchall()[0][0]


class OldNode:
    """A node with the old program that reads and writes wikis all the time."""

    def __init__(self, store: PostgresStore) -> None:
        self.iterations, self.errors, self._stopped = 0, [], Event()
        self._indexes = [store.open(wiki_id) for wiki_id in WIKI_IDS]
        self._thread = Thread(target=self._work)

    def __enter__(self) -> "OldNode":
        self._thread.start()
        wait_until(lambda: self.iterations > 50)
        return self

    def __exit__(self, *_: object) -> None:
        turns = self.iterations
        wait_until(lambda: self.iterations > turns + 100 or self.errors)
        self._stopped.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stopped.is_set():
            index = self._indexes[self.iterations % len(WIKI_IDS)]
            try:
                index.apply(
                    IndexChange(pages=(make_entry("a.md", [f"needle {self.iterations}"], EMBEDDER),), revision="r2")
                )
                if len(index.search_keywords(KeywordQuery(terms=("needle",)), 5, PageFilter())) != 2:
                    self.errors.append("not found")
            except Exception as error:  # noqa: BLE001
                self.errors.append(error)
            self.iterations += 1


def test_two_nodes_migrate_fifty_wikis_one_is_killed_and_an_old_node_works(
    store: PostgresStore, database: str, tmp_path: Path
) -> None:
    for wiki_id in WIKI_IDS:
        create_filled_index(store, wiki_id, 1).close()
    with OldNode(store) as old:
        ended = start_newer_version(database, tmp_path / "killed", WIKI_IDS[20])
        assert ended.returncode == -signal.SIGKILL
        assert count_upgraded(store) == 20, "each wiki is migrated completely or not at all"
        assert count_outdated(store) == 30
        ended = start_newer_version(database, tmp_path / "second")
        assert (ended.stdout, ended.stderr) == ("30 0\n", "")
    assert old.errors == []
    assert count_upgraded(store) == 50
    assert count_outdated(store) == 0
    for wiki_id in WIKI_IDS:
        index = store.open(wiki_id)
        assert index.check() == []
        index.close()


@pytest.fixture
def newer_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a layout that old programs can use, and one that they cannot, to this process."""

    def second(schema: str, numbers: object, role: str) -> Iterator[sql.Composed]:
        yield sql.SQL("ALTER TABLE {}.state ADD COLUMN two text").format(sql.Identifier(schema))

    def third(schema: str, numbers: object, role: str) -> Iterator[sql.Composed]:
        yield sql.SQL("ALTER TABLE {}.state ADD COLUMN three text").format(sql.Identifier(schema))

    monkeypatch.setattr(postgres_schema, "SCHEMA_LAYOUT", LAYOUT + 2)
    added = (
        SchemaMigration(SchemaLayout(LAYOUT + 1, 1), second),
        SchemaMigration(SchemaLayout(LAYOUT + 2, LAYOUT + 2), third),
    )
    monkeypatch.setattr(postgres_schema, "MIGRATIONS", postgres_schema.MIGRATIONS + added)


def test_a_wiki_is_migrated_when_a_newer_program_opens_it(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    create_filled_index(store, WIKI_ID).close()
    with monkeypatch.context():
        request.getfixturevalue("newer_here")
        index = store.open(WIKI_ID)
        assert index.get_state().pages == 3
        assert store.placements.get(WIKI_ID).layout == LAYOUT + 2
        with store.get_connections(WIKI_ID).read_connection() as connection:
            assert connection.execute("SELECT DISTINCT two, three FROM state").fetchall() == [(None, None)]
        assert upgrade_all(store) == (0, [])
        create_filled_index(store, "bbbbbbbb", 1).close()


def test_a_layout_that_is_too_new_is_refused_and_unchanged(store: PostgresStore, database: str) -> None:
    index = create_filled_index(store, WIKI_ID)
    with store.get_connections(WIKI_ID).write_transaction() as connection:
        connection.execute("UPDATE state SET text = '9 9' WHERE name = 'layout'")
    for ask in (lambda: store.open(WIKI_ID), lambda: store.create_generation(WIKI_ID, index.recipe)):
        with pytest.raises(IndexTooNew) as caught:
            ask()
        assert "upgrade" in caught.value.hint
    with store.get_connections(WIKI_ID).write_transaction() as connection:
        connection.execute("UPDATE state SET text = '9 1' WHERE name = 'layout'")
    assert store.open(WIKI_ID).get_state().pages == 3, "a compatible newer layout is used"


def test_one_wiki_that_cannot_be_migrated_blocks_no_other(
    store: PostgresStore, pg: PostgresServer, newer_here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(postgres_schema, "SCHEMA_LAYOUT", LAYOUT)
        patch.setattr(postgres_schema, "MIGRATIONS", postgres_schema.MIGRATIONS[:-2])
        for number in range(3):
            store.placements.provision(f"aaaaaaaa{number}")
    broken = store.placements.get("aaaaaaaa1")
    with store.placements.catalog.read_connection() as connection:
        connection.execute(f"DROP TABLE {broken.schema}.state")
    assert upgrade_all(store) == (2, ["aaaaaaaa1"])
    assert upgrade_all(store) == (0, ["aaaaaaaa1"])


def test_a_schema_of_a_layout_that_cannot_be_migrated_is_quarantined_by_the_next_writer(store: PostgresStore) -> None:
    create_filled_index(store, WIKI_ID).close()
    placement = store.placements.get(WIKI_ID)
    with store.placements.get_operator_connections(placement).write_transaction() as connection:
        connection.execute(f"DROP TABLE {placement.schema}.state; CREATE TABLE {placement.schema}.state (number int4)")
        connection.execute(f"GRANT SELECT ON {placement.schema}.state TO {placement.role}")
    with pytest.raises(IndexMissing):
        store.open(WIKI_ID)
    with store.write_lock(WIKI_ID, 0):
        store.create(WIKI_ID, RECIPE).close()
    assert len(store.list_quarantined(WIKI_ID)) == 1


def test_properties_that_cannot_be_read_are_damage(store: PostgresStore) -> None:
    index = create_filled_index(store, WIKI_ID)
    with store.get_connections(WIKI_ID).write_transaction() as connection:
        connection.execute("UPDATE g1_pages SET properties = '{'")
    with pytest.raises(IndexCorrupt) as caught:
        index.list_pages(PageFilter(properties=(parse_condition("status=draft"),)), None)
    assert "wikiholt sync" in caught.value.hint
    assert index.check()
