"""Wikis on two servers: limits, moves while they are used, the loss of a server, and what a restore brings back."""

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGQUIT

import psycopg
import pytest
from starlette.testclient import TestClient

from tests.support.git_repository import Repository
from tests.support.postgres_registry import is_copied
from tests.support.postgres_server import PostgresServer, run_postgres
from tests.support.tiers import choose
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.api.bootstrap import Application, open_application
from wikiholt.api.doctor import run_checks
from wikiholt.api.isolation_check import check_isolation
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.storage_protocols import DatabaseAdmin
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Conflict, IndexUnavailable, InvalidSetting, WikiholtError
from wikiholt.interfaces.http.app import create_app
from wikiholt.search.request import SearchMode, SearchRequest
from wikiholt.testing import FakeEmbedder

MOVES = choose(20, 2)


@pytest.fixture(scope="module")
def far_server() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@dataclass
class Cells:
    """The home database on one server, the database `far` on another, and nodes that use both."""

    place: Path
    store: str
    far: str
    stack: ExitStack

    def open_node(self, name: str, **settings: object) -> Application:
        overrides = {
            "store": self.store,
            "limit.address_per_minute": 0,
            "limit.key_per_minute": 0,
            "lock.timeout": TIMEOUT_S,
            **settings,
        }
        node = open_application(load_settings(self.place / name, overrides=overrides))
        embedder = FakeEmbedder()
        node.service.components = replace(node.service.components, embedder=lambda: embedder, identity=None)
        self.stack.callback(node.service.close)
        return node

    def add_wiki(self, node: Application, slug: str) -> Repository:
        repository = Repository(self.place / "wikis" / slug)
        repository.commit({"Page.md": f"# Page\n\nof the wiki {slug}\n"})
        node.service.add(slug, str(repository.path), {})
        node.service.get_handle(slug).sync()
        return repository


@pytest.fixture
def cells(pg: PostgresServer, far_server: PostgresServer, tmp_path: Path) -> Iterator[Cells]:
    store, far = pg.create_database(), far_server.create_database()
    with ExitStack() as stack:
        yield Cells(tmp_path, store, far, stack)
    pg.drop_database(store)
    far_server.drop_database(far)


@pytest.fixture
def node(cells: Cells) -> Application:
    node = cells.open_node("node")
    get_databases(node).add("far", cells.far, 1.0)
    return node


def get_databases(node: Application) -> DatabaseAdmin:
    databases = node.service.databases
    assert databases is not None
    return databases


def get_place(node: Application, slug: str) -> str | None:
    return get_databases(node).get_database_name(node.service.registry.get(slug).id)


def test_a_full_database_gets_no_wiki(cells: Cells, node: Application) -> None:
    databases = get_databases(node)
    databases.set_open("home", accept_new=True, max_wikis=1)
    databases.add("far", cells.far, 1.0, 2)
    for slug in ("a", "b", "c"):
        cells.add_wiki(node, slug)
    assert {status.name: (status.wikis, status.max_wikis) for status in databases.get_statuses()} == {
        "far": (2, 2),
        "home": (1, 1),
    }
    with pytest.raises(IndexUnavailable, match="room") as caught:
        cells.add_wiki(node, "d")
    assert "database add" in caught.value.hint
    assert "no database has room for a new wiki" in [
        check.detail for check in run_checks(node.service, node.settings.data, 0)
    ]
    stored = next(slug for slug in "abc" if get_place(node, slug) == "far")
    with pytest.raises(Conflict, match="full") as caught_move:
        databases.move(node.service.registry.get(stored).id, "home")
    assert "--max-wikis" in caught_move.value.hint
    databases.set_open("home", accept_new=True, max_wikis=3)
    node.service.get_handle("d").sync()
    assert get_place(node, "d") == "home"
    assert databases.move(node.service.registry.get(stored).id, "home")


class Traffic:
    """A writer that commits and syncs pages, and searchers on several nodes, until the block ends."""

    def __init__(self, writer: Application, searchers: list[Application], slug: str) -> None:
        self.written: list[str] = []
        self.indexed = 0
        """How many pages are certainly in the index."""
        self.searches = 0
        self.faults: list[object] = []
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(writer, slug))]
        self._threads += [threading.Thread(target=self._search, args=(node, slug)) for node in searchers]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        wait_until(lambda: (self.indexed > 1 and self.searches > 5) or self.faults)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _write(self, node: Application, slug: str) -> None:
        repository = Repository(Path(node.service.registry.get(slug).source))
        for number in itertools.count():
            if self._stopped.wait(0.1):
                return
            repository.commit({f"Note {number}.md": f"# Note {number}\n\nneedle {number} of {slug}\n"})
            self.written.append(f"Note {number}")
            try:
                node.service.get_handle(slug).sync()
                self.indexed = number + 1
            except WikiholtError as error:
                self.faults.append(error)

    def _search(self, node: Application, slug: str) -> None:
        request = SearchRequest("needle", mode=SearchMode.KEYWORD, n=100)
        while not self._stopped.wait(0.01):
            before = min(self.indexed, 100)
            try:
                found = {hit.path for hit in node.service.get_handle(slug).search(request).hits}
            except Exception as error:  # noqa: BLE001
                self.faults.append(error)
                return
            if len(found) < before or not all(path.startswith("Note ") for path in found):
                self.faults.append((before, sorted(found)))
            self.searches += 1


def test_a_wiki_moves_between_servers_while_it_is_written_and_searched(cells: Cells, node: Application) -> None:
    get_databases(node).set_open("far", accept_new=False)
    other = cells.open_node("other")
    repository = cells.add_wiki(node, "busy")
    cells.add_wiki(node, "calm")
    wiki_id = node.service.registry.get("busy").id
    with Traffic(node, [node, other], "busy") as traffic:
        for to in itertools.islice(itertools.cycle(("far", "home")), MOVES):
            written, searches = traffic.indexed, traffic.searches
            wait_until(lambda written=written: traffic.indexed > written or traffic.faults)  # type: ignore[misc]
            assert get_databases(other).move(wiki_id, to, 5.0)
            wait_until(lambda searches=searches: traffic.searches > searches + 5 or traffic.faults)  # type: ignore[misc]
    assert traffic.faults == []
    handle = node.service.get_handle("busy")
    handle.sync()
    assert handle.get_indexed_revision() == repository.get_head()
    with closing(node.service.components.store.open(wiki_id)) as index:
        assert sorted(index.get_page_blobs()) == sorted(["Page.md", *(f"{path}.md" for path in traffic.written)])
        assert index.check() == []
    for slug in ("busy", "calm"):
        assert [check.ok for check in check_isolation(node.service, slug)] == [True]
    assert list_wiki_schemas(cells) == (2 if MOVES % 2 == 0 else 1, MOVES % 2)


def list_wiki_schemas(cells: Cells) -> tuple[int, int]:
    """The number of wiki schemas in the home and in the other database."""
    counts = []
    for address in (cells.store, cells.far):
        with psycopg.connect(address) as connection:
            (count,) = connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname ~ '^w_'").fetchone() or (0,)
            counts.append(count)
    return counts[0], counts[1]


def test_a_slow_move_is_as_slow_as_asked(cells: Cells, node: Application) -> None:
    get_databases(node).set_open("far", accept_new=False)
    repository = cells.add_wiki(node, "large")
    repository.commit({f"Page {number}.md": f"# Page {number}\n\n{'word ' * 2000}\n" for number in range(30)})
    node.service.get_handle("large").sync()
    wiki_id = node.service.registry.get("large").id
    began = time.monotonic()
    assert get_databases(node).move(wiki_id, "far", 0.5)
    assert time.monotonic() - began > 0.3e6 / 0.5e6, "at least 300 KB are copied"


@contextmanager
def without_standby(pg: PostgresServer) -> Iterator[None]:
    """The server waits for a standby that is gone: no commit returns."""

    def set_names(names: str) -> None:
        with psycopg.connect(pg.get_dsn(), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            connection.execute("SELECT pg_reload_conf()")

    watchdog = threading.Timer(TIMEOUT_S / 4, set_names, [""])
    set_names("gone")
    watchdog.start()
    try:
        yield
        assert watchdog.is_alive(), "a request has waited for the standby"
    finally:
        watchdog.cancel()
        set_names("")


def test_the_loss_of_a_server_with_the_standby_of_the_home_affects_its_wikis_only(
    pg: PostgresServer, far_server: PostgresServer, cells: Cells, node: Application
) -> None:
    databases = get_databases(node)
    for slug, closed in (("near", "far"), ("away", "home")):
        databases.set_open(closed, accept_new=False)
        cells.add_wiki(node, slug)
        databases.set_open(closed, accept_new=True)
    _, key = node.service.registry.keys.create(node.service.registry.get("near").id, Scope.READ)
    _, operator = node.service.registry.keys.create(None, Scope.ADMIN)
    fresh = cells.open_node("fresh")  # it has not yet notified another node that a wiki is in use
    with ExitStack() as stack:
        clients = [
            stack.enter_context(TestClient(create_app(each), base_url="http://127.0.0.1")) for each in (node, fresh)
        ]

        def search(client: TestClient, slug: str, token: str = operator) -> int:
            path = f"/w/{slug}/api/v1/search"
            return client.get(path, params={"q": slug}, headers={"Authorization": f"Bearer {token}"}).status_code

        for each in (node, fresh):
            wait_until(lambda each=each: is_copied(each.service.registry))  # type: ignore[misc]
        assert [search(clients[0], slug) for slug in ("near", "away")] == [200, 200]
        far_server.stop(SIGQUIT)
        try:
            with without_standby(pg):
                for client in clients:
                    assert [search(client, slug) for slug in ("near", "away", "near")] == [200, 503, 200]
                    assert search(client, "near", key) == 200
                    assert client.get("/healthz").status_code == 200
                assert [check.ok for check in check_isolation(node.service, "near")] == [True]
                (fault,) = check_isolation(node.service, "away")
                assert ("cannot be reached" in fault.detail, "leak" in fault.advice) == (True, False)
            cells.add_wiki(node, "added")
            assert get_place(node, "added") == "home", "a new wiki is placed on a server that answers"
        finally:
            far_server.start()
        wait_until(lambda: [search(client, "away") for client in clients] == [200, 200])


def test_the_home_can_be_gone_for_a_while_and_then_everything_is_closed(
    pg: PostgresServer, cells: Cells, node: Application
) -> None:
    bound_s = 2.0
    databases = get_databases(node)
    databases.set_open("home", accept_new=False)
    cells.add_wiki(node, "away")
    _, key = node.service.registry.keys.create(node.service.registry.get("away").id, Scope.READ)
    edge = cells.open_node("edge", **{"postgres.registry_age": bound_s})
    with TestClient(create_app(edge), base_url="http://127.0.0.1") as client:

        def search(token: str = "") -> int:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return client.get("/w/away/api/v1/search", params={"q": "away"}, headers=headers).status_code

        wait_until(lambda: is_copied(edge.service.registry))
        assert (search(key), search(), search("wrong")) == (200, 401, 401)
        pg.stop()
        stopped_at = time.monotonic()
        try:
            codes = []
            while not codes or codes[-1] != 503:
                began = time.monotonic()
                codes.append(search(key))
                assert codes[-1] in (200, 503)
                assert codes[-1] == 503 or began < stopped_at + bound_s
            assert codes[0] == 200, "the wiki's own server answers, and so does the copy"
            assert {search(key), search()} == {503}, "closed, whatever the key"
            assert search("wrong") in (401, 503)
        finally:
            pg.start()
        wait_until(lambda: search(key) == 200)


def test_what_a_restore_of_a_database_brings_back_is_found_and_replaced_by_a_move(
    cells: Cells, node: Application
) -> None:
    databases = get_databases(node)
    databases.set_open("far", accept_new=False)
    repository = cells.add_wiki(node, "moved")
    wiki = node.service.registry.get("moved")
    with psycopg.connect(cells.far, autocommit=True) as connection:

        def restore() -> None:
            connection.execute(f"CREATE SCHEMA w_{wiki.id}")
            connection.execute(f"CREATE TABLE w_{wiki.id}.state (name text, text text)")
            connection.execute(f"CREATE TABLE w_{wiki.id}.g1_pages (old text)")

        restore()
        (fault,) = check_isolation(node.service, "moved")
        assert "its schema is also in far" in fault.detail
        assert databases.move(wiki.id, "far"), "the old data is not in the way"
        assert [check.ok for check in check_isolation(node.service, "moved")] == [True]
        assert databases.move(wiki.id, "home")
    assert [check.ok for check in check_isolation(node.service, "moved")] == [True]
    assert databases.move(wiki.id, "far")
    with psycopg.connect(cells.far, autocommit=True) as connection:  # restored to a time before the move
        statement = "SELECT rolname FROM pg_roles WHERE rolname LIKE %s"
        (role,) = connection.execute(statement, (f"w_{wiki.id}%",)).fetchone() or ("",)
        connection.execute(f"DROP SCHEMA w_{wiki.id} CASCADE")
        connection.execute("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = %s", (role,))
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    node.service.get_handle("moved").sync()
    assert [check.ok for check in check_isolation(node.service, "moved")] == [True]
    assert node.service.get_handle("moved").get_indexed_revision() == repository.get_head()


def test_two_names_of_one_database_never_lose_a_wiki(cells: Cells, node: Application) -> None:
    databases = get_databases(node)
    cells.add_wiki(node, "kept")
    wiki_id = node.service.registry.get("kept").id
    databases.move(wiki_id, "far")
    with psycopg.connect(cells.store, autocommit=True) as connection:  # as after a copied row
        connection.execute(
            "INSERT INTO wikiholt.databases SELECT 'twin', dsn, guests, types FROM wikiholt.databases"
            " WHERE name = 'far'"
        )
    databases.get_statuses()
    with pytest.raises(InvalidSetting, match="the same database"):
        databases.move(wiki_id, "twin")
    assert "also in twin" in check_isolation(node.service, "kept")[0].detail
    assert [hit.path for hit in node.service.get_handle("kept").search(SearchRequest("kept")).hits] == ["Page"]
