"""Keys: shown once, stored as digests, always checked against the current state by every process."""

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wikis.registry_rows import overwrite_column
from wikiholt.domain.wiki import Scope, Wiki
from wikiholt.errors import IndexCorrupt, InvalidSetting, KeyNotFound, WikiNotFound
from wikiholt.wikis.registry import Registry

HOUR = timedelta(hours=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry.sqlite"


@pytest.fixture
def garden(registry: Registry) -> Wiki:
    return registry.add("garden", "/srv/garden")


def test_a_token_grants_the_wiki_it_was_made_for(registry: Registry, garden: Wiki) -> None:
    key, token = registry.keys.create(garden.id, Scope.WRITE, "the editor", datetime.now(UTC) + HOUR)
    assert registry.keys.find_by_token(token) == key
    assert (key.wiki_id, key.scope, key.label) == (garden.id, Scope.WRITE, "the editor")
    assert re.fullmatch(r"wh_[a-z2-7]{12}_[a-z2-7]{40}", token)
    assert token.split("_")[1] == key.id


def test_only_a_digest_is_stored(registry: Registry, garden: Wiki, path: Path) -> None:
    _, token = registry.keys.create(garden.id, Scope.READ)
    registry.close()
    on_disk = b"".join(file.read_bytes() for file in path.parent.rglob("*") if file.is_file())
    assert token.split("_")[2].encode() not in on_disk
    assert token.encode() not in on_disk


def test_every_key_is_unique(registry: Registry, garden: Wiki) -> None:
    made = [registry.keys.create(garden.id, Scope.READ) for _ in range(50)]
    assert len({key.id for key, _ in made}) == len({token for _, token in made}) == 50


def test_keys_are_listed_of_one_wiki_or_all_oldest_first(registry: Registry, garden: Wiki) -> None:
    other = registry.add("runbook", "/srv/runbook")
    first, _ = registry.keys.create(garden.id, Scope.READ)
    second, _ = registry.keys.create(other.id, Scope.READ)
    third, _ = registry.keys.create(None, Scope.ADMIN)
    assert registry.keys.list() == [first, second, third]
    assert registry.keys.list(garden.id) == [first]
    assert registry.keys.list("nobody") == []


def test_a_revoked_key_grants_nothing(registry: Registry, garden: Wiki) -> None:
    key, token = registry.keys.create(garden.id, Scope.READ)
    kept, kept_token = registry.keys.create(garden.id, Scope.READ)
    assert registry.keys.revoke(key.id) == key
    assert registry.keys.find_by_token(token) is None
    assert registry.keys.find_by_token(kept_token) == kept
    with pytest.raises(KeyNotFound):
        registry.keys.revoke(key.id)


def test_a_wiki_can_revoke_only_its_own_keys(registry: Registry, garden: Wiki) -> None:
    other = registry.add("runbook", "/srv/runbook")
    key, token = registry.keys.create(other.id, Scope.READ)
    operator, _ = registry.keys.create(None, Scope.ADMIN)
    for foreign in (key.id, operator.id, "absent"):
        with pytest.raises(KeyNotFound) as caught:
            registry.keys.revoke(foreign, wiki_id=garden.id)
        assert "runbook" not in f"{caught.value} {caught.value.hint}"
    assert registry.keys.find_by_token(token) == key
    assert registry.keys.revoke(key.id, wiki_id=other.id) == key


def test_an_expired_key_grants_nothing_but_still_counts_as_a_key(registry: Registry, garden: Wiki, path: Path) -> None:
    key, token = registry.keys.create(garden.id, Scope.READ, "", datetime.now(UTC) + HOUR)
    assert registry.keys.find_by_token(token) == key
    overwrite_column(path, "keys", "expires_at", (datetime.now(UTC) - HOUR).isoformat())
    assert registry.keys.find_by_token(token) is None
    assert registry.keys.has_any()


def test_an_expiry_in_another_time_zone_is_the_same_moment(registry: Registry, garden: Wiki) -> None:
    when = datetime.now(timezone(timedelta(hours=9))) + HOUR
    key, token = registry.keys.create(garden.id, Scope.READ, "", when)
    assert registry.keys.find_by_token(token) == key
    assert registry.keys.list()[0].expires_at == when


@pytest.mark.parametrize(
    ("scope", "label", "expires"),
    [
        (Scope.READ, "x" * 201, None),
        (Scope.READ, "two\nlines", None),
        (Scope.READ, "nul\0", None),
        (Scope.READ, "half \udcff", None),
        (Scope.READ, "", datetime.now(UTC) - HOUR),
        (Scope.READ, "", datetime(2099, 1, 1)),  # noqa: DTZ001 - no time zone is the point
    ],
)
def test_an_invalid_key_is_not_created(
    registry: Registry, garden: Wiki, scope: Scope, label: str, expires: datetime | None
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        registry.keys.create(garden.id, scope, label, expires)
    assert caught.value.hint
    assert registry.keys.list() == []
    assert not registry.keys.has_ever_had_any()


@pytest.mark.parametrize("scope", [Scope.READ, Scope.WRITE])
def test_an_operators_key_cannot_have_a_lower_scope(registry: Registry, scope: Scope) -> None:
    with pytest.raises(InvalidSetting):
        registry.keys.create(None, scope)
    assert not registry.keys.has_any()


def test_a_missing_wiki_gets_no_key(registry: Registry, garden: Wiki) -> None:
    with pytest.raises(WikiNotFound):
        registry.keys.create("a" * 20, Scope.READ)
    assert registry.keys.list() == []


def test_before_the_first_key_no_file_is_created(registry: Registry, path: Path) -> None:
    assert not registry.keys.has_any()
    assert not registry.keys.has_ever_had_any()
    assert registry.keys.list() == []
    assert registry.keys.find_by_token("wh_" + "a" * 12 + "_" + "a" * 40) is None
    assert not path.exists()


def test_the_existence_of_a_first_key_is_remembered(registry: Registry, garden: Wiki) -> None:
    key, _ = registry.keys.create(garden.id, Scope.READ)
    registry.keys.revoke(key.id)
    assert not registry.keys.has_any()
    assert registry.keys.has_ever_had_any()
    registry.keys.create(garden.id, Scope.READ)
    registry.remove("garden")
    assert not registry.keys.has_any()
    assert registry.keys.has_ever_had_any()


def test_changes_of_another_process_take_effect_at_once(registry: Registry, garden: Wiki, path: Path) -> None:
    with closing(Registry(path)) as elsewhere:
        assert not registry.keys.has_any()
        key, token = elsewhere.keys.create(garden.id, Scope.READ)
        assert registry.keys.has_any()
        assert registry.keys.find_by_token(token) == key
        elsewhere.keys.revoke(key.id)
        assert registry.keys.find_by_token(token) is None


def test_keys_are_removed_with_their_wiki_and_no_others(registry: Registry, garden: Wiki) -> None:
    other = registry.add("runbook", "/srv/runbook")
    gone = [registry.keys.create(garden.id, Scope.READ) for _ in range(3)]
    kept, kept_token = registry.keys.create(other.id, Scope.READ)
    struck = registry.remove("garden")
    assert sorted(key.id for key in struck.keys) == sorted(key.id for key, _ in gone)
    assert all(registry.keys.find_by_token(token) is None for _, token in gone)
    assert registry.keys.find_by_token(kept_token) == kept
    registry.add("garden", "/srv/garden")
    assert all(registry.keys.find_by_token(token) is None for _, token in gone)


def test_a_changed_setting_leaves_the_keys_alone(registry: Registry, garden: Wiki) -> None:
    key, token = registry.keys.create(garden.id, Scope.READ)
    registry.update_settings("garden", {"public": "true", "hosts": "garden.example.org"})
    assert registry.keys.find_by_token(token) == key


@pytest.mark.parametrize("column", ["wiki_id", "scope", "digest", "expires_at", "label"])
def test_a_key_that_was_changed_on_disk_is_damage(registry: Registry, garden: Wiki, path: Path, column: str) -> None:
    registry.add("runbook", "/srv/runbook")
    registry.keys.create(garden.id, Scope.READ)
    registry.close()
    overwrite_column(path, "keys", column, "admin" if column == "scope" else registry.get("runbook").id, checked=False)
    registry.close()
    with pytest.raises(IndexCorrupt):
        registry.keys.has_any()


def test_an_unreadable_key_is_damage(registry: Registry, garden: Wiki, path: Path) -> None:
    _, token = registry.keys.create(garden.id, Scope.READ)
    overwrite_column(path, "keys", "scope", "everything")
    with pytest.raises(IndexCorrupt):
        registry.keys.find_by_token(token)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Registry, str]]:
    with closing(Registry(tmp_path_factory.mktemp("keys") / "registry.sqlite")) as made:
        yield made, made.keys.create(made.add("garden", "/srv").id, Scope.READ)[1]


@pytest.mark.slow
@given(text=st.text() | st.from_regex(r"wh_[a-z2-7]{12}_[a-z2-7]{40}", fullmatch=True))
def test_no_other_text_grants_anything(guarded: tuple[Registry, str], text: str) -> None:
    registry, _ = guarded
    assert registry.keys.find_by_token(text) is None


@given(data=st.data())
def test_only_the_exact_token_grants_anything(guarded: tuple[Registry, str], data: st.DataObject) -> None:
    registry, token = guarded
    place = data.draw(st.integers(0, len(token)))
    less = data.draw(st.integers(0, 2))
    more = data.draw(st.text(alphabet="abcdwh_27ABC \n\0é", max_size=2))
    changed = token[:place] + more + token[place + less :]
    assert (registry.keys.find_by_token(changed) is not None) == (changed == token)
