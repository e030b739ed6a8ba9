"""The registry in PostgreSQL passes the tests of the registry file, and tests with several nodes."""

import inspect
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres_registry import open_node
from tests.support.postgres_server import PostgresServer
from tests.support.wait import TIMEOUT_S, wait_until
from tests.wikis import test_keys, test_oauth_grants, test_registry
from tests.wikis.sign_in_cases import SignInCases
from wikiholt.domain.wiki import Scope, Wiki
from wikiholt.errors import Busy, DatabaseUnavailable, IndexCorrupt, InvalidSetting, WikiExists
from wikiholt.index.backup_directory import BackupPolicy
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.wikis.home_tables import (
    REGISTRY_TABLES,
    describe_leftover_schemas,
)
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.registry_schema import TABLE_COLUMNS
from wikiholt.wikis.registry_store import LeftoverData

_FILE_ONLY_TESTS = {
    "test_ten_thousand_wikis_are_registered_in_seconds_and_one_more_is_not_slower",
    "test_finding_a_wiki_is_cheap",
}


def _shared_tests(module: object) -> dict[str, Callable[..., None]]:
    """Registry tests that do not depend on where the registry is stored."""
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_") and name not in _FILE_ONLY_TESTS
        if "registry" in (parameters := inspect.signature(test).parameters) and "path" not in parameters
    }


globals().update(_shared_tests(test_registry) | _shared_tests(test_keys) | _shared_tests(test_oauth_grants))


class TestSignIns(SignInCases):
    """Sign-ins in the same database."""


@pytest.fixture(scope="module")
def home(pg: PostgresServer) -> Iterator[Catalog]:
    address = pg.create_database()
    with closing(Catalog(address, (REGISTRY_TABLES,))) as made:
        yield made
    pg.drop_database(address)


@pytest.fixture
def empty(home: Catalog) -> Catalog:
    with home.write_transaction() as connection:
        for table in (*TABLE_COLUMNS, "grants", "sign_ins"):
            connection.execute(f"DELETE FROM {table}")
    return home


@pytest.mark.parametrize("left", ["backups of the registry", "schemas of wikis"])
def test_a_lost_home_database_is_not_mistaken_for_a_new_one(pg: PostgresServer, tmp_path: Path, left: str) -> None:
    address = pg.create_database()

    @contextmanager
    def node(place: Path) -> Iterator[Registry]:
        with closing(Catalog(address, (REGISTRY_TABLES,))) as home:
            remains = LeftoverData(
                place / "wikis", place / "backups", lambda: describe_leftover_schemas(home), place / "registry.sqlite"
            )
            yield open_node(home, place, leftovers=remains)

    with node(tmp_path) as first:
        first.keys.create(first.add("garden", "/srv/garden").id, Scope.READ)
        first.backups.create()
    with psycopg.connect(address) as database:
        database.execute("DROP SCHEMA wikiholt CASCADE")
        if left == "schemas of wikis":
            database.execute("CREATE SCHEMA w_abcdefghijklmnopqrst")
    place = tmp_path if left == "backups of the registry" else tmp_path / "another node"
    if left == "backups of the registry":
        left = "older copy"
    with node(place) as lost:
        for act in (lost.list_wikis, lost.keys.has_ever_had_any, lambda: lost.add("garden", "/srv/garden")):
            with pytest.raises(IndexCorrupt, match=left) as caught:
                act()
            assert "wikiholt restore --registry" in caught.value.hint
        if place == tmp_path:
            lost.backups.restore()
            assert [wiki.slug for wiki in lost.list_wikis()] == ["garden"]
        else:
            lost.backups.start_empty()
            assert lost.add("garden", "/srv/garden").settings == {"public": "false"}
        assert lost.keys.has_ever_had_any()
    pg.drop_database(address)


def test_a_home_database_older_than_the_first_key_is_not_taken_for_the_latest(empty: Catalog, tmp_path: Path) -> None:
    with closing(open_node(empty, tmp_path)) as first:
        garden = first.add("garden", "/srv/garden")
        first.keys.create(garden.id, Scope.READ)
        first.backups.create()
        with empty.write_transaction() as connection:
            for table in ("keys", "revoked"):
                connection.execute(f"DELETE FROM {table}")
    older = open_node(empty, tmp_path, leftovers=LeftoverData(tmp_path / "wikis", tmp_path / "backups"))
    with pytest.raises(IndexCorrupt, match="older copy"):
        older.keys.has_ever_had_any()
    older.backups.restore()
    assert older.keys.has_ever_had_any()


@pytest.fixture
def registry(empty: Catalog, tmp_path: Path) -> Iterator[Registry]:
    with closing(open_node(empty, tmp_path)) as made:
        yield made


@pytest.fixture
def garden(registry: Registry) -> Wiki:
    return registry.add("garden", "/srv/garden")


def test_the_tests_of_the_file_are_run_here_too() -> None:
    assert {"test_a_slug_is_unique", "test_a_revoked_key_grants_nothing"} <= set(globals())


def test_of_two_nodes_that_add_one_slug_at_once_one_succeeds(pg: PostgresServer, database: str, tmp_path: Path) -> None:
    homes = [Catalog(database, (REGISTRY_TABLES,), lock_timeout_s=TIMEOUT_S) for _ in range(2)]
    outcomes: list[str] = []
    ready = threading.Barrier(8)

    def add(number: int) -> None:
        node = open_node(homes[number % 2], tmp_path)
        ready.wait()
        try:
            outcomes.append(node.add("garden", f"/srv/{number}").source)
        except WikiExists:
            outcomes.append("refused")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("refused") == 7
    with closing(open_node(homes[0], tmp_path)) as registry:
        assert registry.get("garden").source in outcomes
    for home in homes:
        home.close()


def test_a_key_revoked_on_one_node_is_refused_on_another_at_once(
    registry: Registry, garden: Wiki, empty: Catalog, tmp_path: Path
) -> None:
    elsewhere = open_node(empty, tmp_path / "elsewhere")
    key, token = registry.keys.create(garden.id, Scope.READ)
    assert elsewhere.keys.find_by_token(token) == key
    elsewhere.keys.revoke(key.id)
    assert registry.keys.find_by_token(token) is None


def test_the_mark_changes_with_the_registry_and_only_then(registry: Registry) -> None:
    before = registry.get_version()
    assert registry.get_version() == before
    wiki = registry.add("garden", "/srv/garden")
    added = registry.get_version()
    assert added != before
    assert registry.get("garden") == wiki
    assert registry.get_version() == added


def test_a_node_that_locks_the_registry_makes_others_busy_and_blocks_no_reader(
    registry: Registry, garden: Wiki, empty: Catalog, tmp_path: Path
) -> None:
    hasty = open_node(empty, tmp_path / "hasty", timeout=0.05)
    with registry._store.write() as writer:
        writer.insert("hosts", ("in.the.middle", "nobody"))
        assert hasty.list_wikis() == [garden]
        with pytest.raises(Busy):
            hasty.add("other", "/srv/other")
    assert hasty.add("other", "/srv/other").slug == "other"


@pytest.mark.parametrize("order", ["UPDATE keys SET wiki_id = NULL", "DELETE FROM state"])
def test_rows_changed_by_hand_are_damage_and_a_backup_replaces_them(
    registry: Registry, garden: Wiki, empty: Catalog, order: str
) -> None:
    key, token = registry.keys.create(garden.id, Scope.READ)
    taken = registry.backups.create()
    with empty.write_transaction() as connection:
        connection.execute(order)
    registry.close()
    with pytest.raises(IndexCorrupt):
        registry.list_wikis()
    restored = registry.backups.restore()
    assert restored.backup.name == taken.name
    assert registry.list_wikis() == [garden]
    assert registry.keys.find_by_token(token) == key
    with empty.write_transaction() as connection:
        connection.execute(f"DROP SCHEMA {restored.quarantined_as} CASCADE")


def test_a_backup_of_it_can_be_restored_to_a_registry_file(registry: Registry, garden: Wiki, tmp_path: Path) -> None:
    _, token = registry.keys.create(garden.id, Scope.READ, "ключ")
    registry.backups.create()
    plan = BackupPolicy(tmp_path / "backups", 5)
    (tmp_path / "data").mkdir()
    shutil.copy(tmp_path / "revoked", tmp_path / "data" / "revoked")
    with closing(Registry(tmp_path / "data" / "registry.sqlite", backups=plan)) as file:
        file.backups.restore()
        assert file.list_wikis() == [garden]
        assert file.keys.find_by_token(token) == registry.keys.find_by_token(token)
        assert file.read_rows() == registry.read_rows()


def restore_database(home: Catalog, tables: dict[str, list[tuple[object, ...]]]) -> None:
    """Restore the registry's tables to the state that `copy_database` returned."""
    with home.write_transaction() as connection:
        for table, rows in tables.items():
            connection.execute(f"DELETE FROM {table}")
            for row in rows:
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(row))})", row)


def copy_database(home: Catalog) -> dict[str, list[tuple[object, ...]]]:
    with home.read_connection() as connection:
        return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in (*TABLE_COLUMNS, "state")}


@pytest.mark.parametrize("reader", ["the node that revoked", "a node that read", "a new node"])
def test_after_a_restore_of_the_database_revoked_keys_and_removed_wikis_stay_gone(
    registry: Registry, garden: Wiki, empty: Catalog, tmp_path: Path, reader: str
) -> None:
    registry.add("removed", "/srv/removed")
    valid, valid_token = registry.keys.create(garden.id, Scope.READ)
    revoked, revoked_token = registry.keys.create(garden.id, Scope.ADMIN)
    elsewhere = open_node(empty, tmp_path / "elsewhere")
    assert elsewhere.get_version() == registry.get_version()
    copied = copy_database(empty)
    registry.keys.revoke(revoked.id)
    registry.remove("removed")
    elsewhere.get_version()  # as every running node does now and then
    restore_database(empty, copied)
    for running in (registry, elsewhere):
        assert running.keys.find_by_token(revoked_token) is None
        assert [wiki.slug for wiki in running.list_wikis()] == ["garden"]
    places = {"the node that revoked": tmp_path, "a node that read": tmp_path / "elsewhere"}
    if reader == "a new node":  # once one of the others has noticed the restore
        registry.get_version()
    started = open_node(empty, places.get(reader, tmp_path / "new"))
    assert started.keys.find_by_token(revoked_token) is None
    assert started.keys.find_by_token(valid_token) == valid
    assert [wiki.slug for wiki in started.list_wikis()] == ["garden"]
    assert [key.id for key in started.keys.list()] == [valid.id]
    assert started.add("removed", "/srv/new")


def test_a_node_whose_lists_are_missing_gets_them_from_the_database(
    registry: Registry, garden: Wiki, empty: Catalog, tmp_path: Path
) -> None:
    key, token = registry.keys.create(garden.id, Scope.READ)
    registry.keys.revoke(key.id)
    for file in (tmp_path / "revoked", tmp_path / "backups" / "registry" / "revoked"):
        file.unlink()
    started = open_node(empty, tmp_path)
    assert started.keys.find_by_token(token) is None
    assert len((tmp_path / "revoked").read_text().splitlines()) == 2


@pytest.mark.parametrize("source", ["/srv/\0", "/srv/\udcff"], ids=["nul", "half"])
def test_text_that_postgresql_cannot_store_is_refused_and_nothing_changes(registry: Registry, source: str) -> None:
    before = registry.add("before", "/srv", {"odd": "\0 and \U0001f33f"})
    mark = registry.get_version()
    with pytest.raises(InvalidSetting) as caught:
        registry.add_many([("good", "/srv/good", {}), ("bad", source, {})])
    assert caught.value.hint
    assert registry.list_wikis() == [before]
    assert registry.get_version() == mark


def test_a_registry_with_an_unavailable_database_raises_and_recovers(
    pg: PostgresServer, database: str, tmp_path: Path
) -> None:
    with closing(Catalog(database, (REGISTRY_TABLES,))) as home, closing(open_node(home, tmp_path)) as registry:
        wiki = registry.add("garden", "/srv/garden")
        _, token = registry.keys.create(wiki.id, Scope.READ)
        pg.stop()
        try:
            for ask in (
                registry.list_wikis,
                lambda: registry.keys.find_by_token(token),
                lambda: registry.add("other", "/srv"),
            ):
                with pytest.raises(DatabaseUnavailable) as caught:
                    ask()
                assert caught.value.retry_after > 0
        finally:
            pg.start()
        with psycopg.connect(database) as connection:
            assert connection.execute("SELECT count(*) FROM wikiholt.wikis").fetchone() == (1,)
        _wait_until_back(registry, wiki)


def _wait_until_back(registry: Registry, wiki: Wiki) -> None:
    def there() -> bool:
        try:
            return registry.list_wikis() == [wiki]
        except DatabaseUnavailable:
            return False

    wait_until(there)
