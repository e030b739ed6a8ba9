"""A node reads registry and keys from a copy in memory, which follows the home database and is never older than stated.

All tests of the registry pass with it too.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.index.postgres.test_registry import _shared_tests, copy_database, empty, home, restore_database
from tests.support.database_link import DatabaseLink
from tests.support.postgres_registry import is_copied, open_node
from tests.support.postgres_server import PostgresServer
from tests.support.wait import TIMEOUT_S, wait_until
from tests.wikis import test_keys, test_registry
from wikiholt.domain.wiki import Scope, Wiki
from wikiholt.errors import DatabaseUnavailable, IndexCorrupt, WikiNotFound
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.wikis.home_tables import REGISTRY_TABLES, SharedStore
from wikiholt.wikis.registry import Registry

__all__ = ["empty", "home"]

globals().update(_shared_tests(test_registry) | _shared_tests(test_keys))


def follow(registry: Registry, max_age_s: float = TIMEOUT_S) -> None:
    registry.follow(max_age_s)
    wait_until(lambda: is_copied(registry))


def has_newest_copy(registry: Registry) -> bool:
    copy = registry._store._copy
    return copy is not None and copy[2].version == registry.get_version()


@pytest.fixture
def registry(empty: Catalog, tmp_path: Path) -> Iterator[Registry]:
    with closing(open_node(empty, tmp_path)) as made:
        follow(made)
        yield made


@pytest.fixture
def elsewhere(registry: Registry, empty: Catalog, tmp_path: Path) -> Iterator[Registry]:
    """Another node, which has its own copy."""
    with closing(open_node(empty, tmp_path / "elsewhere")) as made:
        follow(made)
        yield made


@pytest.fixture
def garden(registry: Registry) -> Wiki:
    return registry.add("garden", "/srv/garden", {"hosts": "garden.example"})


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: SharedStore) -> None:
        raise AssertionError("the home database was asked")

    monkeypatch.setattr(SharedStore, "read", refuse)
    monkeypatch.setattr(SharedStore, "read_snapshot", refuse)


def test_what_a_search_asks_is_answered_without_the_home(
    registry: Registry, garden: Wiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, token = registry.keys.create(garden.id, Scope.READ)
    wait_until(lambda: is_copied(registry))
    forbid_reading(monkeypatch)
    assert registry.keys.find_by_token(token) == key
    assert registry.get_by_id(garden.id) == registry.get("garden") == registry.get_only() == garden
    assert registry.find_by_host("garden.example:443") == garden
    assert registry.find_by_host("other.example") is None
    assert registry.list_wikis() == [garden]
    assert registry.keys.has_ever_had_any()


def test_a_process_reads_what_it_has_written_at_once(registry: Registry, garden: Wiki) -> None:
    for number in range(5):
        wait_until(lambda: has_newest_copy(registry))
        key, token = registry.keys.create(garden.id, Scope.READ)
        assert registry.keys.find_by_token(token) == key
        assert (
            registry.update_settings("garden", {"url": f"https://{number}"}).settings == registry.get("garden").settings
        )
        registry.keys.revoke(key.id)
        assert registry.keys.find_by_token(token) is None


def test_what_another_node_adds_is_found_at_once_and_what_it_takes_away_soon(
    registry: Registry, garden: Wiki, elsewhere: Registry
) -> None:
    wait_until(lambda: elsewhere.find_by_host("garden.example") == garden and is_copied(elsewhere))
    for number in range(5):
        key, token = registry.keys.create(garden.id, Scope.READ)
        assert elsewhere.keys.find_by_token(token) == key
        wiki = registry.add(f"new-{number}", "/srv/new")
        assert elsewhere.get(wiki.slug) == elsewhere.get_by_id(wiki.id) == wiki
        registry.keys.revoke(key.id)
        wait_until(lambda token=token: elsewhere.keys.find_by_token(token) is None)  # type: ignore[misc]
    changed = registry.update_settings("garden", {"hosts": "moved.example", "public": "true"})
    wait_until(lambda: elsewhere.find_by_host("moved.example") == changed == elsewhere.get("garden"))
    assert elsewhere.find_by_host("garden.example") is None
    registry.remove("garden")
    wait_until(lambda: "garden" not in [wiki.slug for wiki in elsewhere.list_wikis()])
    with pytest.raises(WikiNotFound):
        elsewhere.get("garden")


def test_what_is_read_after_the_version_is_at_least_of_that_version(
    registry: Registry, garden: Wiki, elsewhere: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_until(lambda: elsewhere.list_wikis() == [garden] and is_copied(elsewhere))
    # A notification that is late.
    monkeypatch.setattr(elsewhere._store, "_check_version", registry._store._check_version)
    added = registry.add("second", "/srv/second")
    assert elsewhere.get_version() == registry.get_version()
    assert elsewhere.list_wikis() == [garden, added]


@pytest.mark.parametrize("way", ["revoked", "removed"])
def test_a_key_revoked_while_a_node_cannot_reach_the_home_stops_within_the_bound(
    pg: PostgresServer, tmp_path: Path, way: str
) -> None:
    address, bound_s = pg.create_database(), 1.0
    link = DatabaseLink(pg, tmp_path / "link", address)
    with (
        closing(Catalog(address, (REGISTRY_TABLES,))) as near,
        closing(Catalog(link.address, (REGISTRY_TABLES,))) as far,
        closing(open_node(near, tmp_path / "near")) as node,
        closing(open_node(far, tmp_path / "far")) as cut_off,
    ):
        garden = node.add("garden", "/srv/garden")
        key, token = node.keys.create(garden.id, Scope.READ)
        _, other_token = node.keys.create(garden.id, Scope.READ)
        assert cut_off.keys.find_by_token(token) == key
        follow(cut_off, bound_s)
        with link.disconnected():
            cut_at = time.monotonic()
            wait_until(lambda: _revoke(node, key.id, way))
            assert 0 < _ask_until_refused(cut_off, token, cut_at + bound_s) < cut_at + bound_s
            for refused in (token, other_token, f"{token[:-1]}z"):  # fails closed, whatever the key
                with pytest.raises(DatabaseUnavailable):
                    cut_off.keys.find_by_token(refused)
            with pytest.raises(DatabaseUnavailable):
                cut_off.get("garden")
            with pytest.raises(DatabaseUnavailable):
                cut_off.keys.has_ever_had_any()
        wait_until(lambda: is_copied(cut_off))
        assert cut_off.keys.find_by_token(token) is None
        assert (cut_off.keys.find_by_token(other_token) is None) == (way == "removed")
    pg.drop_database(address)


def _revoke(node: Registry, key_id: str, way: str) -> bool:
    try:
        if way == "revoked":
            node.keys.revoke(key_id)
        else:
            node.remove("garden")
    except DatabaseUnavailable:  # its connection was closed too
        return False
    return True


def _ask_until_refused(registry: Registry, token: str, until: float) -> float:
    """When the last request began that was answered from the copy."""
    answered_at = 0.0
    while True:
        began = time.monotonic()
        assert answered_at < until, "answered for too long"
        try:
            assert registry.keys.find_by_token(token) is not None
        except DatabaseUnavailable:
            return answered_at
        answered_at = began


def test_after_a_restore_of_the_home_a_revoked_key_never_works(empty: Catalog, tmp_path: Path) -> None:
    with closing(open_node(empty, tmp_path / "a")) as one, closing(open_node(empty, tmp_path / "b")) as other:
        garden = one.add("garden", "/srv/garden")
        valid, valid_token = one.keys.create(garden.id, Scope.READ)
        revoked, revoked_token = one.keys.create(garden.id, Scope.ADMIN)
        copied = copy_database(empty)
        for node in (one, other):
            follow(node, 1.0)
        one.keys.revoke(revoked.id)
        other.get_version()  # as its thread does after the notification
        restore_database(empty, copied)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            for node in (one, other):
                assert node.keys.find_by_token(revoked_token) is None
                assert node.keys.find_by_token(valid_token) == valid
        with closing(open_node(empty, tmp_path / "new")) as started:  # the home has the revocation again
            assert started.keys.find_by_token(revoked_token) is None


def test_rows_changed_by_hand_never_reach_the_copy(empty: Catalog, tmp_path: Path) -> None:
    with closing(open_node(empty, tmp_path)) as registry:
        garden = registry.add("garden", "/srv/garden")
        key, token = registry.keys.create(garden.id, Scope.READ)
        follow(registry, 0.5)
        with empty.write_transaction() as connection:
            connection.execute("UPDATE keys SET wiki_id = NULL")
            connection.execute("UPDATE state SET value = 'other' WHERE name = 'version'")

        def is_refused() -> bool:
            try:
                assert registry.keys.find_by_token(token) == key
            except IndexCorrupt:
                return True
            return False

        wait_until(is_refused)
