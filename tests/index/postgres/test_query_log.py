"""The query log in PostgreSQL: in the wiki's own schema, written by its own role, shared by all nodes."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tests.support.git_repository import Repository
from tests.support.postgres_stores import OTHER_WIKI_ID, WIKI_ID, addresses, another, create_filled_index, store
from tests.support.wait import wait_until
from wikiholt.api.bootstrap import build_service
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.search import QueryRecord, QueryRetention, SearchInterface
from wikiholt.errors import QueryLogNotFound
from wikiholt.index.postgres import move
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.postgres_query_log import PostgresQueryLog
from wikiholt.wikis.service import WikiService

__all__ = ["addresses", "another", "store"]

RETENTION = QueryRetention(30, 1000)
NOW = 4_000_000_000.0


def make_record(query: str, at: float = NOW) -> QueryRecord:
    return QueryRecord(
        at, "http", query, "hybrid", False, 2, False, True, 0.5, 3.25, "meant", ("A", 'odd"\n\u0000é'), 4
    )


def read_queries(log: PostgresQueryLog, since: float = 0) -> list[str]:
    found = log.read(since)
    return [record.query for record in found.records] if found else []


def test_a_foreign_table_with_the_same_name_is_not_changed(store: PostgresStore, addresses: tuple[str, str]) -> None:
    store.placements.provision(WIKI_ID, "home")
    create_filled_index(store, WIKI_ID).close()
    with closing(psycopg.connect(addresses[0], autocommit=True)) as owner:
        owner.execute("CREATE TABLE public.searches (x int)")
        try:
            log = PostgresQueryLog(store.placements, WIKI_ID)
            assert log.read(0) is None
            log.write([make_record("ours")], RETENTION)
            assert read_queries(log) == ["ours"]
            assert owner.execute("SELECT count(*) FROM public.searches").fetchone() == (0,)
        finally:
            owner.execute("DROP TABLE public.searches")
    store.delete(WIKI_ID)


def test_records_are_read_by_every_node_and_expire(store: PostgresStore, another: PostgresStore) -> None:
    create_filled_index(store, WIKI_ID).close()
    log, elsewhere = (PostgresQueryLog(node.placements, WIKI_ID) for node in (store, another))
    assert log.read(0) is None
    log.write([make_record("first", 10), make_record("second", NOW - 5)], QueryRetention(1e6, 1000))
    elsewhere.write([make_record("third")], QueryRetention(1e6, 1000))
    found = elsewhere.read(NOW - 10)
    assert found is not None
    assert found.records == (make_record("second", NOW - 5), make_record("third"))
    log.trim(RETENTION)
    assert read_queries(log) == ["second", "third"]
    log.write([make_record(f"{number}") for number in range(20)], QueryRetention(30, 5))
    assert read_queries(elsewhere) == ["15", "16", "17", "18", "19"]
    assert (log.clear(), read_queries(log), log.clear()) == (5, [], 0)
    store.delete(WIKI_ID)
    assert log.read(0) is None
    log.write([make_record("after the end")], RETENTION)
    assert store.list_wiki_ids() == []


def test_a_wikis_role_can_use_only_its_own_table(store: PostgresStore) -> None:
    for wiki_id in (WIKI_ID, OTHER_WIKI_ID):
        store.placements.provision(wiki_id, "home")
        create_filled_index(store, wiki_id).close()
        PostgresQueryLog(store.placements, wiki_id).write([make_record(f"of {wiki_id}")], RETENTION)
    theirs = store.placements.get(OTHER_WIKI_ID)
    mine = store.placements.make_login(store.placements.get(WIKI_ID))
    with psycopg.connect(mine.address.conninfo, autocommit=True) as connection:
        for order in (
            f"SELECT query FROM {theirs.schema}.searches",
            f"DELETE FROM {theirs.schema}.searches",
            f"CREATE TABLE {mine.search_path[0]}.searches2 (x int4)",
            f"DROP TABLE {mine.search_path[0]}.searches",
            f"UPDATE {mine.search_path[0]}.searches SET query = ''",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(order)
    assert read_queries(PostgresQueryLog(store.placements, OTHER_WIKI_ID)) == [f"of {OTHER_WIKI_ID}"]
    for wiki_id in (WIKI_ID, OTHER_WIKI_ID):
        store.delete(wiki_id)


def test_a_moved_wiki_starts_a_new_log(store: PostgresStore) -> None:
    store.placements.provision(WIKI_ID, "home")
    create_filled_index(store, WIKI_ID).close()
    log = PostgresQueryLog(store.placements, WIKI_ID)
    log.write([make_record("at home")], RETENTION)
    assert move.move_wiki(store, WIKI_ID, "second")
    assert log.read(0) is None
    log.write([make_record("away")], RETENTION)
    assert read_queries(log) == ["away"]
    store.delete(WIKI_ID)


@pytest.fixture
def node(database: str, tmp_path: Path) -> Iterator[WikiService]:
    service = build_service(load_settings(tmp_path / "data", overrides={"store": database, "queries.log": True}))
    embedder = FakeEmbedder()
    service.components = replace(service.components, embedder=lambda: embedder, identity=None)
    with closing(service):
        yield service


def test_a_node_logs_and_reports_searches_and_removal_deletes_them(node: WikiService, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "wiki")
    repository.commit({"Heron.md": "# Heron\n\nA grey heron stands.", "Pump.md": "# Pump\n\nIt hums."})
    node.add("notes", str(repository.path), {})
    handle = node.get_handle("notes")
    handle.sync()
    assert handle.query_log.build_report().searches == 0
    handle.search(SearchRequest("heron", 1), interface=SearchInterface.HTTP)
    writer = node.components.query_log_writer
    assert writer is not None
    wait_until(lambda: writer.written == 1)
    found = handle.query_log.build_report()
    assert (found.searches, found.frequent[0].query) == (1, "heron")
    assert found.pages is not None
    assert found.pages.never == ("Pump",)
    node.configure("notes", {"log_queries": "false"})
    assert node.get_handle("notes").query_log.build_report().searches == 1
    assert any(name.endswith(".searches") for name in node.remove("notes").files)
    node.add("notes", str(repository.path), {"log_queries": "false"})
    node.get_handle("notes").sync()
    with pytest.raises(QueryLogNotFound):
        node.get_handle("notes").query_log.build_report()
