"""Persons: groups give access to wikis, as keys do."""

from pathlib import Path

import pytest

from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.wiki import Person, PersonOrigin, Scope
from wikiholt.errors import Forbidden, InvalidSetting, Unauthorized, WikiNotFound
from wikiholt.wikis.access import AccessPolicy, RequestIdentity
from wikiholt.wikis.people import GroupRules, check_group_rule
from wikiholt.wikis.registry import Registry

RULES = ("editors=garden:write", "staff=*:read", "admins=operator", "CN=Leads,=runbook:admin", "*=open:read")


def make_person(*groups: str, name: str = "") -> Person:
    return Person(PersonOrigin.PROXY, "ada", name, "", groups)


def make_identity(person: Person, slug: str | None = None) -> RequestIdentity:
    return RequestIdentity(slug=slug, host="127.0.0.1", loopback=True, signed_in=person)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path / "registry.sqlite")
    for slug in ("garden", "runbook"):
        registry.add(slug, f"/srv/{slug}")
    return registry


@pytest.fixture
def access(registry: Registry) -> AccessPolicy:
    return AccessPolicy(registry, domain="", public=False, own_hosts=(), rules=GroupRules(RULES), requires_sign_in=True)


@pytest.mark.parametrize(
    ("groups", "slug", "scope"),
    [
        (("editors",), "garden", Scope.WRITE),
        (("editors",), "runbook", None),
        (("staff",), "runbook", Scope.READ),
        (("editors", "staff"), "garden", Scope.WRITE),
        (("CN=Leads,",), "runbook", Scope.ADMIN),
        (("Editors", "editors "), "garden", None),
        ((), "garden", None),
        ((), "open", Scope.READ),
        (("admins",), "garden", None),  # operators need no scope
    ],
)
def test_the_highest_scope_of_all_groups_counts(groups: tuple[str, ...], slug: str, scope: Scope | None) -> None:
    assert GroupRules(RULES).get_scope(make_person(*groups), slug) == scope


@pytest.mark.parametrize(
    "rule", ["", "editors", "editors=", "=garden:read", "editors=garden", "editors=garden:owner", "editors=../x:read"]
)
def test_an_invalid_rule_is_an_error(rule: str) -> None:
    assert "GROUP=WIKI:SCOPE" in check_group_rule(rule)
    with pytest.raises(InvalidSetting):
        GroupRules([rule])


def test_not_everyone_can_be_an_operator(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as caught:
        load_settings(tmp_path, overrides={"people.groups": ["*=operator"]})
    assert "people.groups" in caught.value.message


def test_a_person_gets_a_grant_of_one_wiki(access: AccessPolicy) -> None:
    grant = access.authorize(make_identity(make_person("editors"), "garden"), Scope.WRITE)
    assert (grant.wiki.slug, grant.scope, grant.key) == ("garden", Scope.WRITE, None)
    assert grant.client == make_person("editors")
    # The only wiki that the person can read need not be named.
    assert access.authorize(make_identity(make_person("editors")), Scope.READ).wiki.slug == "garden"
    with pytest.raises(WikiNotFound):
        access.authorize(make_identity(make_person("staff")), Scope.READ)


def test_a_missing_wiki_looks_like_a_private_one(access: AccessPolicy) -> None:
    errors = []
    for slug in ("runbook", "nosuch"):
        with pytest.raises(Forbidden) as caught:
            access.authorize(make_identity(make_person("editors"), slug), Scope.READ)
        errors.append((caught.value.message, caught.value.hint))
    assert errors[0] == errors[1]


def test_a_scope_is_not_exceeded(access: AccessPolicy) -> None:
    with pytest.raises(Forbidden) as caught:
        access.authorize(make_identity(make_person("editors"), "garden"), Scope.ADMIN)
    assert "your groups have write" in caught.value.message


def test_operators_manage_all_wikis_and_others_none(access: AccessPolicy) -> None:
    operator = make_identity(make_person("admins"))
    assert access.is_operator(access.require_operator(operator))
    assert access.authorize(make_identity(make_person("admins"), "runbook"), Scope.ADMIN).scope is Scope.ADMIN
    assert len(access.list_visible(operator)) == 2
    with pytest.raises(Forbidden):
        access.require_operator(make_identity(make_person("editors", "staff")))


def test_a_search_covers_the_readable_wikis(access: AccessPolicy) -> None:
    def search(*groups: str, slugs: tuple[str, ...] = ()) -> list[str]:
        return [grant.wiki.slug for grant in access.authorize_search(make_identity(make_person(*groups)), slugs)]

    assert search("staff") == ["garden", "runbook"]
    assert search("editors") == ["garden"]
    with pytest.raises(Forbidden):
        search("editors", slugs=("garden", "runbook"))
    with pytest.raises(Forbidden):
        search()


def test_public_wikis_can_be_read_without_a_group(registry: Registry, access: AccessPolicy) -> None:
    registry.update_settings("runbook", {"public": "true"})
    assert access.authorize(make_identity(make_person(), "runbook"), Scope.READ).scope is Scope.READ
    assert [wiki.slug for wiki in access.list_visible(make_identity(make_person()))] == ["runbook"]


def test_a_replaced_repository_is_closed_to_persons(registry: Registry) -> None:
    access = AccessPolicy(
        registry, domain="", public=False, own_hosts=(), rules=GroupRules(RULES), is_replaced=lambda _: True
    )
    with pytest.raises(Forbidden):
        access.authorize(make_identity(make_person("staff"), "garden"), Scope.READ)


def test_sign_in_closes_a_service_without_keys(registry: Registry, access: AccessPolicy) -> None:
    stranger = RequestIdentity(slug="garden", host="127.0.0.1", loopback=True)
    with pytest.raises(Unauthorized):
        access.authorize(stranger, Scope.READ)
    opened = AccessPolicy(registry, domain="", public=False, own_hosts=())
    assert opened.authorize(stranger, Scope.READ).scope is Scope.READ


def test_a_token_wins_over_a_person(access: AccessPolicy) -> None:
    identity = RequestIdentity("wh_nonsense", "garden", "127.0.0.1", signed_in=make_person("admins"))
    with pytest.raises(Unauthorized):
        access.authorize(identity, Scope.READ)


def test_the_author_of_a_person_is_valid_for_git() -> None:
    author = Person(PersonOrigin.OIDC, "7", "Ada <x> Byron", "ada@example.org").to_author()
    assert (author.name, author.email) == ("Ada x Byron", "ada@example.org")
    author = Person(PersonOrigin.OIDC, "7", "<>", "not an address").to_author()
    assert author.name == "Person"
    assert author.email.startswith("person-")
    assert author.email.endswith("@wikiholt.invalid")
