"""The query log in PostgreSQL: in the wiki's own schema, by its own role, of all nodes."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from git_repository import Repository
from pg_stores import ONE, OTHER, filled
from pg_two import addresses, another, store
from pg_waiting import until

from wikiholt.errors import NoQueryLog
from wikiholt.model import QueryBounds, Searched, Surface
from wikiholt.search import Request
from wikiholt.service import Service
from wikiholt.settings import load
from wikiholt.stores.postgres import moving
from wikiholt.stores.postgres.queries import PostgresQueryLog
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.testing import FakeEmbedder
from wikiholt.wiring import build

__all__ = ["addresses", "another", "store"]

BOUNDS = QueryBounds(30, 1000)
NOW = 4_000_000_000.0


def entry(query: str, at: float = NOW) -> Searched:
    return Searched(at, "http", query, "hybrid", False, 2, False, True, 0.5, 3.25, "meant", ("A", 'odd"\n\u0000é'), 4)


def queries(log: PostgresQueryLog, since: float = 0) -> list[str]:
    found = log.read(since)
    return [each.query for each in found.searches] if found else []


def test_a_table_of_that_name_that_is_somebody_elses_is_left_alone(
    store: PostgresStore, addresses: tuple[str, str]
) -> None:
    store.placements.make(ONE, "home")
    filled(store, ONE).close()
    with closing(psycopg.connect(addresses[0], autocommit=True)) as owner:
        owner.execute("CREATE TABLE public.searches (x int)")
        try:
            log = PostgresQueryLog(store.placements, ONE)
            assert log.read(0) is None
            log.write([entry("ours")], BOUNDS)
            assert queries(log) == ["ours"]
            assert owner.execute("SELECT count(*) FROM public.searches").fetchone() == (0,)
        finally:
            owner.execute("DROP TABLE public.searches")
    store.drop(ONE)


def test_what_is_written_is_read_by_every_node_and_forgotten_in_time(
    store: PostgresStore, another: PostgresStore
) -> None:
    filled(store, ONE).close()
    log, elsewhere = (PostgresQueryLog(node.placements, ONE) for node in (store, another))
    assert log.read(0) is None
    log.write([entry("first", 10), entry("second", NOW - 5)], QueryBounds(1e6, 1000))
    elsewhere.write([entry("third")], QueryBounds(1e6, 1000))
    found = elsewhere.read(NOW - 10)
    assert found is not None
    assert found.searches == (entry("second", NOW - 5), entry("third"))
    log.trim(BOUNDS)
    assert queries(log) == ["second", "third"]
    log.write([entry(f"{number}") for number in range(20)], QueryBounds(30, 5))
    assert queries(elsewhere) == ["15", "16", "17", "18", "19"]
    assert (log.clear(), queries(log), log.clear()) == (5, [], 0)
    store.drop(ONE)
    assert log.read(0) is None
    log.write([entry("after the end")], BOUNDS)
    assert store.ids() == []


def test_a_wikis_role_reads_and_writes_its_own_table_and_can_touch_no_other(store: PostgresStore) -> None:
    for wiki_id in (ONE, OTHER):
        store.placements.make(wiki_id, "home")
        filled(store, wiki_id).close()
        PostgresQueryLog(store.placements, wiki_id).write([entry(f"of {wiki_id}")], BOUNDS)
    theirs = store.placements.get(OTHER)
    mine = store.placements.login(store.placements.get(ONE))
    with psycopg.connect(mine.address.conninfo, autocommit=True) as connection:
        for order in (
            f"SELECT query FROM {theirs.schema}.searches",
            f"DELETE FROM {theirs.schema}.searches",
            f"CREATE TABLE {mine.path[0]}.searches2 (x int4)",
            f"DROP TABLE {mine.path[0]}.searches",
            f"UPDATE {mine.path[0]}.searches SET query = ''",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(order)
    assert queries(PostgresQueryLog(store.placements, OTHER)) == [f"of {OTHER}"]
    for wiki_id in (ONE, OTHER):
        store.drop(wiki_id)


def test_a_wiki_that_moves_begins_a_new_log_at_its_new_place(store: PostgresStore) -> None:
    store.placements.make(ONE, "home")
    filled(store, ONE).close()
    log = PostgresQueryLog(store.placements, ONE)
    log.write([entry("at home")], BOUNDS)
    assert moving.move(store, ONE, "second")
    assert log.read(0) is None
    log.write([entry("away")], BOUNDS)
    assert queries(log) == ["away"]
    store.drop(ONE)


@pytest.fixture
def node(database: str, tmp_path: Path) -> Iterator[Service]:
    service = build(load(tmp_path / "data", overrides={"store": database, "queries.log": True}))
    embedder = FakeEmbedder()
    service.workshop = replace(service.workshop, embedder=lambda: embedder, identity=None)
    with closing(service):
        yield service


def test_a_node_writes_searches_down_and_reports_them_and_they_go_with_the_wiki(node: Service, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "wiki")
    repository.commit({"Heron.md": "# Heron\n\nA grey heron stands.", "Pump.md": "# Pump\n\nIt hums."})
    node.add("notes", str(repository.path), {})
    handle = node.wiki("notes")
    handle.sync()
    assert handle.queries.report().searches == 0
    handle.search(Request("heron", 1), surface=Surface.HTTP)
    scribe = node.workshop.scribe
    assert scribe is not None
    until(lambda: scribe.written == 1)
    found = handle.queries.report()
    assert (found.searches, found.frequent[0].query) == (1, "heron")
    assert found.pages is not None
    assert found.pages.never == ("Pump",)
    node.configure("notes", {"log_queries": "false"})
    assert node.wiki("notes").queries.report().searches == 1
    assert any(name.endswith(".searches") for name in node.remove("notes").files)
    node.add("notes", str(repository.path), {"log_queries": "false"})
    node.wiki("notes").sync()
    with pytest.raises(NoQueryLog):
        node.wiki("notes").queries.report()
