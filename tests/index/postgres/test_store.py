"""The PostgreSQL store beyond the conformance suite: provisioning, leases, generations, notes."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.postgres_stores import (
    EMBEDDER,
    OTHER_WIKI_ID,
    RECIPE,
    WIKI_ID,
    addresses,
    another,
    create_filled_index,
    make_change,
    open_node_store,
    store,
)
from wikiholt.domain.index import Recipe
from wikiholt.errors import Busy, IndexMissing, InvalidSetting, WikiholtError
from wikiholt.index.postgres import placements, provision
from wikiholt.index.postgres.placements import PlacementCatalog, PlacementCondition
from wikiholt.index.postgres.store import PostgresStore

__all__ = ["addresses", "another", "store"]

# ── provisioning ──────────────────────────────────────────────────────────────────────────────────


def test_an_empty_wiki_has_eight_relations(store: PostgresStore) -> None:
    """Tables, indexes and TOAST tables: each costs files, and thousands of wikis share a server."""
    store.create(WIKI_ID, RECIPE).close()
    statement = (
        "WITH own AS (SELECT oid, reltoastrelid FROM pg_class WHERE relnamespace = current_schema()::regnamespace)"
        " SELECT count(*) FROM pg_class WHERE oid IN (SELECT oid FROM own) OR oid IN (SELECT reltoastrelid FROM own)"
        " OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN (SELECT reltoastrelid FROM own))"
    )
    with store.get_connections(WIKI_ID).read_connection() as connection:
        assert connection.execute(statement).fetchone() == (8,)


def test_new_wikis_go_to_the_database_with_the_fewest_wikis(store: PostgresStore) -> None:
    made = [store.placements.provision(f"aaaaaaaa{number}").database for number in range(8)]
    assert sorted(made) == ["home"] * 4 + ["second"] * 4
    store.placements.catalog.set_open("home", accept_new=False)
    try:
        fresh = PlacementCatalog(store.placements.catalog, store.placements._pool)
        assert [fresh.provision(f"bbbbbbbb{number}").database for number in range(2)] == ["second"] * 2
    finally:
        store.placements.catalog.set_open("home", accept_new=True)


@pytest.mark.parametrize("killed_at", ["reserve_placement", "provision_schema", "write_condition"])
def test_interrupted_provisioning_is_finished_by_the_next_node(
    store: PostgresStore, another: PostgresStore, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    owner = PlacementCatalog if killed_at == "provision_schema" else placements
    really = getattr(owner, killed_at)

    def killed(*given: object) -> None:
        really(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, killed_at, killed)
        with pytest.raises(KeyboardInterrupt):
            store.placements.provision(WIKI_ID, "second")
    with pytest.raises(IndexMissing):
        another.open(WIKI_ID)
    assert another.get_published(WIKI_ID) is None
    index = create_filled_index(another, WIKI_ID)
    assert len(index.get_page_blobs()) == 3
    index.close()
    assert store.open(WIKI_ID).get_state().pages == 3
    assert store.placements.find_orphans() == []
    store.delete(WIKI_ID)
    assert_removed(store)


@pytest.mark.parametrize("database", ["home", "second"])
def test_an_interrupted_removal_is_finished_by_the_next_node(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    store.placements.provision(WIKI_ID, database)
    create_filled_index(store, WIKI_ID).close()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(provision, "remove_schema", killed)
        with pytest.raises(KeyboardInterrupt):
            store.delete(WIKI_ID)
    assert store.list_wiki_ids() == [WIKI_ID], "the wiki is found and can be removed"
    assert store.exists(WIKI_ID)
    with pytest.raises(IndexMissing):
        store.open(WIKI_ID)
    assert store.create(WIKI_ID, RECIPE).get_state().pages == 0, "a new wiki contains nothing of the removed one"
    store.delete(WIKI_ID)
    assert_removed(store)


def test_an_orphaned_schema_is_found_and_can_be_removed(store: PostgresStore) -> None:
    store.placements.provision(WIKI_ID, "second")
    create_filled_index(store, WIKI_ID).close()
    with store.placements.catalog.write_transaction() as connection:
        connection.execute("DELETE FROM placements")
    store.placements.invalidate(WIKI_ID)
    assert store.placements.find_orphans() == [("second", f"w_{WIKI_ID}")]
    assert store.list_wiki_ids() == [WIKI_ID]
    went = store.delete(WIKI_ID)
    assert f"w_{WIKI_ID}" in went
    assert any(name.startswith("role w_") for name in went)
    assert_removed(store)


def assert_removed(store: PostgresStore) -> None:
    assert store.list_wiki_ids() == []
    for database in store.placements.catalog.list_databases():
        with database.connections.read_connection() as connection:
            assert connection.execute("SELECT nspname FROM pg_namespace WHERE nspname ~ '^w_'").fetchall() == []
            assert (
                connection.execute("SELECT rolname FROM pg_roles WHERE rolname ~ %s", (f"^w_{WIKI_ID}",)).fetchall()
                == []
            )
    with store.placements.catalog.read_connection() as connection:
        assert connection.execute("SELECT * FROM placements").fetchall() == []


def test_two_nodes_that_provision_a_wiki_at_the_same_time_create_one(
    store: PostgresStore, another: PostgresStore
) -> None:
    for turn in range(3):
        with ThreadPoolExecutor(4) as pool:
            nodes = [store, another, store, another]
            made = list(pool.map(lambda node, turn=turn: node.create(f"aaaaaaaa{turn}", RECIPE), nodes))
        assert {index.generation for index in made} == {1}
        assert {node.placements.get(f"aaaaaaaa{turn}").role for node in nodes} == {
            store.placements.get(f"aaaaaaaa{turn}").role
        }


def test_ids_of_any_length_have_unique_names(store: PostgresStore) -> None:
    long = ["x" * 63 + "1", "x" * 63 + "2"]
    for wiki_id in long:
        create_filled_index(store, wiki_id, 1).close()
    found = [store.placements.get(wiki_id) for wiki_id in long]
    assert len({each.schema for each in found}) == len({each.role for each in found}) == 2
    assert all(each.condition is PlacementCondition.READY for each in found)
    assert store.list_wiki_ids() == long


def test_a_wiki_removed_on_one_node_is_gone_on_another(store: PostgresStore, another: PostgresStore) -> None:
    create_filled_index(store, WIKI_ID).close()
    index = another.open(WIKI_ID)
    assert index.get_state().pages == 3
    store.delete(WIKI_ID)
    assert another.get_published(WIKI_ID) is None
    with pytest.raises(IndexMissing):
        index.get_state()
    create_filled_index(store, WIKI_ID, 1).close()
    assert another.open(WIKI_ID).get_state().pages == 1, "and found after it is created again"


# ── notes, generations, health ───────────────────────────────────────────────────────────────────


def test_notes_are_kept_with_the_wiki_and_seen_by_all(store: PostgresStore, another: PostgresStore) -> None:
    store.set_note(WIKI_ID, "health", "well")
    assert store.list_wiki_ids() == [], "a missing wiki is not created"
    assert store.get_note(WIKI_ID, "health") is None
    store.set_note(WIKI_ID, "health", "well", create=True)
    assert another.get_note(WIKI_ID, "health") == "well"
    another.set_note(WIKI_ID, "health", "better ü \U0001f600")
    assert store.get_note(WIKI_ID, "health") == "better ü \U0001f600"
    assert store.get_note(WIKI_ID, "reindex") is None
    for ours in ("writer", "activity", "layout", "mark"):
        with pytest.raises(ValueError, match="reserved"):
            store.set_note(WIKI_ID, ours, "x")
    assert store.get_note(OTHER_WIKI_ID, "health") is None


def test_a_broken_generation_is_quarantined(store: PostgresStore) -> None:
    index = create_filled_index(store, WIKI_ID)
    damaged = "UPDATE g1_pages SET name = 'odd' WHERE id = 1"
    with store.get_connections(WIKI_ID).write_transaction() as connection:
        connection.execute(damaged)
    assert index.check() == ["page 1 is not as it was written"]
    name = store.quarantine(WIKI_ID, "Page 1 is odd!")
    assert name.startswith("broken-")
    assert name.endswith("-page-1-is-odd")
    assert store.list_quarantined(WIKI_ID) == [name]
    assert store.get_published(WIKI_ID) is None
    with pytest.raises(IndexMissing):
        store.open(WIKI_ID)
    recreated = create_filled_index(store, WIKI_ID, 2)
    assert recreated.generation == 2, "its number is never used again"
    store.remove_old_generations(WIKI_ID)
    assert store.list_quarantined(WIKI_ID) == [name]
    assert len(index.get_page_blobs()) == 3, "nothing was deleted"
    assert store.get_disk_bytes(WIKI_ID) > 0


@pytest.mark.parametrize(
    "loss",
    [
        "DROP TABLE {schema}.state",
        "ALTER TABLE {schema}.state DROP COLUMN name",
        "DROP SCHEMA {schema} CASCADE",
        "DELETE FROM {schema}.state",
        "DELETE FROM {schema}.state WHERE name <> 'layout'",
        "DROP OWNED BY {role}; DROP ROLE {role}",
        "DROP OWNED BY {role}; DROP ROLE {role}; DROP OWNED BY {guests}; DROP ROLE {guests}",
    ],
)
def test_dropped_tables_are_created_again_by_the_next_writer(store: PostgresStore, loss: str) -> None:
    create_filled_index(store, WIKI_ID).close()
    placement = store.placements.get(WIKI_ID)
    database = store.placements.get_database(placement)
    names = {"schema": placement.schema, "role": placement.role, "guests": database.group}
    with database.connections.read_connection() as connection:
        connection.execute(loss.format(**names))
    with store.write_lock(WIKI_ID, 0):
        index = store.create(WIKI_ID, RECIPE)
        kept = 3 if "ROLE" in loss else 0
        assert len(index.get_page_blobs()) == kept, "pages are kept unless they were dropped"
        index.apply(make_change("a.md"))
        assert index.check() == []
    aside = store.list_quarantined(WIKI_ID)
    assert len(aside) == ("TABLE" in loss or loss.endswith(".state"))
    went = store.delete(WIKI_ID)
    assert all(name in went for name in aside)
    assert_removed(store)


def test_an_intact_generation_replaces_a_broken_one(store: PostgresStore) -> None:
    create_filled_index(store, WIKI_ID).close()
    recipe = Recipe("other", EMBEDDER.dimensions, "test")
    beside = store.create_generation(WIKI_ID, recipe)
    beside.apply(make_change("a.md"))
    half = Recipe("half", EMBEDDER.dimensions, "test")
    with store.get_connections(WIKI_ID).write_transaction() as connection:
        connection.execute("UPDATE g1_pages SET name = 'odd' WHERE id = 1")
    store.quarantine(WIKI_ID, "odd")
    assert store.get_published(WIKI_ID) == beside.generation
    assert store.open(WIKI_ID).get_state().recipe == recipe
    store.create_generation(WIKI_ID, half)
    with store.get_connections(WIKI_ID).write_transaction() as connection:
        connection.execute("UPDATE state SET published = false")
    assert store.get_published(WIKI_ID) == beside.generation, "the newest with a revision"
    with store.write_lock(WIKI_ID, 0):
        assert store.recover_published(WIKI_ID)
        assert not store.recover_published(WIKI_ID)


def test_an_old_generation_is_removed_after_no_search_can_use_it(
    store: PostgresStore, addresses: tuple[str, str], tmp_path: Path
) -> None:
    old = create_filled_index(store, WIKI_ID)
    new = store.create_generation(WIKI_ID, Recipe("other", EMBEDDER.dimensions, "test"))
    new.apply(make_change("a.md"))
    store.publish(WIKI_ID, new.generation)
    with open_node_store(addresses[0], tmp_path / "patient", linger=600) as patient:
        patient.remove_old_generations(WIKI_ID)
    assert len(old.get_page_blobs()) == 3
    store.remove_old_generations(WIKI_ID)
    with pytest.raises(IndexMissing):
        old.get_page_blobs()
    assert list(store.open(WIKI_ID).get_page_blobs()) == ["a.md"]


def test_a_copy_of_an_interrupted_restore_is_removed(store: PostgresStore, tmp_path: Path) -> None:
    index = create_filled_index(store, WIKI_ID)
    index.write_backup(tmp_path / "copy")
    adopted = store.import_backup(WIKI_ID, tmp_path / "copy")
    with store.write_lock(WIKI_ID, 0):
        with pytest.raises(IndexMissing):
            store.publish(WIKI_ID, adopted)
        assert store.get_published(WIKI_ID) == 1


def test_a_node_respects_its_connection_limit(addresses: tuple[str, str], tmp_path: Path) -> None:
    with open_node_store(addresses[0], tmp_path / "small", connections=2) as small, ExitStack() as snapshots:
        create_filled_index(small, WIKI_ID).close()
        pool = small.placements._pool
        pool._wait_timeout_s = 0.1
        for _ in range(2):
            snapshots.enter_context(small.get_connections(WIKI_ID).read_snapshot())
        with pytest.raises(Busy) as caught, small.get_connections(WIKI_ID).read_connection():
            pass
        assert caught.value.hint
        snapshots.close()
        assert small.get_published(WIKI_ID) == 1
        small.delete(WIKI_ID)


def test_a_silent_database_takes_no_connections_from_others(store: PostgresStore) -> None:
    for wiki_id, place in ((WIKI_ID, "home"), (OTHER_WIKI_ID, "second")):
        store.placements.provision(wiki_id, place)
        create_filled_index(store, wiki_id).close()
    store.placements._pool._wait_timeout_s = 0.1
    with ExitStack() as snapshots:
        for _ in range(8):
            snapshots.enter_context(
                store.get_connections(OTHER_WIKI_ID).read_snapshot()
            )  # as if none of them ever ended
        with pytest.raises(Busy):
            snapshots.enter_context(store.get_connections(OTHER_WIKI_ID).read_snapshot())
        assert store.open(WIKI_ID).get_state().pages == 3
        with store.get_connections(WIKI_ID).read_snapshot(), store.get_connections(WIKI_ID).read_snapshot():
            pass


@pytest.mark.parametrize("bad", ["", "Home", "with space", "a-b", "home", "x'; DROP"])
def test_an_invalid_database_name_is_refused(store: PostgresStore, addresses: tuple[str, str], bad: str) -> None:
    with pytest.raises(InvalidSetting):
        store.placements.catalog.add_database(bad, addresses[1])
    with pytest.raises(WikiholtError):
        store.placements.catalog.remove_database(bad)
    assert {each.name for each in store.placements.catalog.list_databases()} == {"home", "second"}


def test_a_database_with_wikis_is_not_removed(store: PostgresStore) -> None:
    store.placements.provision(WIKI_ID, "second")
    with pytest.raises(WikiholtError, match="there are wikis"):
        store.placements.catalog.remove_database("second")
    store.delete(WIKI_ID)
    address = store.placements.catalog.get_database("second").address.conninfo
    store.placements.catalog.remove_database("second")
    assert [each.name for each in store.placements.catalog.list_databases()] == ["home"]
    store.placements.catalog.add_database("second", address)
