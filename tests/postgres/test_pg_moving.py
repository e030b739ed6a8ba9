"""A wiki moves to another database while it answers, and whoever is killed in the middle of it loses nothing."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest
from pg_server import PgServer
from pg_stores import EMBEDDER, ONE, RECIPE, filled, node
from pg_waiting import until

from wikiholt import embedding
from wikiholt.errors import Busy, InvalidSetting
from wikiholt.model import Change, Filter, Recipe, WordQuery
from wikiholt.stores.postgres import moving
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.testing.entries import entry

NEEDLE = WordQuery(terms=("needle",))


@pytest.fixture(scope="module")
def farm(pg: PgServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PostgresStore, str]]:
    """Two databases, and the address of the first: a wiki is made in no time, a database is not."""
    first, second = pg.new_database(), pg.new_database()
    with node(first, tmp_path_factory.mktemp("node"), lease=1.0) as made:
        made.placements.home.add_database("second", second)
        yield made, first
    pg.drop_database(first)
    pg.drop_database(second)


@pytest.fixture
def database(farm: tuple[PostgresStore, str]) -> str:
    return farm[1]


@pytest.fixture
def store(farm: tuple[PostgresStore, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresStore]:
    """A farm without wikis, and its first one comes to the home."""
    monkeypatch.setattr(moving, "_QUIET", 0.2)
    made, _ = farm
    made.placements.make(ONE, "home")
    yield made
    for wiki_id in made.ids():
        made.drop(wiki_id)


def schemas(store: PostgresStore) -> dict[str, list[str]]:
    """Which wikis' schemas each database holds."""
    found = {}
    for database in store.placements.home.databases():
        with database.door.reading() as connection:
            rows = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'w\\_%' ORDER BY 1")
            found[database.name] = [name for (name,) in rows]
    return found


def roles(store: PostgresStore) -> int:
    with store.placements.home.reading() as connection:
        return connection.execute("SELECT count(*) FROM pg_roles WHERE rolname LIKE %s", (f"w_{ONE}%",)).fetchall()[0][
            0
        ]


class Searchers:
    """Threads that search a wiki as a service does, on nodes of their own, and never stop."""

    def __init__(self, stores: list[PostgresStore], wiki_id: str, pages: int) -> None:
        self.done, self.turns, self.faults = Event(), 0, []
        self._wiki_id, self._pages = wiki_id, pages
        self._threads = [Thread(target=self._search, args=(store,)) for store in stores]

    def __enter__(self) -> "Searchers":
        for thread in self._threads:
            thread.start()
        until(lambda: self.turns > 20)
        return self

    def __exit__(self, *_: object) -> None:
        turns = self.turns
        until(lambda: self.turns > turns + 20 or self.faults)
        self.done.set()
        for thread in self._threads:
            thread.join()

    def _search(self, store: PostgresStore) -> None:
        index = store.open(self._wiki_id)
        while not self.done.is_set():
            try:
                if store.published(self._wiki_id) != index.generation:
                    index.close()
                    index = store.open(self._wiki_id)
                found = len(index.words(NEEDLE, 100, Filter()))
                near = len(index.nearest(EMBEDDER.query("needle"), 100, None).chunk_ids)
                listed, _ = index.list_pages(Filter(), 5)
                if (found, near, listed) != (self._pages,) * 3:
                    self.faults.append((found, near, listed))
            except Exception as error:  # noqa: BLE001
                self.faults.append(error)
            self.turns += 1
        index.close()


def test_a_wiki_answers_all_the_time_it_is_moved(store: PostgresStore, database: str, tmp_path: Path) -> None:
    filled(store, ONE, 30).close()
    with node(database, tmp_path / "b") as b, node(database, tmp_path / "c", connections=1) as c:
        with Searchers([b, b, c], ONE, 30) as searchers:
            for to in ("second", "home", "second"):
                assert moving.move(store, ONE, to)
                assert store.placements.get(ONE).database == to
        assert searchers.faults == []
        assert b.placements.get(ONE).database == "second"
    assert not moving.move(store, ONE, "second"), "it is there"
    assert schemas(store) == {"home": [], "second": [f"w_{ONE}"]}
    assert roles(store) == 1
    assert moving.unfinished(store.placements) == []


def test_everything_goes_along(store: PostgresStore) -> None:
    index = filled(store, ONE, 5)
    index.apply(Change(deleted=("3.md",), revision="r2"))
    before = index.state(), dict(index.pages()), index.page_chunks([1, 2])
    store.keep_note(ONE, "health", "well")
    broken = store.new_generation(ONE, RECIPE)
    broken.apply(Change(pages=(entry("x.md", ["x"], EMBEDDER),)))
    with store.writing(ONE, 0):
        pass
    stamp = store.stamp(ONE)
    with store.sitting(ONE) as leave:
        leave("half way")
        assert moving.move(store, ONE, "second")
        assert store.seated(ONE) == "half way"
        leave("further")
        assert store.seated(ONE) == "further"
        with pytest.raises(Busy), store.sitting(ONE):
            pass
    assert store.seated(ONE) is None
    assert (index.state(), dict(index.pages()), index.page_chunks([1, 2])) == before, "the same index, at the new place"
    assert index.check() == []
    assert store.note(ONE, "health") == "well"
    assert store.stamp(ONE) == stamp
    assert store.sealed(ONE)
    assert list(broken.pages()) == ["x.md"]
    assert index.apply(Change(pages=(entry("new.md", ["new"], EMBEDDER),))) == before[0].version + 1
    with store.writing(ONE, 0):
        index.apply(Change(revision="r3"))


STEPS = ("_begun", "_copied", "_verified", "_switched", "_tell", "_await_quiet", "_remove")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_move_that_breaks_off_anywhere_can_be_made_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    filled(store, ONE, 3).close()
    really = getattr(moving, step)

    def broken(*given: object) -> None:
        if when == "after":
            really(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(moving, step, broken)
        with pytest.raises(KeyboardInterrupt):
            moving.move(store, ONE, "second")
    index = store.open(ONE)
    assert len(index.words(NEEDLE, 10, Filter())) == 3, "it answers, wherever it is"
    with store.writing(ONE, 30):
        index.apply(Change(pages=(entry("more.md", ["needle"], EMBEDDER),), revision="r2"))
    index.close()
    moving.move(store, ONE, "second")
    moved = store.open(ONE)
    assert sorted(moved.pages()) == ["0.md", "1.md", "2.md", "more.md"], "what was written after the break is there"
    assert moved.check() == []
    moved.close()
    assert schemas(store) == {"home": [], "second": [f"w_{ONE}"]}
    assert roles(store) == 1
    assert moving.unfinished(store.placements) == []


_MOVER = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from pg_stores import ONE, node
from wikiholt.stores.postgres import moving

really = moving._switched

def killed(*given):
    really(*given)
    os.kill(os.getpid(), signal.SIGKILL)

moving._switched = killed
with node(sys.argv[2], Path(sys.argv[3]), lease=1.0) as store:
    moving.move(store, ONE, "second")
"""


def test_a_mover_that_is_killed_leaves_a_wiki_that_answers_and_is_written(
    store: PostgresStore, database: str, tmp_path: Path
) -> None:
    index = filled(store, ONE, 3)
    here = Path(__file__).parent
    ended = subprocess.run([sys.executable, "-c", _MOVER, here, database, tmp_path / "mover"], check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    assert len(index.words(NEEDLE, 10, Filter())) == 3
    with store.writing(ONE, 60):
        index.apply(Change(pages=(entry("more.md", ["needle"], EMBEDDER),), revision="r2"))
    assert store.placements.get(ONE).database == "second"
    assert moving.unfinished(store.placements) == [ONE]
    assert moving.finish(store, ONE)
    assert len(index.words(NEEDLE, 10, Filter())) == 4
    assert schemas(store) == {"home": [], "second": [f"w_{ONE}"]}


def test_removing_a_wiki_whose_move_broke_off_leaves_nothing_at_either_place(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store, ONE, 3).close()
    monkeypatch.setattr(moving, "_verified", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        moving.move(store, ONE, "second")
    assert store.ids() == [ONE]
    went = store.drop(ONE)
    assert len([name for name in went if name.startswith("role")]) == 2
    assert schemas(store) == {"home": [], "second": []}
    assert roles(store) == 0
    assert moving.unfinished(store.placements) == []


def test_an_operator_that_is_no_superuser_moves_a_wiki_that_is_being_read(
    pg: PgServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_QUIET", 0.2)
    databases = [pg.new_database(), pg.new_database()]
    names = [str(psycopg.conninfo.conninfo_to_dict(address)["dbname"]) for address in databases]
    with psycopg.connect(pg.dsn(), autocommit=True) as connection:
        connection.execute("CREATE ROLE mover LOGIN CREATEROLE PASSWORD 'x'")
        for name in names:
            connection.execute(f"GRANT CREATE ON DATABASE {name} TO mover")
    first, second = (pg.dsn(name, "mover", "x") for name in names)
    with node(first, tmp_path / "a") as here, node(first, tmp_path / "b") as there:
        here.placements.home.add_database("second", second)
        here.placements.make(ONE, "home")
        filled(here, ONE, 3).close()
        with Searchers([there], ONE, 3) as searchers:
            assert moving.move(here, ONE, "second")
        assert searchers.faults == []
        assert schemas(here) == {"home": [], "second": [f"w_{ONE}"]}
        assert roles(here) == 1
        here.drop(ONE)
        assert roles(here) == 0
        groups = [each.guests for each in here.placements.home.databases()]
    for address in databases:
        pg.drop_database(address)
    with psycopg.connect(pg.dsn(), autocommit=True) as connection:
        connection.execute("DROP OWNED BY mover")
        connection.execute(f"DROP ROLE {', '.join(groups)}, mover")


@pytest.mark.real_model
def test_vectors_of_the_real_model_are_the_same_at_the_new_place(store: PostgresStore) -> None:
    model = embedding.load()
    texts = ["how to bake bread", "restoring a database from its backup", "cycling in the Alps"]
    index = store.create(ONE, Recipe(model.fingerprint, model.dimensions, "test"))
    made = [entry(f"{number}.md", [text], EMBEDDER) for number, text in enumerate(texts)]
    vectors = model.passages(texts)
    pages = tuple(replace(each, vectors=vectors[at : at + 1]) for at, each in enumerate(made))
    index.apply(Change(pages=pages, revision="r1"))
    before = index.nearest(model.query("recovering lost data"), 3, None)
    assert before.chunk_ids[0] == 2
    assert moving.move(store, ONE, "second")
    after = index.nearest(model.query("recovering lost data"), 3, None)
    assert (after.chunk_ids.tolist(), after.distances.tolist()) == (
        before.chunk_ids.tolist(),
        before.distances.tolist(),
    )


def test_a_wiki_that_is_being_written_is_not_moved(store: PostgresStore) -> None:
    filled(store, ONE, 3).close()
    with store.writing(ONE, 0), pytest.raises(Busy):
        moving.move(store, ONE, "second", timeout=0.1)
    assert store.placements.get(ONE).database == "home"
    with pytest.raises(InvalidSetting):
        moving.move(store, ONE, "nowhere")
