"""Nodes share the wikis of one registry: each wiki has one node, and soon another one if that node dies."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres_registry import open_node
from tests.support.postgres_server import PostgresServer
from tests.support.wait import wait_until
from wikiholt.domain.storage_protocols import NodeMessage
from wikiholt.errors import DatabaseUnavailable
from wikiholt.index.postgres import assignments as assignments_module
from wikiholt.index.postgres.assignments import PostgresAssignments
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.wikis import home_tables as registry_module
from wikiholt.wikis.registry import Registry

PARTS = (registry_module.REGISTRY_TABLES, assignments_module.ASSIGNMENT_TABLES)


class AssignedNode:
    """Assignments of a node, and the messages it received."""

    def __init__(self, home: Catalog, lease: float) -> None:
        self.assignments = PostgresAssignments(home, lease)
        self.messages: list[tuple[str, NodeMessage]] = []
        self.assignments.start(lambda wiki_id, message: self.messages.append((wiki_id, message)))

    @property
    def assigned(self) -> set[str]:
        return set(self.assignments.get_assigned())

    def get_messages(self, wiki_id: str) -> list[NodeMessage]:
        return [message for called, message in self.messages if called == wiki_id]

    def kill(self) -> None:
        """End like a killed process: nothing is released."""
        self.assignments._remove_node = lambda _: None  # type: ignore[method-assign]
        self.assignments.close()


@pytest.fixture
def home(database: str) -> Iterator[Catalog]:
    with closing(Catalog(database, PARTS)) as made:
        yield made


@pytest.fixture
def registry(home: Catalog, tmp_path: Path) -> Registry:
    return open_node(home, tmp_path)


@pytest.fixture
def node(home: Catalog) -> Iterator[Callable[..., AssignedNode]]:
    made: list[AssignedNode] = []

    def make(lease: float = 60.0) -> AssignedNode:
        made.append(AssignedNode(home, lease))
        return made[-1]

    yield make
    for item in made:
        item.assignments.close()


def register_wikis(registry: Registry, count: int) -> set[str]:
    return {wiki.id for wiki in registry.add_many((f"wiki-{at}", f"/srv/{at}", {}) for at in range(count))}


def is_divided(nodes: list[AssignedNode], wikis: set[str]) -> bool:
    """Whether every wiki has exactly one node, and no node more than its share."""
    had = [node.assigned for node in nodes]
    most = -(-len(wikis) // len(nodes))
    return set().union(*had) == wikis and sum(map(len, had)) == len(wikis) and max(map(len, had)) <= most


def test_nodes_that_start_and_stop_divide_all_wikis(registry: Registry, node: Callable[..., AssignedNode]) -> None:
    wikis = register_wikis(registry, 1100)
    one = node()
    wait_until(lambda: one.assigned == wikis)
    two, three = node(), node()
    wait_until(lambda: is_divided([one, two, three], wikis))
    two.assignments.close()
    wait_until(lambda: is_divided([one, three], wikis))
    assert two.assigned == set()
    assert (("", NodeMessage.ASSIGNMENTS)) in one.messages


def test_an_added_wiki_is_assigned_and_a_removed_one_is_released(
    registry: Registry, node: Callable[..., AssignedNode]
) -> None:
    wikis = register_wikis(registry, 3)
    one, two = node(), node()
    wait_until(lambda: is_divided([one, two], wikis))
    added = registry.add("added", "/srv/added")
    wait_until(lambda: added.id in one.assigned | two.assigned)
    registry.remove("added")
    wait_until(lambda: is_divided([one, two], wikis))
    assert added.id not in one.assigned | two.assigned


def test_a_node_that_dies_is_replaced_when_its_lease_ends(
    registry: Registry, node: Callable[..., AssignedNode], home: Catalog
) -> None:
    wikis = register_wikis(registry, 4)
    killed, other = node(), node()
    wait_until(lambda: is_divided([killed, other], wikis))
    killed.kill()
    assert len(other.assigned) == 2
    with home.read_connection() as connection:
        soon = "UPDATE nodes SET until = clock_timestamp() + interval '0.5 s' WHERE id = %s"
        connection.execute(soon, (killed.assignments._node_id,))
        connection.execute("SELECT pg_notify('wikiholt', 'nodes')")  # the other node reads when the lease ends
    wait_until(lambda: other.assigned == wikis)
    assert ("", NodeMessage.ASSIGNMENTS) in other.messages


def test_a_node_that_died_before_the_clock_was_set_back_is_replaced(
    registry: Registry, node: Callable[..., AssignedNode], home: Catalog
) -> None:
    wikis = register_wikis(registry, 4)
    killed, other = node(), node()
    wait_until(lambda: is_divided([killed, other], wikis))
    killed.kill()
    with home.read_connection() as connection:
        late = "UPDATE nodes SET until = until + interval '1 year' WHERE id = %s"
        connection.execute(late, (killed.assignments._node_id,))
        connection.execute("SELECT pg_notify('wikiholt', 'nodes')")
    wait_until(lambda: other.assigned == wikis)


def test_a_node_that_missed_its_lease_restarts_with_no_assignments(
    registry: Registry, node: Callable[..., AssignedNode], home: Catalog
) -> None:
    wikis = register_wikis(registry, 4)
    stalled, other = node(), node()
    wait_until(lambda: is_divided([stalled, other], wikis))
    old = stalled.assignments._node_id
    with home.read_connection() as connection:
        connection.execute("UPDATE nodes SET until = clock_timestamp() - interval '1 s' WHERE id = %s", (old,))
    with home.read_connection() as connection:
        connection.execute("SELECT pg_notify('wikiholt', 'nodes')")
    wait_until(lambda: stalled.assignments._node_id != old and is_divided([stalled, other], wikis))
    with home.read_connection() as connection:
        assert connection.execute("SELECT count(*) FROM nodes").fetchone() == (2,)


@pytest.mark.parametrize("message", [NodeMessage.CHANGED, NodeMessage.REPAIR, NodeMessage.REINDEX, NodeMessage.TOUCH])
def test_a_message_reaches_the_node_of_the_wiki_and_no_other(
    registry: Registry, node: Callable[..., AssignedNode], home: Catalog, message: NodeMessage
) -> None:
    wikis = register_wikis(registry, 2)
    one, two = node(), node()
    wait_until(lambda: is_divided([one, two], wikis))
    (wanted,) = one.assigned
    two.assignments.send(wanted, message)
    wait_until(lambda: message in one.get_messages(wanted))
    assert two.get_messages(wanted) == []
    with home.read_connection() as connection:
        assert connection.execute("SELECT count(*) FROM work WHERE asked IS NOT NULL").fetchone() == (0,)


def test_a_message_for_a_wiki_without_a_node_waits_for_the_next_node(
    registry: Registry, node: Callable[..., AssignedNode]
) -> None:
    (wiki_id,) = register_wikis(registry, 1)
    sender = PostgresAssignments(registry._store.store._catalog)  # type: ignore[attr-defined]
    for message in (NodeMessage.CHANGED, NodeMessage.REINDEX, NodeMessage.CHANGED):
        sender.send(wiki_id, message)
    sender.close()
    one = node()
    wait_until(lambda: len(one.get_messages(wiki_id)) >= 2)
    assert one.get_messages(wiki_id) == [NodeMessage.CHANGED, NodeMessage.REINDEX]


def test_messages_without_a_notification_are_found_at_the_next_heartbeat(
    registry: Registry, node: Callable[..., AssignedNode], home: Catalog, database: str
) -> None:
    (wiki_id,) = register_wikis(registry, 1)
    one = node()
    wait_until(lambda: one.assigned == {wiki_id})
    with psycopg.connect(database, autocommit=True) as operator:
        order = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' OR wait_event = 'ClientRead' AND pid <> pg_backend_pid() AND datname = current_database()"  # noqa: E501
        operator.execute(order)
        # A lost notification: the row exists, but no node was notified.
        operator.execute("UPDATE wikiholt.work SET asked = 'changed' WHERE wiki_id = %s", (wiki_id,))
    wait_until(lambda: one.get_messages(wiki_id) == [NodeMessage.CHANGED])
    assert one.assigned == {wiki_id}


def test_while_the_database_is_unavailable_a_node_keeps_its_wikis_until_the_lease_ends(
    registry: Registry, node: Callable[..., AssignedNode], pg: PostgresServer
) -> None:
    wikis = register_wikis(registry, 2)
    one = node(2.0)
    wait_until(lambda: one.assigned == wikis)
    pg.stop()
    try:
        with pytest.raises(DatabaseUnavailable):
            one.assignments.send(next(iter(wikis)), NodeMessage.CHANGED)
        wait_until(lambda: one.assigned == set())
    finally:
        pg.start()
    wait_until(lambda: one.assigned == wikis)


def test_many_nodes_that_start_together_take_no_wiki_twice(
    registry: Registry, node: Callable[..., AssignedNode]
) -> None:
    wikis = register_wikis(registry, 60)
    nodes: list[AssignedNode] = []
    threads = [threading.Thread(target=lambda: nodes.append(node())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: is_divided(nodes, wikis))
    assert sorted(len(item.assigned) for item in nodes) == [10] * 6
