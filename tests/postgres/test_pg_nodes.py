"""Two real `wikiholt serve` over one PostgreSQL, with real repositories: whichever is asked, the same is answered."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from git_repository import Repository
from pg_hostile import holding_everything
from pg_node import Node, running
from pg_server import PgServer
from pg_waiting import until

from wikiholt.model import Scope
from wikiholt.registry import Registry
from wikiholt.stores.postgres import buckets, registry, shifts
from wikiholt.stores.postgres.home import Home
from wikiholt.stores.postgres.placing import Placements
from wikiholt.stores.postgres.pool import Doors

PARTS = (registry.TABLES, buckets.TABLES, shifts.TABLES)
SLUGS = ("beds", "herbs", "tools", "trees")
POLLED = "weather"
"""A wiki that is looked at every second, whoever calls."""
AFAR = "afar"
"""A wiki that each node fetches from elsewhere."""


@dataclass
class Farm:
    """Two nodes, and what they share."""

    store: str
    registry: Registry
    token: str
    repositories: dict[str, Repository]
    slow: Path
    nodes: list[Node]

    def owner(self, slug: str) -> Node:
        """The node that looks after the wiki."""
        query = (
            "SELECT split_part(name, ':', 2)::int FROM wikiholt.nodes JOIN wikiholt.work ON node = nodes.id"
            " JOIN wikiholt.wikis ON wikis.id = wiki_id WHERE slug = %s"
        )
        with psycopg.connect(self.store) as connection:
            row = connection.execute(query, (slug,)).fetchone()
        assert row is not None
        return next(node for node in self.nodes if node.process.pid == row[0])

    def other(self, slug: str) -> Node:
        owner = self.owner(slug)
        return next(node for node in self.nodes if node is not owner)

    def shares(self) -> list[int]:
        """How many wikis each node looks after."""
        with psycopg.connect(self.store) as connection:
            rows = connection.execute("SELECT count(*) FROM wikiholt.work WHERE node IS NOT NULL GROUP BY node")
            return sorted(count for (count,) in rows)


@pytest.fixture(scope="module")
def farm(pg: PgServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    place, store = tmp_path_factory.mktemp("nodes"), pg.new_database()
    wikis = place / "wikis"
    repositories = {slug: Repository(wikis / slug) for slug in (*SLUGS, POLLED)}
    repositories[AFAR] = Repository(place / "elsewhere" / AFAR)
    for slug, repository in repositories.items():
        repository.commit({"Home.md": f"# Home\n\nAll about {slug}.\n"})
    home = Home(store, PARTS)
    with closing(home), ExitStack() as stack:
        made = Registry(place / "none", database=registry.PostgresRegistry(home))
        made.add(POLLED, str(wikis / POLLED), {"interval": "1"})
        made.add(AFAR, f"file://{repositories[AFAR].path}")
        _, token = made.keys.create(None, Scope.ADMIN)
        slow = place / "slow"
        begun = [running(place / name, store, token, wikis, slow=slow) for name in ("one", "two")]
        nodes = [stack.enter_context(each) for each in begun]
        yield Farm(store, made, token, repositories, slow, nodes)
    pg.drop_database(store)


def test_both_nodes_answer_for_all_wikis_and_each_looks_after_its_share(farm: Farm) -> None:
    for node in farm.nodes:
        for slug in farm.repositories:
            until(lambda node=node, slug=slug: node.finds(slug, slug, "Home"))  # type: ignore[misc]
    until(lambda: farm.shares() == [3, 3])
    assert len({farm.owner(slug).url for slug in farm.repositories}) == 2


def test_a_wake_at_the_wrong_node_is_heard_by_the_right_one(farm: Farm) -> None:
    head = farm.repositories["beds"].commit({"Leeks.md": "# Leeks\n\nLeeks stand the winter.\n"})
    assert farm.other("beds").ask("POST", "w/beds/api/v1/wake").status_code == 202
    for node in farm.nodes:
        until(lambda node=node: node.finds("beds", "winter", "Leeks"))  # type: ignore[misc]
        until(lambda node=node: node.status("beds").get("indexed_revision") == head)  # type: ignore[misc]


def test_who_needs_a_write_at_once_gets_it_from_either_node(farm: Farm) -> None:
    farm.repositories["herbs"].commit({"Sage.md": "# Sage\n\nSage wants sun.\n"})
    assert farm.other("herbs").finds("herbs", "sage", "Sage", "&fresh=true")
    farm.repositories["herbs"].commit({"Mint.md": "# Mint\n\nMint takes every bed.\n"})
    assert farm.owner("herbs").finds("herbs", "mint", "Mint", "&fresh=true")
    written = farm.other("herbs").ask("PUT", "w/herbs/api/v1/pages/Dill", json={"content": "# Dill\n\nDill seeds.\n"})
    assert written.status_code == 201
    until(lambda: all(node.finds("herbs", "dill", "Dill") for node in farm.nodes))


def test_a_wiki_fetched_from_elsewhere_is_fresh_and_can_be_read_at_either_node(farm: Farm) -> None:
    for number, node in enumerate((farm.other(AFAR), farm.owner(AFAR))):
        farm.repositories[AFAR].commit({f"Fern {number}.md": f"# Fern {number}\n\nferns{number} in the shade\n"})
        assert node.finds(AFAR, f"ferns{number}", f"Fern {number}", "&fresh=true")
    for node in farm.nodes:
        page = node.ask("GET", f"w/{AFAR}/api/v1/pages/Fern 1")
        assert "ferns1 in the shade" in page.json()["content"]


def test_a_key_revoked_at_one_node_is_refused_at_the_other_at_once(farm: Farm) -> None:
    one, other = farm.nodes
    made = one.ask("POST", "api/v1/keys", json={"wiki": "tools", "scope": "read"}).json()
    token = made["token"]
    assert other.ask("GET", "w/tools/api/v1/search?q=tools", token).status_code == 200
    assert other.ask("DELETE", f"api/v1/keys/{made['id']}").status_code == 200
    for node in (one, other):
        assert node.ask("GET", "w/tools/api/v1/search?q=tools", token).status_code == 401


def test_a_reindexing_begun_at_the_wrong_node_is_seen_and_ends_at_both(farm: Farm) -> None:
    until(lambda: farm.owner("tools").finds("tools", "tools", "Home"))
    farm.slow.write_text("tools")
    assert farm.other("tools").ask("POST", "w/tools/api/v1/reindex").status_code == 202
    before = [node.status("tools")["generation"] for node in farm.nodes]
    for node in farm.nodes:
        assert node.ask("GET", "w/tools/api/v1/reindex/status").json()["status"] != "idle"
    farm.slow.unlink()

    def ended(node: Node) -> bool:
        return bool(node.ask("GET", "w/tools/api/v1/reindex/status").json()["status"] == "complete")

    until(lambda: all(map(ended, farm.nodes)))
    assert [node.status("tools")["generation"] for node in farm.nodes] == [before[0] + 1] * 2


def test_what_is_wrong_with_a_wiki_is_said_by_both(farm: Farm, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "empty")
    wiki = farm.registry.add("empty", str(repository.path))
    until(lambda: all((node.status("empty").get("error") or {}).get("code") == "no-commits" for node in farm.nodes))
    farm.registry.remove("empty")
    until(lambda: all(node.ask("GET", "w/empty/api/v1/status").status_code == 404 for node in farm.nodes))
    with psycopg.connect(farm.store) as connection:
        rest = "SELECT 1 FROM wikiholt.work WHERE wiki_id = %s"
        until(lambda: connection.execute(rest, (wiki.id,)).fetchone() is None)
    assert [node.ask("GET", "w/empty/api/v1/search?q=x").status_code for node in farm.nodes] == [404, 404]


def test_a_wiki_removed_at_the_wrong_node_in_the_middle_of_its_sync_is_gone(farm: Farm, tmp_path: Path) -> None:
    farm.slow.write_text("nettle")
    repository = Repository(tmp_path / "weeds")
    repository.commit({f"Weed {n}.md": f"# Weed {n}\n\nnettle {n}\n" for n in range(1000)})
    wiki = farm.registry.add("weeds", str(repository.path))
    until(lambda: (farm.nodes[0].status("weeds").get("activity") or {}).get("pages_done"))
    removed = farm.other("weeds").ask("DELETE", "api/v1/wikis/weeds")
    assert removed.status_code == 200, removed.text  # the sync would have taken longer than anybody waits for it
    farm.slow.unlink()
    assert all(node.ask("GET", "w/weeds/api/v1/search?q=nettle").status_code == 404 for node in farm.nodes)
    rest = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE %s"
    with psycopg.connect(farm.store, autocommit=True) as connection:
        until(lambda: connection.execute(rest, (f"%{wiki.id}%",)).fetchone() == (0,))


def test_a_wiki_that_holds_every_lock_keeps_no_other_from_being_synced_added_or_removed(
    farm: Farm, tmp_path: Path
) -> None:
    until(lambda: all(node.finds(slug, slug, "Home") for node in farm.nodes for slug in SLUGS))
    wiki_id = farm.registry.get("tools").id
    with closing(Home(farm.store, PARTS)) as home, closing(Doors(2)) as doors:
        placements = Placements(home, doors)
        tools = placements.get(wiki_id)
        login = placements.login(tools).address.conninfo
    leaving = Repository(tmp_path / "leaving")
    leaving.commit({"Home.md": "# Home\n\nAll about leaving.\n"})
    farm.registry.add("leaving", str(leaving.path))
    until(lambda: farm.nodes[0].finds("leaving", "leaving", "Home"))
    with holding_everything(login, tools):
        farm.repositories["tools"].commit({"Hoe.md": "# Hoe\n\nHoes are sharp.\n"})
        assert farm.nodes[0].ask("POST", "w/tools/api/v1/wake").status_code == 202
        for slug in SLUGS[:2]:
            farm.repositories[slug].commit({"Lock.md": f"# Lock\n\nlocks of {slug}\n"})
            assert farm.nodes[0].ask("POST", f"w/{slug}/api/v1/wake").status_code == 202
        until(lambda: all(node.finds(slug, "locks", "Lock") for node in farm.nodes for slug in SLUGS[:2]), 30)
        assert farm.nodes[1].ask("DELETE", "api/v1/wikis/leaving").status_code == 200
        coming = Repository(tmp_path / "coming")
        coming.commit({"Home.md": "# Home\n\nAll about coming.\n"})
        farm.registry.add("coming", str(coming.path))
        until(lambda: farm.nodes[0].finds("coming", "coming", "Home"), 30)
        refused = farm.nodes[0].ask("GET", "w/tools/api/v1/search?q=hoes")
        assert (refused.status_code, refused.json()["code"]) == (503, "lock-timeout")
        assert refused.headers["retry-after"]
        figures = "".join(node.ask("GET", "metrics").text for node in farm.nodes)
        counted = re.findall(r'wikiholt_database_timeouts_total\{kind="lock"\} ([0-9.]+)', figures)
        assert sum(map(float, counted)) > 0
    until(lambda: all(node.finds("tools", "hoes", "Hoe") for node in farm.nodes), 90)
    farm.registry.remove("coming")


def test_without_a_word_between_the_nodes_every_wiki_is_still_looked_at(farm: Farm) -> None:
    with psycopg.connect(farm.store, autocommit=True) as operator:
        deaf = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"  # noqa: E501
        assert len(operator.execute(deaf).fetchall()) >= 2
    farm.repositories[POLLED].commit({"Hail.md": "# Hail\n\nHail in June.\n"})
    until(lambda: all(node.finds(POLLED, "hail", "Hail") for node in farm.nodes))


def test_while_the_database_is_away_nodes_say_so_and_afterwards_go_on_by_themselves(farm: Farm, pg: PgServer) -> None:
    pg.stop()
    try:
        for node in farm.nodes:
            refused = node.ask("GET", "w/herbs/api/v1/search?q=sage")
            assert (refused.status_code, refused.json()["code"]) == (503, "database-away")
            assert int(refused.headers["Retry-After"]) > 0
            assert node.ask("GET", "healthz").status_code == 200
        farm.repositories["herbs"].commit({"Thyme.md": "# Thyme\n\nThyme between stones.\n"})
    finally:
        pg.start()
    until(lambda: all(node.finds("herbs", "about", "Home") for node in farm.nodes))
    until(lambda: farm.shares() == [3, 3])
    assert farm.other("herbs").ask("POST", "w/herbs/api/v1/wake").status_code == 202
    until(lambda: all(node.finds("herbs", "thyme", "Thyme") for node in farm.nodes))


def test_a_node_killed_in_the_middle_of_a_sync_is_taken_over_and_nothing_is_lost(farm: Farm) -> None:
    killed, other = farm.owner("trees"), farm.other("trees")
    farm.slow.write_text("orchard")
    pages: dict[str, str | bytes | None] = {f"Tree {n}.md": f"# Tree {n}\n\norchard {n}\n" for n in range(150)}
    head = farm.repositories["trees"].commit(pages)
    assert other.ask("POST", "w/trees/api/v1/wake").status_code == 202
    # What the one is at work on is seen at the other.
    until(lambda: (other.status("trees").get("activity") or {}).get("pages_done"))
    killed.kill()
    assert other.finds("trees", "about", "Home")
    farm.slow.unlink()
    until(lambda: other.status("trees").get("indexed_revision") == head)
    assert other.status("trees")["pages"] == 151
    until(lambda: farm.shares() == [6])
    # Its own disk is gone with it for all the other knows; what it had to look after goes on.
    farm.repositories["beds"].commit({"Chard.md": "# Chard\n\nChard by the wall.\n"})
    assert other.finds("beds", "chard", "Chard", "&fresh=true")


@pytest.mark.real_model
def test_two_nodes_with_the_real_model_answer_alike(database: str, tmp_path: Path) -> None:
    wikis = tmp_path / "wikis"
    Repository(wikis / "garden").commit(
        {"Frost.md": "# Frost\n\nCover tender plants on cold nights.\n", "Compost.md": "# Compost\n\nTurn the heap.\n"}
    )
    with closing(Home(database, PARTS)) as home:
        made = Registry(tmp_path / "none", database=registry.PostgresRegistry(home))
        _, token = made.keys.create(None, Scope.ADMIN)
    with running(tmp_path / "one", database, token, wikis) as one, running(tmp_path / "two", database, token) as two:
        query = "w/garden/api/v1/search?q=protecting+seedlings+from+freezing&n=2"
        until(lambda: two.ask("GET", query).status_code == 200, 120)
        answers = [node.ask("GET", query).json()["results"] for node in (one, two)]
        assert answers[0] == answers[1]
        assert answers[0][0]["path"] == "Frost"
