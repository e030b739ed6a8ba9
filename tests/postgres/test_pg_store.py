"""What the store in PostgreSQL does beside what every store must: on-boarding, leases, generations, notes."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from pg_stores import EMBEDDER, ONE, OTHER, RECIPE, filled, node
from pg_two import addresses, another, pages, store

from wikiholt.errors import Busy, IndexCorrupt, IndexMissing, InvalidSetting, WikiholtError
from wikiholt.model import Recipe
from wikiholt.stores.postgres import offboarding, placing
from wikiholt.stores.postgres.placing import Condition, Placements
from wikiholt.stores.postgres.store import PostgresStore

__all__ = ["addresses", "another", "store"]

# ── on-boarding ──────────────────────────────────────────────────────────────────────────────────


def test_new_wikis_go_where_fewest_are(store: PostgresStore) -> None:
    made = [store.placements.make(f"aaaaaaaa{number}").database for number in range(8)]
    assert sorted(made) == ["home"] * 4 + ["second"] * 4
    store.placements.home.set_open("home", to_new=False)
    try:
        fresh = Placements(store.placements.home, store.placements._doors)
        assert [fresh.make(f"bbbbbbbb{number}").database for number in range(2)] == ["second"] * 2
    finally:
        store.placements.home.set_open("home", to_new=True)


@pytest.mark.parametrize("database", ["home", "second"])
@pytest.mark.parametrize("killed_at", ["_reserved", "found", "_set_condition"])
def test_on_boarding_that_breaks_off_is_done_by_the_next(
    store: PostgresStore, another: PostgresStore, monkeypatch: pytest.MonkeyPatch, database: str, killed_at: str
) -> None:
    owner = Placements if killed_at == "found" else placing
    really = getattr(owner, killed_at)

    def killed(*given: object) -> None:
        really(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, killed_at, killed)
        with pytest.raises(KeyboardInterrupt):
            store.placements.make(ONE, database)
    with pytest.raises(IndexMissing):
        another.open(ONE)
    assert another.published(ONE) is None
    index = filled(another, ONE)
    assert len(index.pages()) == 3
    index.close()
    assert store.open(ONE).state().pages == 3
    assert store.placements.strays() == []
    store.drop(ONE)
    assert_gone(store)


@pytest.mark.parametrize("database", ["home", "second"])
def test_off_boarding_that_breaks_off_is_done_by_the_next(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    store.placements.make(ONE, database)
    filled(store, ONE).close()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(offboarding, "remove_schema", killed)
        with pytest.raises(KeyboardInterrupt):
            store.drop(ONE)
    assert store.ids() == [ONE], "it is found, and can be removed"
    assert store.holds(ONE)
    with pytest.raises(IndexMissing):
        store.open(ONE)
    assert store.create(ONE, RECIPE).state().pages == 0, "who makes it anew gets nothing of what was to go"
    store.drop(ONE)
    assert_gone(store)


def test_a_schema_that_no_row_knows_is_found_and_can_be_removed(store: PostgresStore) -> None:
    store.placements.make(ONE, "second")
    filled(store, ONE).close()
    with store.placements.home.writing() as connection:
        connection.execute("DELETE FROM placements")
    store.placements.forget(ONE)
    assert store.placements.strays() == [("second", f"w_{ONE}")]
    assert store.ids() == [ONE]
    went = store.drop(ONE)
    assert f"w_{ONE}" in went
    assert any(name.startswith("role w_") for name in went)
    assert_gone(store)


def assert_gone(store: PostgresStore) -> None:
    assert store.ids() == []
    for database in store.placements.home.databases():
        with database.door.reading() as connection:
            assert connection.execute("SELECT nspname FROM pg_namespace WHERE nspname ~ '^w_'").fetchall() == []
            assert (
                connection.execute("SELECT rolname FROM pg_roles WHERE rolname ~ %s", (f"^w_{ONE}",)).fetchall() == []
            )
    with store.placements.home.reading() as connection:
        assert connection.execute("SELECT * FROM placements").fetchall() == []


def test_two_nodes_on_board_a_wiki_at_the_same_time_and_get_one(store: PostgresStore, another: PostgresStore) -> None:
    for turn in range(3):
        with ThreadPoolExecutor(4) as pool:
            nodes = [store, another, store, another]
            made = list(pool.map(lambda node, turn=turn: node.create(f"aaaaaaaa{turn}", RECIPE), nodes))
        assert {index.generation for index in made} == {1}
        assert {node.placements.get(f"aaaaaaaa{turn}").role for node in nodes} == {
            store.placements.get(f"aaaaaaaa{turn}").role
        }


def test_ids_of_any_length_have_names_of_their_own(store: PostgresStore) -> None:
    long = ["x" * 63 + "1", "x" * 63 + "2"]
    for wiki_id in long:
        filled(store, wiki_id, 1).close()
    found = [store.placements.get(wiki_id) for wiki_id in long]
    assert len({each.schema for each in found}) == len({each.role for each in found}) == 2
    assert all(each.condition is Condition.HERE for each in found)
    assert store.ids() == long


def test_a_wiki_dropped_on_one_node_is_gone_on_another(store: PostgresStore, another: PostgresStore) -> None:
    filled(store, ONE).close()
    index = another.open(ONE)
    assert index.state().pages == 3
    store.drop(ONE)
    assert another.published(ONE) is None
    with pytest.raises(IndexMissing):
        index.state()
    filled(store, ONE, 1).close()
    assert another.open(ONE).state().pages == 1, "and back when it is made again"


# ── notes, generations, health ───────────────────────────────────────────────────────────────────


def test_notes_are_kept_with_the_wiki_and_seen_by_all(store: PostgresStore, another: PostgresStore) -> None:
    store.keep_note(ONE, "health", "well")
    assert store.ids() == [], "a wiki that is not here is left so"
    assert store.note(ONE, "health") is None
    store.keep_note(ONE, "health", "well", make=True)
    assert another.note(ONE, "health") == "well"
    another.keep_note(ONE, "health", "better ü \U0001f600")
    assert store.note(ONE, "health") == "better ü \U0001f600"
    assert store.note(ONE, "reindex") is None
    for ours in ("writer", "desk", "layout", "mark"):
        with pytest.raises(ValueError, match="no name"):
            store.keep_note(ONE, ours, "x")
    assert store.note(OTHER, "health") is None


def test_a_broken_generation_is_set_aside_and_kept(store: PostgresStore) -> None:
    index = filled(store, ONE)
    damaged = "UPDATE g1_pages SET name = 'odd' WHERE id = 1"
    with store.door(ONE).writing() as connection:
        connection.execute(damaged)
    with pytest.raises(IndexCorrupt), store.writing(ONE, 0):
        store.prove(ONE, fully=True)
    name = store.set_aside(ONE, "Page 1 is odd!")
    assert name.startswith("broken-")
    assert name.endswith("-page-1-is-odd")
    assert store.aside(ONE) == [name]
    assert store.published(ONE) is None
    with pytest.raises(IndexMissing):
        store.open(ONE)
    anew = filled(store, ONE, 2)
    assert anew.generation == 2, "its number is never another's"
    store.sweep(ONE)
    assert store.aside(ONE) == [name]
    assert len(index.pages()) == 3, "nothing of it was deleted"
    assert store.disk_bytes(ONE) > 0


@pytest.mark.parametrize(
    "loss",
    [
        "DROP TABLE {schema}.state",
        "DROP TABLE {schema}.notes",
        "DROP SCHEMA {schema} CASCADE",
        "DELETE FROM {schema}.state",
        "DROP OWNED BY {role}; DROP ROLE {role}",
        "DROP OWNED BY {role}; DROP ROLE {role}; DROP OWNED BY {guests}; DROP ROLE {guests}",
    ],
)
def test_what_somebody_dropped_is_made_again_by_the_next_writer(store: PostgresStore, loss: str) -> None:
    filled(store, ONE).close()
    placement = store.placements.get(ONE)
    database = store.placements.database(placement)
    names = {"schema": placement.schema, "role": placement.role, "guests": database.guests}
    with database.door.reading() as connection:
        connection.execute(loss.format(**names))
    with store.writing(ONE, 0):
        index = store.create(ONE, RECIPE)
        kept = 3 if "ROLE" in loss else 0
        assert len(index.pages()) == kept, "pages are kept where they were not what was dropped"
        index.apply(pages("a.md"))
        assert index.check() == []
    aside = store.aside(ONE)
    assert len(aside) == ("TABLE" in loss)
    went = store.drop(ONE)
    assert all(name in went for name in aside)
    assert_gone(store)


def test_another_generation_that_is_whole_takes_the_place_of_a_broken_one(store: PostgresStore) -> None:
    filled(store, ONE).close()
    recipe = Recipe("other", EMBEDDER.dimensions, "test")
    beside = store.new_generation(ONE, recipe)
    beside.apply(pages("a.md"))
    half = Recipe("half", EMBEDDER.dimensions, "test")
    with store.door(ONE).writing() as connection:
        connection.execute("UPDATE g1_pages SET name = 'odd' WHERE id = 1")
    store.set_aside(ONE, "odd")
    assert store.published(ONE) == beside.generation
    assert store.open(ONE).state().recipe == recipe
    store.new_generation(ONE, half)
    with store.door(ONE).writing() as connection:
        connection.execute("UPDATE state SET published = false")
    assert store.published(ONE) == beside.generation, "the newest that stands for a revision"
    with store.writing(ONE, 0):
        assert store.regain(ONE)
        assert not store.regain(ONE)


def test_what_was_before_is_swept_once_no_search_can_be_in_it(
    store: PostgresStore, addresses: tuple[str, str], tmp_path: Path
) -> None:
    old = filled(store, ONE)
    new = store.new_generation(ONE, Recipe("other", EMBEDDER.dimensions, "test"))
    new.apply(pages("a.md"))
    store.publish(ONE, new.generation)
    with node(addresses[0], tmp_path / "patient", linger=600) as patient:
        patient.sweep(ONE)
    assert len(old.pages()) == 3
    store.sweep(ONE)
    with pytest.raises(IndexMissing):
        old.pages()
    assert list(store.open(ONE).pages()) == ["a.md"]


def test_a_copy_whose_restoring_broke_off_is_cleared_away(store: PostgresStore, tmp_path: Path) -> None:
    index = filled(store, ONE)
    index.backup(tmp_path / "copy")
    adopted = store.adopt(ONE, tmp_path / "copy")
    with store.writing(ONE, 0):
        with pytest.raises(IndexMissing):
            store.publish(ONE, adopted)
        assert store.published(ONE) == 1


def test_a_node_uses_no_more_connections_than_it_may(addresses: tuple[str, str], tmp_path: Path) -> None:
    with node(addresses[0], tmp_path / "small", connections=2) as small, ExitStack() as held:
        filled(small, ONE).close()
        doors = small.placements._doors
        doors._wait = 0.1
        for _ in range(2):
            held.enter_context(small.door(ONE).snapshot())
        with pytest.raises(Busy) as caught, small.door(ONE).reading():
            pass
        assert caught.value.hint
        held.close()
        assert small.published(ONE) == 1
        small.drop(ONE)


def test_a_database_that_has_gone_silent_keeps_no_connection_from_the_others(store: PostgresStore) -> None:
    for wiki_id, place in ((ONE, "home"), (OTHER, "second")):
        store.placements.make(wiki_id, place)
        filled(store, wiki_id).close()
    store.placements._doors._wait = 0.1
    with ExitStack() as held:
        for _ in range(8):
            held.enter_context(store.door(OTHER).snapshot())  # as if none of them ever ended
        with pytest.raises(Busy):
            held.enter_context(store.door(OTHER).snapshot())
        assert store.open(ONE).state().pages == 3
        with store.door(ONE).snapshot(), store.door(ONE).snapshot():
            pass


@pytest.mark.parametrize("bad", ["", "Home", "with space", "a-b", "home", "x'; DROP"])
def test_a_database_needs_a_name_that_is_one(store: PostgresStore, addresses: tuple[str, str], bad: str) -> None:
    with pytest.raises(InvalidSetting):
        store.placements.home.add_database(bad, addresses[1])
    with pytest.raises(WikiholtError):
        store.placements.home.remove_database(bad)
    assert {each.name for each in store.placements.home.databases()} == {"home", "second"}


def test_a_database_with_wikis_is_not_removed(store: PostgresStore) -> None:
    store.placements.make(ONE, "second")
    with pytest.raises(WikiholtError, match="there are wikis"):
        store.placements.home.remove_database("second")
    store.drop(ONE)
    address = store.placements.home.database("second").address.conninfo
    store.placements.home.remove_database("second")
    assert [each.name for each in store.placements.home.databases()] == ["home"]
    store.placements.home.add_database("second", address)
