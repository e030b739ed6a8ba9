"""Nodes share the wikis of one registry: each is looked after by one, and by another soon after that one is gone."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from pg_server import PgServer
from pg_waiting import until

from wikiholt.errors import DatabaseAway
from wikiholt.ports import Call
from wikiholt.registry import Registry
from wikiholt.stores.postgres import registry as registry_module
from wikiholt.stores.postgres import shifts as shifts_module
from wikiholt.stores.postgres.home import Home
from wikiholt.stores.postgres.registry import PostgresRegistry
from wikiholt.stores.postgres.shifts import PostgresShifts

PARTS = (registry_module.TABLES, shifts_module.TABLES)


class Node:
    """Shifts, and what they were told."""

    def __init__(self, home: Home, lease: float) -> None:
        self.shifts = PostgresShifts(home, lease)
        self.calls: list[tuple[str, Call]] = []
        self.shifts.begin(lambda wiki_id, why: self.calls.append((wiki_id, why)))

    @property
    def mine(self) -> set[str]:
        return set(self.shifts.mine())

    def called(self, wiki_id: str) -> list[Call]:
        return [why for called, why in self.calls if called == wiki_id]

    def die(self) -> None:
        """End as a process does that is killed: nothing is given back."""
        self.shifts._leave = lambda _: None  # type: ignore[method-assign]
        self.shifts.close()


@pytest.fixture
def home(database: str) -> Iterator[Home]:
    with closing(Home(database, PARTS)) as made:
        yield made


@pytest.fixture
def registry(home: Home, tmp_path: Path) -> Registry:
    return Registry(tmp_path / "none", database=PostgresRegistry(home))


@pytest.fixture
def node(home: Home) -> Iterator[Callable[..., Node]]:
    made: list[Node] = []

    def make(lease: float = 15.0) -> Node:
        made.append(Node(home, lease))
        return made[-1]

    yield make
    for each in made:
        each.shifts.close()


def registered(registry: Registry, count: int) -> set[str]:
    return {wiki.id for wiki in registry.add_many((f"wiki-{at}", f"/srv/{at}", {}) for at in range(count))}


def divided(nodes: list[Node], wikis: set[str]) -> bool:
    """Whether every wiki has exactly one node, and no node more than its share."""
    had = [node.mine for node in nodes]
    most = -(-len(wikis) // len(nodes))
    return set().union(*had) == wikis and sum(map(len, had)) == len(wikis) and max(map(len, had)) <= most


def test_nodes_that_come_and_go_divide_all_wikis_between_them(registry: Registry, node: Callable[..., Node]) -> None:
    wikis = registered(registry, 1100)
    one = node()
    until(lambda: one.mine == wikis)
    two, three = node(), node()
    until(lambda: divided([one, two, three], wikis))
    two.shifts.close()
    until(lambda: divided([one, three], wikis))
    assert two.mine == set()
    assert (("", Call.SHIFTS)) in one.calls


def test_a_wiki_that_is_added_is_taken_on_and_one_that_is_removed_is_let_go(
    registry: Registry, node: Callable[..., Node]
) -> None:
    wikis = registered(registry, 3)
    one, two = node(), node()
    until(lambda: divided([one, two], wikis))
    added = registry.add("added", "/srv/added")
    until(lambda: added.id in one.mine | two.mine)
    registry.remove("added")
    until(lambda: divided([one, two], wikis))
    assert added.id not in one.mine | two.mine


def test_a_node_that_dies_is_replaced_when_its_lease_ends(registry: Registry, node: Callable[..., Node]) -> None:
    wikis = registered(registry, 4)
    killed, other = node(2.0), node(2.0)
    until(lambda: divided([killed, other], wikis))
    killed.die()
    had = other.mine
    until(lambda: other.mine == wikis)
    assert len(had) == 2
    assert ("", Call.SHIFTS) in other.calls


def test_a_node_that_slept_through_its_lease_begins_anew_and_has_nothing_meanwhile(
    registry: Registry, node: Callable[..., Node], home: Home
) -> None:
    wikis = registered(registry, 4)
    sleeper, other = node(), node()
    until(lambda: divided([sleeper, other], wikis))
    old = sleeper.shifts._node
    with home.reading() as connection:
        connection.execute("UPDATE nodes SET until = clock_timestamp() - interval '1 s' WHERE id = %s", (old,))
    with home.reading() as connection:
        connection.execute("SELECT pg_notify('wikiholt', 'nodes')")
    until(lambda: sleeper.shifts._node != old and divided([sleeper, other], wikis))
    with home.reading() as connection:
        assert connection.execute("SELECT count(*) FROM nodes").fetchone() == (2,)


@pytest.mark.parametrize("why", [Call.WAKE, Call.MEND, Call.REINDEX, Call.ASKED])
def test_a_call_reaches_the_node_of_the_wiki_and_no_other(
    registry: Registry, node: Callable[..., Node], home: Home, why: Call
) -> None:
    wikis = registered(registry, 2)
    one, two = node(), node()
    until(lambda: divided([one, two], wikis))
    (wanted,) = one.mine
    two.shifts.wake(wanted, why)
    until(lambda: why in one.called(wanted))
    assert two.called(wanted) == []
    with home.reading() as connection:
        assert connection.execute("SELECT count(*) FROM work WHERE asked IS NOT NULL").fetchone() == (0,)


def test_a_call_for_a_wiki_without_a_node_waits_for_the_next(registry: Registry, node: Callable[..., Node]) -> None:
    (wiki_id,) = registered(registry, 1)
    waker = PostgresShifts(registry._database._home)  # type: ignore[attr-defined]
    for why in (Call.WAKE, Call.REINDEX, Call.WAKE):
        waker.wake(wiki_id, why)
    waker.close()
    one = node()
    until(lambda: len(one.called(wiki_id)) >= 2)
    assert one.called(wiki_id) == [Call.WAKE, Call.REINDEX]


def test_calls_while_a_node_cannot_hear_are_found_by_its_next_beat(
    registry: Registry, node: Callable[..., Node], home: Home, database: str
) -> None:
    (wiki_id,) = registered(registry, 1)
    one = node()
    until(lambda: one.mine == {wiki_id})
    with psycopg.connect(database, autocommit=True) as operator:
        order = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' OR wait_event = 'ClientRead' AND pid <> pg_backend_pid() AND datname = current_database()"  # noqa: E501
        operator.execute(order)
        # As a word that was told to nobody: the row is there, and no notification.
        operator.execute("UPDATE wikiholt.work SET asked = 'wake' WHERE wiki_id = %s", (wiki_id,))
    until(lambda: one.called(wiki_id) == [Call.WAKE])
    assert one.mine == {wiki_id}


def test_while_the_database_is_away_a_node_trusts_its_lease_and_then_nothing(
    registry: Registry, node: Callable[..., Node], pg: PgServer
) -> None:
    wikis = registered(registry, 2)
    one = node(2.0)
    until(lambda: one.mine == wikis)
    pg.stop()
    try:
        with pytest.raises(DatabaseAway):
            one.shifts.wake(next(iter(wikis)), Call.WAKE)
        until(lambda: one.mine == set())
    finally:
        pg.start()
    until(lambda: one.mine == wikis)


def test_many_nodes_that_begin_at_once_take_no_wiki_twice(registry: Registry, node: Callable[..., Node]) -> None:
    wikis = registered(registry, 60)
    nodes: list[Node] = []
    threads = [threading.Thread(target=lambda: nodes.append(node())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: divided(nodes, wikis))
    assert sorted(len(each.mine) for each in nodes) == [10] * 6
