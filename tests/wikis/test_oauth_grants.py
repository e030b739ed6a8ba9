"""Clients, codes and tokens of agents."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from wikiholt.domain.wiki import Key, Scope
from wikiholt.wikis import oauth_grants
from wikiholt.wikis.oauth_grants import GrantKind, OAuthGrant
from wikiholt.wikis.registry import Registry


def approve(registry: Registry, scope: Scope = Scope.WRITE, expires_at: datetime | None = None) -> tuple[Key, str]:
    """A key of a new wiki, and the code of an agent that its holder approved."""
    wiki = registry.add(f"wiki-{len(registry.list_wikis())}", "/somewhere")
    key, _ = registry.keys.create(wiki.id, scope, "Ada", expires_at)
    registry.oauth.add_client(f"client-of-{wiki.slug}", {"client_name": "Ägent"})
    return key, registry.oauth.approve(OAuthGrant(f"client-of-{wiki.slug}", key.id, wiki.id, str(scope), "resource"))


def test_a_code_becomes_tokens_once(registry: Registry) -> None:
    key, code = approve(registry)
    access, refresh = registry.oauth.exchange(GrantKind.CODE, code) or ("", "")
    grant = registry.oauth.find(GrantKind.ACCESS, access)
    assert grant is not None
    assert (grant.key_id, grant.wiki_id, grant.scope) == (key.id, key.wiki_id, "write")
    assert registry.oauth.exchange(GrantKind.CODE, code) is None
    assert registry.oauth.find(GrantKind.REFRESH, access) is None
    narrow, _ = registry.oauth.exchange(GrantKind.REFRESH, refresh, "read") or ("", "")
    read_only = registry.oauth.find(GrantKind.ACCESS, narrow)
    assert read_only is not None
    assert read_only.scope == "read"
    registry.oauth.revoke(narrow)
    assert registry.oauth.find(GrantKind.ACCESS, narrow) is None


def test_only_one_of_many_exchanges_succeeds(registry: Registry) -> None:
    _, code = approve(registry)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: registry.oauth.exchange(GrantKind.CODE, code), range(8)))
    assert sum(result is not None for result in results) == 1


def test_a_token_ends_with_its_key_and_its_wiki(registry: Registry) -> None:
    for end in ("revoke", "remove"):
        key, code = approve(registry)
        access, refresh = registry.oauth.exchange(GrantKind.CODE, code) or ("", "")
        if end == "revoke":
            registry.keys.revoke(key.id)
        else:
            registry.remove(registry.get_by_id(key.wiki_id or "").slug)
        assert registry.oauth.find(GrantKind.ACCESS, access) is None
        assert registry.oauth.exchange(GrantKind.REFRESH, refresh) is None


def test_a_token_ends_when_its_key_expires(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    key, code = approve(registry, expires_at=datetime.now(UTC) + timedelta(hours=1))
    access, _ = registry.oauth.exchange(GrantKind.CODE, code) or ("", "")
    assert registry.oauth.find(GrantKind.ACCESS, access) is not None

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            assert key.expires_at is not None
            return key.expires_at + timedelta(seconds=1)

    monkeypatch.setattr("wikiholt.domain.wiki.datetime", Later)
    assert registry.oauth.find(GrantKind.ACCESS, access) is None


def test_the_oldest_unapproved_client_makes_room_for_a_new_one(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    approve(registry)
    monkeypatch.setattr(oauth_grants, "_MAX_NEW_CLIENTS", 4)
    monkeypatch.setattr(oauth_grants, "_MAX_NEW_CLIENTS_OF_NETWORK", 2)

    def add(client_id: str, network: str) -> list[str]:
        """Add a client, and return the names of those that are left."""
        registry.oauth.add_client(client_id, {"client_name": client_id}, network)
        return [name for name in ("a", "b1", "b2", "b3", "c", "d") if registry.oauth.find_client(name)]

    add("a", "network a")
    add("b1", "network b")
    assert add("b2", "network b") == ["a", "b1", "b2"]
    assert add("b3", "network b") == ["a", "b2", "b3"]  # the oldest of the same network
    assert add("c", "network c") == ["a", "b2", "b3", "c"]
    assert add("d", "network d") == ["b2", "b3", "c", "d"]  # the oldest of all
    assert registry.oauth.find_client("d") == {"client_name": "d"}
    assert registry.oauth.find_client("client-of-wiki-0") == {"client_name": "Ägent"}
    assert registry.oauth.find_client("nul\0") is None


def test_expired_rows_are_deleted_with_the_next_write(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_CODE_TTL_S", "_NEW_CLIENT_TTL_S"):
        monkeypatch.setattr(oauth_grants, name, -1)
    _, code = approve(registry)
    assert registry.oauth.find(GrantKind.CODE, code) is None
    monkeypatch.undo()
    registry.oauth.add_client("fresh", {})
    with registry.oauth._store.read() as connection:
        assert connection is not None
        names = {name for (name,) in connection.execute("SELECT name FROM grants")}
    assert "new-client-fresh" in names
    assert not [name for name in names if name.startswith("code-")]


def test_a_managed_wiki_is_stored_without_its_path(registry: Registry) -> None:
    wiki = registry.add("notes", "", {"kind": "managed"})
    assert wiki.source.endswith(f"/repositories/{wiki.id}.git")
    assert registry.get("notes") == wiki
    assert registry.update_settings("notes", {"public": "true"}).source == wiki.source
    assert [row[2] for row in registry.read_rows()["wikis"]] == [""]
