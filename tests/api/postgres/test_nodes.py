"""Two real `wikiholt serve` processes over one PostgreSQL with real repositories give the same answers."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.api.postgres.server_node import LOCK_TIMEOUT_S, SLOW_TEXT_S, ServerNode, get_block_file, run_node
from tests.support.git_repository import Repository
from tests.support.postgres_hostile import holding_everything
from tests.support.postgres_registry import open_node
from tests.support.postgres_server import PostgresServer
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.wiki import Scope
from wikiholt.index.postgres import assignments
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.index.postgres.placements import PlacementCatalog
from wikiholt.index.postgres.pool import ConnectionPool
from wikiholt.wikis import home_tables
from wikiholt.wikis.registry import Registry

TABLE_SETS = (home_tables.REGISTRY_TABLES, assignments.ASSIGNMENT_TABLES)
SLUGS = ("beds", "herbs", "tools", "trees")
POLLED_SLUG = "weather"
"""A wiki that is polled every second."""
REMOTE_SLUG = "afar"
"""A wiki that both nodes fetch from a remote repository."""


@dataclass
class TwoNodes:
    """Two nodes and their shared state."""

    store: str
    registry: Registry
    token: str
    repositories: dict[str, Repository]
    delay_file: Path
    start_node: Callable[[], ServerNode]
    nodes: list[ServerNode]

    @property
    def block_file(self) -> Path:
        return get_block_file(self.delay_file)

    def get_assigned_node(self, slug: str) -> ServerNode:
        """The node that the wiki is assigned to."""
        query = (
            "SELECT split_part(name, ':', 2)::int FROM wikiholt.nodes JOIN wikiholt.work ON node = nodes.id"
            " JOIN wikiholt.wikis ON wikis.id = wiki_id WHERE slug = %s"
        )
        with psycopg.connect(self.store, autocommit=True) as connection:
            (pid,) = wait_until(lambda: connection.execute(query, (slug,)).fetchone())
        return next(node for node in self.nodes if node.process.pid == pid)

    def get_other_node(self, slug: str) -> ServerNode:
        owner = self.get_assigned_node(slug)
        return next(node for node in self.nodes if node is not owner)

    def count_assignments(self) -> list[int]:
        """The number of wikis assigned to every node."""
        with psycopg.connect(self.store) as connection:
            rows = connection.execute("SELECT count(*) FROM wikiholt.work WHERE node IS NOT NULL GROUP BY node")
            return sorted(count for (count,) in rows)

    def wait_until_ready(self) -> None:
        """Replace killed nodes, and wait until all nodes find the pages of all wikis and each has its share of them."""
        self.nodes = [node if node.process.poll() is None else self.start_node() for node in self.nodes]
        for node in self.nodes:
            for slug in self.repositories:
                wait_until(lambda node=node, slug=slug: node.can_find(slug, "about", "Home"))  # type: ignore[misc]
        wait_until(lambda: self.count_assignments() == [3, 3])

    def end_leases(self, killed: ServerNode) -> None:
        """End the leases of a killed node now, instead of waiting for their time."""
        past = "until = clock_timestamp() - interval '1 second'"
        with psycopg.connect(self.store) as connection:
            schemas = connection.execute("SELECT schema FROM wikiholt.placements").fetchall()
            for (schema,) in schemas:
                connection.execute(
                    f"UPDATE {schema}.state SET {past} WHERE holder LIKE %s", (f"{killed.process.pid}-%",)
                )
            connection.execute(f"UPDATE wikiholt.nodes SET {past} WHERE name LIKE %s", (f"%:{killed.process.pid}",))
            connection.execute("SELECT pg_notify('wikiholt', 'nodes')")

    def wait_until_partly_synced(self, node: ServerNode, slug: str) -> None:
        """Wait until a node shows the progress of a sync that has indexed more than one page."""

        def is_partly_synced() -> bool:
            status = node.get_status(slug)
            return bool((status.get("activity") or {}).get("pages_total") and (status.get("pages") or 0) > 1)

        wait_until(is_partly_synced)


@pytest.fixture(scope="module")
def two_nodes(pg: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    place, store = tmp_path_factory.mktemp("nodes"), pg.create_database()
    wikis = place / "wikis"
    repositories = {slug: Repository(wikis / slug) for slug in (*SLUGS, POLLED_SLUG)}
    repositories[REMOTE_SLUG] = Repository(place / "elsewhere" / REMOTE_SLUG)
    for slug, repository in repositories.items():
        repository.commit({"Home.md": f"# Home\n\nAll about {slug}.\n"})
    home = Catalog(store, TABLE_SETS, lock_timeout_s=TIMEOUT_S)
    with closing(home), ExitStack() as stack:
        registry = open_node(home, place, TIMEOUT_S)
        registry.add(POLLED_SLUG, str(wikis / POLLED_SLUG), {"interval": "1"})
        registry.add(REMOTE_SLUG, f"file://{repositories[REMOTE_SLUG].path}")
        _, token = registry.keys.create(None, Scope.ADMIN)
        delay_file, numbers = place / "slow", count(1)

        def start_node() -> ServerNode:
            node = run_node(place / f"node-{next(numbers)}", store, token, wikis, delay_file=delay_file)
            return stack.enter_context(node)

        nodes = [start_node(), start_node()]
        yield TwoNodes(store, registry, token, repositories, delay_file, start_node, nodes)
    pg.drop_database(store)


@pytest.fixture
def pair(two_nodes: TwoNodes) -> TwoNodes:
    """Two nodes that share the work, whatever an earlier test did."""
    two_nodes.wait_until_ready()
    return two_nodes


def test_both_nodes_answer_for_all_wikis_and_share_the_work(pair: TwoNodes) -> None:
    assert len({pair.get_assigned_node(slug).url for slug in pair.repositories}) == 2


def test_a_wake_request_at_the_other_node_reaches_the_assigned_one(pair: TwoNodes) -> None:
    head = pair.repositories["beds"].commit({"Leeks.md": "# Leeks\n\nLeeks stand the winter.\n"})
    assert pair.get_other_node("beds").send_request("POST", "w/beds/api/v1/wake").status_code == 202
    for node in pair.nodes:
        wait_until(lambda node=node: node.can_find("beds", "winter", "Leeks"))  # type: ignore[misc]
        wait_until(lambda node=node: node.get_status("beds").get("indexed_revision") == head)  # type: ignore[misc]


def test_a_fresh_search_sees_a_write_at_either_node(pair: TwoNodes) -> None:
    pair.repositories["herbs"].commit({"Sage.md": "# Sage\n\nSage wants sun.\n"})
    assert pair.get_other_node("herbs").can_find("herbs", "sage", "Sage", "&fresh=true")
    pair.repositories["herbs"].commit({"Mint.md": "# Mint\n\nMint takes every bed.\n"})
    assert pair.get_assigned_node("herbs").can_find("herbs", "mint", "Mint", "&fresh=true")
    written = pair.get_other_node("herbs").send_request(
        "PUT", "w/herbs/api/v1/pages/Dill", json={"content": "# Dill\n\nDill seeds.\n"}
    )
    assert written.status_code == 201
    at_least = f"&mode=keyword&at_least={written.json()['revision']}"
    assert [node.can_find("herbs", "dill", "Dill", at_least) for node in pair.nodes] == [True, True]
    assert pair.nodes[0].can_find("herbs", "about", "Home", f"&at_least={'0' * 40}"), "an unknown commit blocks nothing"


def test_a_remote_wiki_is_fresh_and_readable_at_either_node(pair: TwoNodes) -> None:
    for number, node in enumerate((pair.get_other_node(REMOTE_SLUG), pair.get_assigned_node(REMOTE_SLUG))):
        pair.repositories[REMOTE_SLUG].commit({f"Fern {number}.md": f"# Fern {number}\n\nferns{number} in the shade\n"})
        assert node.can_find(REMOTE_SLUG, f"ferns{number}", f"Fern {number}", "&fresh=true")
    for node in pair.nodes:
        # A node fetches in the background. A read waits for it, but not for as long as a busy machine may need.
        wait_until(lambda node=node: "ferns1 in the shade" in node.read_page(REMOTE_SLUG, "Fern 1"))  # type: ignore[misc]


def test_a_key_revoked_at_one_node_is_rejected_at_the_other_at_once(pair: TwoNodes) -> None:
    one, other = pair.nodes
    document = one.send_request("POST", "api/v1/keys", json={"wiki": "tools", "scope": "read"}).json()
    token = document["token"]
    assert other.send_request("GET", "w/tools/api/v1/search?q=tools", token).status_code == 200
    assert other.send_request("DELETE", f"api/v1/keys/{document['id']}").status_code == 200
    for node in (one, other):
        assert node.send_request("GET", "w/tools/api/v1/search?q=tools", token).status_code == 401


def test_a_reindex_requested_at_the_other_node_is_visible_and_completes_at_both(pair: TwoNodes) -> None:
    before = [node.get_status("tools")["generation"] for node in pair.nodes]
    pair.block_file.write_text("tools")
    assert pair.get_other_node("tools").send_request("POST", "w/tools/api/v1/reindex").status_code == 202
    for node in pair.nodes:
        assert node.send_request("GET", "w/tools/api/v1/reindex/status").json()["status"] == "in_progress"
    pair.block_file.unlink()

    def ended(node: ServerNode) -> bool:
        return bool(node.send_request("GET", "w/tools/api/v1/reindex/status").json()["status"] == "complete")

    wait_until(lambda: all(map(ended, pair.nodes)))
    assert [node.get_status("tools")["generation"] for node in pair.nodes] == [before[0] + 1] * 2


def test_both_nodes_report_the_error_of_a_wiki(pair: TwoNodes, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "empty")
    wiki = pair.registry.add("empty", str(repository.path))
    wait_until(
        lambda: all((node.get_status("empty").get("error") or {}).get("code") == "no-commits" for node in pair.nodes)
    )
    pair.registry.remove("empty")
    wait_until(lambda: all(node.send_request("GET", "w/empty/api/v1/status").status_code == 404 for node in pair.nodes))
    with psycopg.connect(pair.store) as connection:
        statement = "SELECT 1 FROM wikiholt.work WHERE wiki_id = %s"
        wait_until(lambda: connection.execute(statement, (wiki.id,)).fetchone() is None)
    assert [node.send_request("GET", "w/empty/api/v1/search?q=x").status_code for node in pair.nodes] == [404, 404]


def test_a_wiki_removed_at_the_other_node_during_its_sync_is_deleted(pair: TwoNodes, tmp_path: Path) -> None:
    pair.delay_file.write_text("nettle")
    repository = Repository(tmp_path / "weeds")
    page_count = 1000
    assert page_count * SLOW_TEXT_S > LOCK_TIMEOUT_S
    repository.commit({f"Weed {n}.md": f"# Weed {n}\n\nnettle {n}\n" for n in range(page_count)})
    wiki = pair.registry.add("weeds", str(repository.path))
    pair.wait_until_partly_synced(pair.nodes[0], "weeds")
    removed = pair.get_other_node("weeds").send_request("DELETE", "api/v1/wikis/weeds")
    assert removed.status_code == 200, removed.text  # the sync alone would have taken longer than the timeout
    pair.delay_file.unlink()
    assert all(node.send_request("GET", "w/weeds/api/v1/search?q=nettle").status_code == 404 for node in pair.nodes)
    statement = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE %s"
    with psycopg.connect(pair.store, autocommit=True) as connection:
        wait_until(lambda: connection.execute(statement, (f"%{wiki.id}%",)).fetchone() == (0,))


def test_a_role_that_holds_every_lock_does_not_block_other_wikis(pair: TwoNodes, tmp_path: Path) -> None:
    wiki_id = pair.registry.get("tools").id
    with closing(Catalog(pair.store, TABLE_SETS)) as home, closing(ConnectionPool(2)) as pool:
        placements = PlacementCatalog(home, pool)
        tools = placements.get(wiki_id)
        login = placements.make_login(tools).address.conninfo
    leaving = Repository(tmp_path / "leaving")
    leaving.commit({"Home.md": "# Home\n\nAll about leaving.\n"})
    pair.registry.add("leaving", str(leaving.path))
    wait_until(lambda: pair.nodes[0].can_find("leaving", "leaving", "Home"))
    with holding_everything(login, tools):
        pair.repositories["tools"].commit({"Hoe.md": "# Hoe\n\nHoes are sharp.\n"})
        assert pair.nodes[0].send_request("POST", "w/tools/api/v1/wake").status_code == 202
        for slug in SLUGS[:2]:
            pair.repositories[slug].commit({"Lock.md": f"# Lock\n\nlocks of {slug}\n"})
            assert pair.nodes[0].send_request("POST", f"w/{slug}/api/v1/wake").status_code == 202
        wait_until(lambda: all(node.can_find(slug, "locks", "Lock") for node in pair.nodes for slug in SLUGS[:2]))
        assert pair.nodes[1].send_request("DELETE", "api/v1/wikis/leaving").status_code == 200
        coming = Repository(tmp_path / "coming")
        coming.commit({"Home.md": "# Home\n\nAll about coming.\n"})
        pair.registry.add("coming", str(coming.path))
        wait_until(lambda: pair.nodes[0].can_find("coming", "coming", "Home"))
        refused = pair.nodes[0].send_request("GET", "w/tools/api/v1/search?q=hoes")
        assert (refused.status_code, refused.json()["code"]) == (503, "lock-timeout")
        assert refused.headers["retry-after"]
        metrics = "".join(node.send_request("GET", "metrics").text for node in pair.nodes)
        counted = re.findall(r'wikiholt_database_timeouts_total\{kind="lock"\} ([0-9.]+)', metrics)
        assert sum(map(float, counted)) > 0
    wait_until(lambda: all(node.can_find("tools", "hoes", "Hoe") for node in pair.nodes))
    pair.registry.remove("coming")


def test_without_notifications_every_wiki_is_still_polled(pair: TwoNodes) -> None:
    with psycopg.connect(pair.store, autocommit=True) as operator:
        disconnect = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"  # noqa: E501
        assert len(operator.execute(disconnect).fetchall()) >= 2
    pair.repositories[POLLED_SLUG].commit({"Hail.md": "# Hail\n\nHail in June.\n"})
    wait_until(lambda: all(node.can_find(POLLED_SLUG, "hail", "Hail") for node in pair.nodes))


def test_nodes_report_an_unavailable_database_and_recover_by_themselves(pair: TwoNodes, pg: PostgresServer) -> None:
    pg.stop()
    try:
        for node in pair.nodes:
            refused = node.send_request("GET", "w/herbs/api/v1/search?q=sage")
            assert (refused.status_code, refused.json()["code"]) == (503, "database-unavailable")
            assert int(refused.headers["Retry-After"]) > 0
            assert node.send_request("GET", "healthz").status_code == 200
            wait_until(lambda node=node: node.send_request("GET", "readyz").status_code == 503)  # type: ignore[misc]
        pair.repositories["herbs"].commit({"Thyme.md": "# Thyme\n\nThyme between stones.\n"})
    finally:
        pg.start()
    wait_until(lambda: all(node.can_find("herbs", "about", "Home") for node in pair.nodes))
    wait_until(lambda: pair.count_assignments() == [3, 3])
    assert pair.get_other_node("herbs").send_request("POST", "w/herbs/api/v1/wake").status_code == 202
    wait_until(lambda: all(node.can_find("herbs", "thyme", "Thyme") for node in pair.nodes))


def test_the_work_of_a_node_killed_during_a_sync_is_taken_over(pair: TwoNodes) -> None:
    killed, other = pair.get_assigned_node("trees"), pair.get_other_node("trees")
    pair.block_file.write_text("orchard 99")  # the last of the pages
    pages: dict[str, str | bytes | None] = {f"Tree {n}.md": f"# Tree {n}\n\norchard {n}\n" for n in range(150)}
    head = pair.repositories["trees"].commit(pages)
    assert other.send_request("POST", "w/trees/api/v1/wake").status_code == 202
    # The progress of one node is visible at the other.
    pair.wait_until_partly_synced(other, "trees")
    killed.kill()
    assert other.can_find("trees", "about", "Home")
    assert other.get_status("trees")["indexed_revision"] != head
    pair.block_file.unlink()
    pair.end_leases(killed)
    wait_until(lambda: other.get_status("trees").get("indexed_revision") == head)
    assert other.get_status("trees")["pages"] == 151
    wait_until(lambda: pair.count_assignments() == [6])
    # The other node has no access to its disk; its wikis are still synced.
    pair.repositories["beds"].commit({"Chard.md": "# Chard\n\nChard by the wall.\n"})
    assert other.can_find("beds", "chard", "Chard", "&fresh=true")
