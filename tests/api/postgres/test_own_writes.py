"""A write through one of three nodes is seen by the next search through any of them."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import product

import pytest

from tests.api.postgres.server_node import ServerNode, run_node
from tests.api.postgres.test_nodes import TABLE_SETS
from tests.support.git_repository import Repository
from tests.support.postgres_registry import open_node
from tests.support.postgres_server import PostgresServer
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.wiki import Scope
from wikiholt.index.postgres.catalog import Catalog

SLUG = "handbook"


@pytest.fixture(scope="module")
def nodes(pg: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerNode]]:
    place, store = tmp_path_factory.mktemp("three"), pg.create_database()
    repository = Repository(place / "wikis" / SLUG)
    repository.commit({"Home.md": "# Home\n\nWelcome.\n"})
    home = Catalog(store, TABLE_SETS, lock_timeout_s=TIMEOUT_S)
    with closing(home), ExitStack() as stack:
        registry = open_node(home, place)
        _, token = registry.keys.create(None, Scope.ADMIN)
        started = [
            run_node(place / name, store, token, place / "wikis", delay_file=place / "slow")
            for name in ("one", "two", "three")
        ]
        nodes = [stack.enter_context(node) for node in started]
        for node in nodes:
            wait_until(lambda node=node: node.can_find(SLUG, "welcome", "Home"))  # type: ignore[misc]
        yield nodes
    pg.drop_database(store)


def test_a_search_with_the_commit_of_a_write_sees_it_on_every_node(nodes: list[ServerNode]) -> None:
    for number, (writer, reader) in enumerate(product(nodes, nodes)):
        path, word = f"Page {number}", f"ownword{number}"
        body = {"content": f"# {path}\n\n{word} is written here.\n"}
        written = writer.send_request("PUT", f"w/{SLUG}/api/v1/pages/{path}", json=body)
        assert written.status_code == 201, written.text
        revision = written.json()["revision"]
        assert reader.can_find(SLUG, word, path, f"&mode=keyword&at_least={revision}")


def test_an_unknown_commit_does_not_block_a_search(nodes: list[ServerNode]) -> None:
    assert nodes[1].can_find(SLUG, "welcome", "Home", f"&at_least={'0' * 40}")
    response = nodes[0].send_request("GET", f"w/{SLUG}/api/v1/search?q=a&at_least=HEAD")
    assert response.status_code == 422
