"""A wiki moves to another database while it answers. Killing the move loses nothing."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest

from tests.support.fork_server import run_forked
from tests.support.paths import ROOT
from tests.support.postgres_server import PostgresServer
from tests.support.postgres_stores import EMBEDDER, RECIPE, WIKI_ID, create_filled_index, open_node_store
from tests.support.tiers import choose
from tests.support.wait import wait_until
from wikiholt.domain.index import IndexChange
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.errors import Busy, InvalidSetting
from wikiholt.index.postgres import move
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.testing.fakes import make_entry

NEEDLE_QUERY = KeywordQuery(terms=("needle",))
QUIET_S = move._QUIET_S
_PAUSE_S = choose(0, 10) / 1000
"""Seconds between the searches of a thread."""


@pytest.fixture(scope="module")
def store_and_address(
    pg: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[PostgresStore, str]]:
    """Two databases, and the address of the first. Shared, because creating a database is slow."""
    first, second = pg.create_database(), pg.create_database()
    with open_node_store(first, tmp_path_factory.mktemp("node")) as made:
        made.placements.catalog.add_database("second", second)
        yield made, first
    pg.drop_database(first)
    pg.drop_database(second)


@pytest.fixture
def database(store_and_address: tuple[PostgresStore, str]) -> str:
    return store_and_address[1]


@pytest.fixture
def store(store_and_address: tuple[PostgresStore, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresStore]:
    """A store without wikis, whose first wiki is created in the home database."""
    monkeypatch.setattr(move, "_QUIET_S", 0.2)
    made, _ = store_and_address
    made.placements.provision(WIKI_ID, "home")
    yield made
    for wiki_id in made.list_wiki_ids():
        made.delete(wiki_id)


def list_schemas(store: PostgresStore) -> dict[str, list[str]]:
    """The wiki schemas of each database."""
    found = {}
    for database in store.placements.catalog.list_databases():
        with database.connections.read_connection() as connection:
            rows = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'w\\_%' ORDER BY 1")
            found[database.name] = [name for (name,) in rows]
    return found


def list_roles(store: PostgresStore) -> int:
    with store.placements.catalog.read_connection() as connection:
        return connection.execute("SELECT count(*) FROM pg_roles WHERE rolname LIKE %s", (f"w_{WIKI_ID}%",)).fetchall()[
            0
        ][0]


class SearchThreads:
    """Threads that search a wiki like a service, each on its own node, until stopped."""

    def __init__(self, stores: list[PostgresStore], wiki_id: str, pages: int) -> None:
        self.stopped, self.search_count, self.errors = Event(), 0, []
        self._wiki_id, self._pages = wiki_id, pages
        self._threads = [Thread(target=self._search, args=(store,)) for store in stores]

    def __enter__(self) -> "SearchThreads":
        for thread in self._threads:
            thread.start()
        wait_until(lambda: self.search_count > 20)
        return self

    def __exit__(self, *_: object) -> None:
        turns = self.search_count
        wait_until(lambda: self.search_count > turns + 20 or self.errors)
        self.stopped.set()
        for thread in self._threads:
            thread.join()

    def _search(self, store: PostgresStore) -> None:
        index = store.open(self._wiki_id)
        while not self.stopped.wait(_PAUSE_S):
            try:
                if store.get_published(self._wiki_id) != index.generation:
                    index.close()
                    index = store.open(self._wiki_id)
                found = len(index.search_keywords(NEEDLE_QUERY, 100, PageFilter()))
                near = len(index.search_vectors(EMBEDDER.embed_query("needle"), 100, None).chunk_ids)
                listed, _ = index.list_pages(PageFilter(), 5)
                if (found, near, listed) != (self._pages,) * 3:
                    self.errors.append((found, near, listed))
            except Exception as error:  # noqa: BLE001
                self.errors.append(error)
            self.search_count += 1
        index.close()


def test_a_wiki_answers_while_it_is_moved(
    store: PostgresStore, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "_QUIET_S", QUIET_S)  # a search on a busy machine rests between two statements
    create_filled_index(store, WIKI_ID, 30).close()
    with open_node_store(database, tmp_path / "b") as b, open_node_store(database, tmp_path / "c", connections=1) as c:
        with SearchThreads([b, b, c], WIKI_ID, 30) as searchers:
            for to in ("second", "home", "second"):
                assert move.move_wiki(store, WIKI_ID, to)
                assert store.placements.get(WIKI_ID).database == to
        assert searchers.errors == []
        assert b.placements.get(WIKI_ID).database == "second"
    assert not move.move_wiki(store, WIKI_ID, "second"), "the wiki has moved"
    assert list_schemas(store) == {"home": [], "second": [f"w_{WIKI_ID}"]}
    assert list_roles(store) == 1
    assert move.find_unfinished_moves(store.placements) == []


def test_a_move_copies_everything(store: PostgresStore) -> None:
    index = create_filled_index(store, WIKI_ID, 5)
    index.apply(IndexChange(deleted=("3.md",), revision="r2"))
    before = index.get_state(), dict(index.get_page_blobs()), index.get_page_chunks([1, 2])
    store.set_note(WIKI_ID, "health", "well")
    broken = store.create_generation(WIKI_ID, RECIPE)
    broken.apply(IndexChange(pages=(make_entry("x.md", ["x"], EMBEDDER),)))
    with store.write_lock(WIKI_ID, 0):
        pass
    stamp = store.get_change_token(WIKI_ID)
    with store.activity_lock(WIKI_ID) as leave:
        leave("half way")
        assert move.move_wiki(store, WIKI_ID, "second")
        assert store.get_activity(WIKI_ID) == "half way"
        leave("further")
        assert store.get_activity(WIKI_ID) == "further"
        with pytest.raises(Busy), store.activity_lock(WIKI_ID):
            pass
    assert store.get_activity(WIKI_ID) is None
    assert (index.get_state(), dict(index.get_page_blobs()), index.get_page_chunks([1, 2])) == before, (
        "the same index, in the new database"
    )
    assert index.check() == []
    assert store.get_note(WIKI_ID, "health") == "well"
    assert store.get_change_token(WIKI_ID) == stamp
    assert list(broken.get_page_blobs()) == ["x.md"]
    assert index.apply(IndexChange(pages=(make_entry("new.md", ["new"], EMBEDDER),))) == before[0].version + 1
    with store.write_lock(WIKI_ID, 0):
        index.apply(IndexChange(revision="r3"))


STEPS = (
    *("_provision_target", "_copy_generations", "_verify_copy", "_switch_placement"),
    *("_mark_moved", "_wait_until_quiet", "_remove_leftover"),
)


@pytest.mark.parametrize(("when", "step"), [("before", STEPS[0]), *(("after", step) for step in STEPS)])
def test_an_interrupted_move_can_be_repeated(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    create_filled_index(store, WIKI_ID, 3).close()
    really = getattr(move, step)

    def broken(*given: object) -> None:
        if when == "after":
            really(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(move, step, broken)
        with pytest.raises(KeyboardInterrupt):
            move.move_wiki(store, WIKI_ID, "second")
    index = store.open(WIKI_ID)
    assert len(index.search_keywords(NEEDLE_QUERY, 10, PageFilter())) == 3, "it answers in either database"
    with store.write_lock(WIKI_ID, 30):
        index.apply(IndexChange(pages=(make_entry("more.md", ["needle"], EMBEDDER),), revision="r2"))
    index.close()
    move.move_wiki(store, WIKI_ID, "second")
    moved = store.open(WIKI_ID)
    assert sorted(moved.get_page_blobs()) == ["0.md", "1.md", "2.md", "more.md"], (
        "changes made after the interruption are kept"
    )
    assert moved.check() == []
    moved.close()
    assert list_schemas(store) == {"home": [], "second": [f"w_{WIKI_ID}"]}
    assert list_roles(store) == 1
    assert move.find_unfinished_moves(store.placements) == []


_MOVER_SCRIPT = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.postgres_stores import WIKI_ID, open_node_store
from wikiholt.index.postgres import move

really = move._switch_placement

def killed(*given):
    really(*given)
    os.kill(os.getpid(), signal.SIGKILL)

move._switch_placement = killed
with open_node_store(sys.argv[2], Path(sys.argv[3]), lease=1.0) as store:
    move.move_wiki(store, WIKI_ID, "second")
"""


def test_after_a_killed_move_the_wiki_answers_and_is_writable(
    store: PostgresStore, database: str, tmp_path: Path
) -> None:
    index = create_filled_index(store, WIKI_ID, 3)
    command = [sys.executable, "-c", _MOVER_SCRIPT, ROOT, database, tmp_path / "mover"]
    ended = run_forked(command, check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    assert len(index.search_keywords(NEEDLE_QUERY, 10, PageFilter())) == 3
    with store.write_lock(WIKI_ID, 60):
        index.apply(IndexChange(pages=(make_entry("more.md", ["needle"], EMBEDDER),), revision="r2"))
    assert store.placements.get(WIKI_ID).database == "second"
    assert move.find_unfinished_moves(store.placements) == [WIKI_ID]
    assert move.finish_move(store, WIKI_ID)
    assert len(index.search_keywords(NEEDLE_QUERY, 10, PageFilter())) == 4
    assert list_schemas(store) == {"home": [], "second": [f"w_{WIKI_ID}"]}


def test_removing_a_wiki_after_an_interrupted_move_leaves_nothing_in_either_database(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_filled_index(store, WIKI_ID, 3).close()
    monkeypatch.setattr(move, "_verify_copy", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        move.move_wiki(store, WIKI_ID, "second")
    assert store.list_wiki_ids() == [WIKI_ID]
    went = store.delete(WIKI_ID)
    assert len([name for name in went if name.startswith("role")]) == 2
    assert list_schemas(store) == {"home": [], "second": []}
    assert list_roles(store) == 0
    assert move.find_unfinished_moves(store.placements) == []


def test_an_operator_without_superuser_rights_moves_a_wiki_that_is_being_read(
    pg: PostgresServer, tmp_path: Path
) -> None:
    databases = [pg.create_database(), pg.create_database()]
    names = [str(psycopg.conninfo.conninfo_to_dict(address)["dbname"]) for address in databases]
    with psycopg.connect(pg.get_dsn(), autocommit=True) as connection:
        connection.execute("CREATE ROLE mover LOGIN CREATEROLE PASSWORD 'x'")
        for name in names:
            connection.execute(f"GRANT CREATE ON DATABASE {name} TO mover")
    first, second = (pg.get_dsn(name, "mover", "x") for name in names)
    with open_node_store(first, tmp_path / "a") as here, open_node_store(first, tmp_path / "b") as there:
        here.placements.catalog.add_database("second", second)
        here.placements.provision(WIKI_ID, "home")
        create_filled_index(here, WIKI_ID, 3).close()
        with SearchThreads([there], WIKI_ID, 3) as searchers:
            assert move.move_wiki(here, WIKI_ID, "second")
        assert searchers.errors == []
        assert list_schemas(here) == {"home": [], "second": [f"w_{WIKI_ID}"]}
        assert list_roles(here) == 1
        here.delete(WIKI_ID)
        assert list_roles(here) == 0
        groups = [database.group for database in here.placements.catalog.list_databases()]
    for address in databases:
        pg.drop_database(address)
    with psycopg.connect(pg.get_dsn(), autocommit=True) as connection:
        connection.execute("DROP OWNED BY mover")
        connection.execute(f"DROP ROLE {', '.join(groups)}, mover")


def test_a_wiki_that_is_being_written_is_not_moved(store: PostgresStore) -> None:
    create_filled_index(store, WIKI_ID, 3).close()
    with store.write_lock(WIKI_ID, 0), pytest.raises(Busy):
        move.move_wiki(store, WIKI_ID, "second", timeout_s=0.1)
    assert store.placements.get(WIKI_ID).database == "home"
    with pytest.raises(InvalidSetting):
        move.move_wiki(store, WIKI_ID, "nowhere")
