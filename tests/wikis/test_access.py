"""Access control: any request gets the one wiki that the rules allow, or nothing."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.wait import TIMEOUT_S
from tests.wikis.access_fixtures import LOCAL_HOST, OWN_HOST, AccessFixture
from wikiholt.domain.wiki import Scope
from wikiholt.errors import AccessDenied, Forbidden, InvalidSlug, Unauthorized, WikiholtError, WikiNotFound
from wikiholt.wikis.access import RequestIdentity
from wikiholt.wikis.registry import Registry


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[AccessFixture]:
    made = AccessFixture(tmp_path)
    made.add_wiki("garden", hosts="garden.example.org, plants.example.org")
    made.add_wiki("runbook")
    made.add_wiki("leaflet", public="true")
    yield made
    made.registry.close()


def get_refusal(fixture: AccessFixture, required_scope: Scope = Scope.READ, **visit: object) -> tuple[type, str, str]:
    with pytest.raises(WikiholtError) as caught:
        fixture.authorize(required_scope, **visit)
    return type(caught.value), caught.value.message, caught.value.hint


# ── which wiki ──


def test_a_key_grants_its_wiki_however_the_wiki_is_named(fixture: AccessFixture) -> None:
    token = fixture.create_key("garden")
    for host in (
        None,
        LOCAL_HOST,
        OWN_HOST,
        "garden.farm.example",
        "garden.example.org:443",
        "PLANTS.example.org.",
        "[::1]:1",
    ):
        assert fixture.resolve_slug(token=token, host=host) == "garden"
        assert fixture.resolve_slug(token=token, host=host, slug="garden") == "garden"


@pytest.mark.parametrize("named", ["runbook", "leaflet", "absent"])
def test_a_key_with_another_wiki_is_refused_with_the_same_error(fixture: AccessFixture, named: str) -> None:
    token = fixture.create_key("garden", Scope.ADMIN)
    expected = get_refusal(fixture, token=token, slug="no-such-wiki")
    assert expected[0] is Forbidden
    assert get_refusal(fixture, token=token, slug=named) == expected
    assert get_refusal(fixture, token=token, host=f"{named}.farm.example") == expected
    assert get_refusal(fixture, Scope.ADMIN, token=token, slug=named) == expected


def test_a_key_on_the_host_of_another_wiki_is_refused(fixture: AccessFixture) -> None:
    token = fixture.create_key("runbook")
    assert get_refusal(fixture, token=token, host="garden.example.org") == get_refusal(
        fixture, token=token, slug="no-such-wiki"
    )


@pytest.mark.parametrize("token_of", ["garden", "runbook", None])
def test_path_and_host_of_different_wikis_are_refused_for_everyone(
    fixture: AccessFixture, token_of: str | None
) -> None:
    token = fixture.create_key(token_of)
    for host in ("garden.farm.example", "garden.example.org", "absent.farm.example"):
        assert get_refusal(fixture, token=token, host=host, slug="runbook")[0] is Forbidden
    assert get_refusal(fixture, host="leaflet.farm.example", slug="garden")[0] is Forbidden


def test_trying_slugs_does_not_reveal_the_wiki_of_a_host(fixture: AccessFixture) -> None:
    fixture.create_key(None)
    refusals = {
        get_refusal(fixture, host="garden.example.org", slug=slug)
        for slug in ("garden", "runbook", "absent", "leaflet")
    }
    assert refusals == {get_refusal(fixture, slug="absent")}


def test_the_only_wiki_need_not_be_named(tmp_path: Path) -> None:
    fixture = AccessFixture(tmp_path)
    fixture.add_wiki("garden")
    assert fixture.resolve_slug(host=LOCAL_HOST, loopback=True) == "garden"
    operator = fixture.create_key(None)
    assert fixture.resolve_slug(token=operator) == "garden"
    assert get_refusal(fixture, host=LOCAL_HOST, loopback=True)[0] is Unauthorized
    fixture.add_wiki("other")
    assert get_refusal(fixture, token=operator)[0] is WikiNotFound
    fixture.registry.close()


def test_an_existing_slug_keeps_its_host_under_the_domain(fixture: AccessFixture) -> None:
    operator = fixture.create_key(None)
    fixture.add_wiki("greedy", hosts="runbook.farm.example, docs.farm.example")
    assert fixture.resolve_slug(token=operator, host="runbook.farm.example") == "runbook"
    assert fixture.resolve_slug(token=operator, host="docs.farm.example") == "greedy"


def test_without_a_domain_host_names_below_one_mean_nothing(tmp_path: Path) -> None:
    fixture = AccessFixture(tmp_path, domain="")
    fixture.add_wiki("garden", public="true")
    fixture.add_wiki("runbook")
    assert get_refusal(fixture, host="garden.farm.example")[0] is Unauthorized
    assert fixture.resolve_slug(host="garden.farm.example", slug="garden") == "garden"
    fixture.registry.close()


@pytest.mark.parametrize(
    "odd",
    [
        *("../garden", "..", "", "garden/", "gar\0den", "garden\n", " garden", "garden.", "%67arden", "garden'--"),
        *("GARDEN", "Garden", "gаrden", "ｇarden", "xn--grden-6ve", "g" * 64, "x" * 100_000, "-garden", "gar_den"),
        *("w", "api"),
    ],
    ids=lambda odd: ascii(odd)[:20],
)
def test_a_malformed_slug_gives_the_same_error_to_everyone(fixture: AccessFixture, odd: str) -> None:
    for token in (None, fixture.create_key("garden"), fixture.create_key(None)):
        error, message, hint = get_refusal(fixture, token=token, slug=odd, host=LOCAL_HOST, loopback=True)
        assert error is InvalidSlug
        assert len(message) + len(hint) < 1000


@pytest.mark.parametrize("host", ["gärten.farm.example", "a.b.farm.example", "www.farm.example", "-x.farm.example"])
def test_a_malformed_slug_in_a_host_is_reported(fixture: AccessFixture, host: str) -> None:
    assert get_refusal(fixture, token=fixture.create_key(None), host=host)[0] is InvalidSlug


@pytest.mark.parametrize("host", ["", "a b", "x/y", "::1", "[::1", "\0", "garden.example.org@evil", "h:p", "e" * 9999])
def test_an_invalid_host_grants_nothing(fixture: AccessFixture, host: str) -> None:
    assert get_refusal(fixture, host=host, slug="garden", loopback=True)[0] is Unauthorized
    assert fixture.resolve_slug(token=fixture.create_key("garden"), host=host) == "garden"


# ── what may be done ──


def test_a_private_wiki_and_a_missing_one_give_the_same_error(fixture: AccessFixture) -> None:
    fixture.create_key("garden")
    expected = get_refusal(fixture, slug="garden", host=LOCAL_HOST, loopback=True)
    assert expected[0] is Unauthorized
    for named in ("runbook", "absent", None):
        assert get_refusal(fixture, slug=named, host=LOCAL_HOST, loopback=True) == expected
    for host in ("garden.farm.example", "absent.farm.example", "garden.example.org", "nobody.example"):
        assert get_refusal(fixture, host=host) == expected


def test_a_public_wiki_can_be_read_by_everyone_and_written_by_no_one(fixture: AccessFixture) -> None:
    fixture.create_key("garden")
    grant = fixture.authorize(slug="leaflet", host="anywhere.example")
    assert (grant.wiki.slug, grant.scope, grant.key) == ("leaflet", Scope.READ, None)
    for needed in (Scope.WRITE, Scope.ADMIN):
        assert get_refusal(fixture, needed, slug="leaflet", host=LOCAL_HOST, loopback=True)[0] is Unauthorized


@pytest.mark.parametrize("own", ["", "true", "false", "yes", "TRUE"])
@pytest.mark.parametrize("general", [True, False])
def test_the_public_setting_of_a_wiki_overrides_the_general_one(tmp_path: Path, own: str, general: bool) -> None:
    fixture = AccessFixture(tmp_path, public=general)
    fixture.add_wiki("garden", public=own)
    fixture.create_key("garden")
    if own == "true" or (own == "" and general):
        assert fixture.resolve_slug(slug="garden") == "garden"
    else:
        assert get_refusal(fixture, slug="garden")[0] is Unauthorized
    fixture.registry.close()


@pytest.mark.parametrize("scope", list(Scope))
@pytest.mark.parametrize("needed", list(Scope))
def test_a_scope_allows_itself_and_lower_scopes(fixture: AccessFixture, scope: Scope, needed: Scope) -> None:
    token = fixture.create_key("garden", scope)
    if list(Scope).index(needed) <= list(Scope).index(scope):
        assert fixture.authorize(needed, token=token).scope is scope
    else:
        assert get_refusal(fixture, needed, token=token)[0] is Forbidden


def test_an_operators_key_grants_everything_on_every_wiki(fixture: AccessFixture) -> None:
    token = fixture.create_key(None)
    for slug in ("garden", "runbook", "leaflet"):
        grant = fixture.authorize(Scope.ADMIN, token=token, slug=slug)
        assert (grant.wiki.slug, grant.scope) == (slug, Scope.ADMIN)
    assert get_refusal(fixture, token=token, slug="absent")[0] is WikiNotFound


@pytest.mark.parametrize(
    "token", ["", "nonsense", "wh_" + "a" * 12 + "_" + "b" * 40, "wh_\0", "é" * 99, "x" * 1_000_000]
)
def test_an_unknown_key_does_not_even_grant_public_wikis(fixture: AccessFixture, token: str) -> None:
    for named in ("leaflet", "garden", "absent", None):
        assert get_refusal(fixture, token=token, slug=named, host=LOCAL_HOST, loopback=True)[0] is Unauthorized
    for question in (fixture.access.require_operator, fixture.access.list_visible):
        with pytest.raises(Unauthorized):
            question(RequestIdentity(token=token, host=LOCAL_HOST, loopback=True))


# ── before the first key ──


@pytest.mark.parametrize(
    "host", [LOCAL_HOST, "127.0.0.1", "localhost", "LOCALHOST:80", "[::1]:8765", "[::1]", OWN_HOST, f"{OWN_HOST}:1"]
)
def test_before_the_first_key_local_requests_can_read_all_and_write_nothing(fixture: AccessFixture, host: str) -> None:
    assert fixture.access.is_open_without_keys()
    for slug in ("garden", "runbook", "leaflet"):
        grant = fixture.authorize(slug=slug, host=host, loopback=True)
        assert (grant.wiki.slug, grant.scope, grant.key) == (slug, Scope.READ, None)
    assert get_refusal(fixture, Scope.WRITE, slug="garden", host=host, loopback=True)[0] is Unauthorized
    assert get_refusal(fixture, slug="absent", host=host, loopback=True)[0] is WikiNotFound
    assert [wiki.slug for wiki in fixture.access.list_visible(RequestIdentity(host=host, loopback=True))] == [
        "garden",
        "leaflet",
        "runbook",
    ]


@pytest.mark.parametrize(
    "host", [None, "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0", "127.0.0.2", "[::2]"]
)
def test_an_unknown_host_name_grants_nothing_against_dns_rebinding(fixture: AccessFixture, host: str | None) -> None:
    assert get_refusal(fixture, slug="garden", host=host, loopback=True)[0] is Unauthorized
    assert [wiki.slug for wiki in fixture.access.list_visible(RequestIdentity(host=host, loopback=True))] == ["leaflet"]


def test_without_keys_remote_requests_get_nothing(fixture: AccessFixture) -> None:
    assert get_refusal(fixture, slug="garden", host=LOCAL_HOST, loopback=False)[0] is Unauthorized


def test_the_first_key_closes_all_wikis_and_they_stay_closed(fixture: AccessFixture) -> None:
    with closing(Registry(fixture.path)) as elsewhere:
        key, _ = elsewhere.keys.create(elsewhere.get("runbook").id, Scope.READ)
        assert get_refusal(fixture, slug="garden", host=LOCAL_HOST, loopback=True)[0] is Unauthorized
        elsewhere.keys.revoke(key.id)
    assert not fixture.access.is_open_without_keys()
    assert get_refusal(fixture, slug="garden", host=LOCAL_HOST, loopback=True)[0] is Unauthorized
    assert fixture.resolve_slug(slug="leaflet", host=LOCAL_HOST, loopback=True) == "leaflet"


def test_removing_the_wiki_of_the_last_key_gives_no_access_to_others(fixture: AccessFixture) -> None:
    fixture.create_key("runbook")
    fixture.registry.remove("runbook")
    assert get_refusal(fixture, slug="garden", host=LOCAL_HOST, loopback=True)[0] is Unauthorized


# ── the service as a whole ──


def test_only_an_operators_key_has_operator_rights(fixture: AccessFixture) -> None:
    token = fixture.create_key(None)
    assert fixture.access.require_operator(RequestIdentity(token=token)).wiki_id is None
    with pytest.raises(Forbidden):
        fixture.access.require_operator(RequestIdentity(token=fixture.create_key("garden", Scope.ADMIN)))
    with pytest.raises(Unauthorized):
        fixture.access.require_operator(RequestIdentity(host=LOCAL_HOST, loopback=True))


def test_a_visitor_sees_only_permitted_wikis(fixture: AccessFixture) -> None:
    def seen(**visit: object) -> list[str]:
        return [wiki.slug for wiki in fixture.access.list_visible(RequestIdentity(**visit))]  # type: ignore[arg-type]

    assert seen(token=fixture.create_key("garden")) == ["garden"]
    assert seen(token=fixture.create_key(None)) == ["garden", "leaflet", "runbook"]
    assert seen(host=LOCAL_HOST, loopback=True) == ["leaflet"]
    assert seen(token=fixture.create_key(None), host="garden.example.org") == ["garden"]
    assert seen(slug="leaflet") == ["leaflet"]
    for hidden in ({"slug": "garden"}, {"host": "garden.example.org"}, {"slug": "absent"}):
        with pytest.raises(Unauthorized):
            seen(**hidden)


def test_a_key_of_a_removed_wiki_grants_nothing(fixture: AccessFixture) -> None:
    token = fixture.create_key("garden")
    fixture.registry.remove("garden")
    fixture.add_wiki("garden")
    assert get_refusal(fixture, token=token, slug="garden")[0] is Unauthorized


def test_the_unverified_wiki_is_the_named_one_and_invalid_names_give_none(fixture: AccessFixture) -> None:
    fixture.create_key(None)
    for visit in (
        RequestIdentity(slug="garden"),
        RequestIdentity(host="garden.farm.example"),
        RequestIdentity(host="plants.example.org"),
    ):
        claimed = fixture.access.identify_unverified(visit)
        assert claimed is not None
        assert claimed.slug == "garden"
    for visit in (
        RequestIdentity(),
        RequestIdentity(slug="absent"),
        RequestIdentity(slug=".."),
        RequestIdentity(host="www.farm.example"),
    ):
        assert fixture.access.identify_unverified(visit) is None
    assert fixture.access.identify_unverified(RequestIdentity(slug="runbook", host="garden.example.org")) is None


@pytest.mark.slow
def test_requests_during_changes_of_keys_and_wikis_get_their_own_wiki_or_nothing(fixture: AccessFixture) -> None:
    """A slug that is removed and added again is another wiki; keys of the old one must not grant it."""
    generations: dict[str, str] = {}
    done = threading.Event()
    wrong: list[str] = []

    def ask() -> None:
        while not done.is_set():
            for token, wiki_id in list(generations.items()):
                try:
                    grant = fixture.access.authorize(RequestIdentity(token=token, slug="moving"), Scope.READ)
                except AccessDenied:
                    continue
                if grant.wiki.id != wiki_id:
                    wrong.append(token)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    with closing(Registry(fixture.path, timeout_s=TIMEOUT_S)) as elsewhere:
        for _ in range(25):
            wiki = elsewhere.add("moving", "/srv/moving")
            generations[elsewhere.keys.create(wiki.id, Scope.READ)[1]] = wiki.id
            elsewhere.remove("moving")
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(generations) == 25
