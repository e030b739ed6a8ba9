"""Access: whatever a visit says of itself, it is granted the one wiki the rules allow, or nothing."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.wikis.access_fixtures import LOCAL_HOST, OWN_HOST, AccessFixture
from wikiholt.domain.wiki import Scope
from wikiholt.errors import AccessDenied, Forbidden, InvalidSlug, Unauthorized, WikiholtError, WikiNotFound
from wikiholt.wikis.access import RequestIdentity
from wikiholt.wikis.registry import Registry


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[AccessFixture]:
    made = AccessFixture(tmp_path)
    made.add_wiki("garden", hosts="garden.example.org, plants.example.org")
    made.add_wiki("runbook")
    made.add_wiki("leaflet", public="true")
    yield made
    made.registry.close()


def get_refusal(farm: AccessFixture, required_scope: Scope = Scope.READ, **visit: object) -> tuple[type, str, str]:
    with pytest.raises(WikiholtError) as caught:
        farm.authorize(required_scope, **visit)
    return type(caught.value), caught.value.message, caught.value.hint


# ── which wiki ──


def test_a_key_opens_its_wiki_however_that_is_named(farm: AccessFixture) -> None:
    token = farm.create_key("garden")
    for host in (
        None,
        LOCAL_HOST,
        OWN_HOST,
        "garden.farm.example",
        "garden.example.org:443",
        "PLANTS.example.org.",
        "[::1]:1",
    ):
        assert farm.resolve_slug(token=token, host=host) == "garden"
        assert farm.resolve_slug(token=token, host=host, slug="garden") == "garden"


@pytest.mark.parametrize("named", ["runbook", "leaflet", "absent"])
def test_a_key_with_another_wiki_named_is_refused_alike(farm: AccessFixture, named: str) -> None:
    token = farm.create_key("garden", Scope.ADMIN)
    expected = get_refusal(farm, token=token, slug="no-such-wiki")
    assert expected[0] is Forbidden
    assert get_refusal(farm, token=token, slug=named) == expected
    assert get_refusal(farm, token=token, host=f"{named}.farm.example") == expected
    assert get_refusal(farm, Scope.ADMIN, token=token, slug=named) == expected


def test_a_key_on_the_host_of_another_wiki_is_refused(farm: AccessFixture) -> None:
    token = farm.create_key("runbook")
    assert get_refusal(farm, token=token, host="garden.example.org") == get_refusal(
        farm, token=token, slug="no-such-wiki"
    )


@pytest.mark.parametrize("token_of", ["garden", "runbook", None])
def test_path_and_host_that_name_different_wikis_are_refused_to_everybody(
    farm: AccessFixture, token_of: str | None
) -> None:
    token = farm.create_key(token_of)
    for host in ("garden.farm.example", "garden.example.org", "absent.farm.example"):
        assert get_refusal(farm, token=token, host=host, slug="runbook")[0] is Forbidden
    assert get_refusal(farm, host="leaflet.farm.example", slug="garden")[0] is Forbidden


def test_whose_host_it_is_cannot_be_found_out_by_trying_slugs(farm: AccessFixture) -> None:
    farm.create_key(None)
    told = {
        get_refusal(farm, host="garden.example.org", slug=slug) for slug in ("garden", "runbook", "absent", "leaflet")
    }
    assert told == {get_refusal(farm, slug="absent")}


def test_the_only_wiki_need_not_be_named(tmp_path: Path) -> None:
    farm = AccessFixture(tmp_path)
    farm.add_wiki("garden")
    assert farm.resolve_slug(host=LOCAL_HOST, loopback=True) == "garden"
    operator = farm.create_key(None)
    assert farm.resolve_slug(token=operator) == "garden"
    assert get_refusal(farm, host=LOCAL_HOST, loopback=True)[0] is Unauthorized
    farm.add_wiki("other")
    assert get_refusal(farm, token=operator)[0] is WikiNotFound
    farm.registry.close()


def test_a_slug_that_is_there_keeps_its_host_under_the_domain(farm: AccessFixture) -> None:
    operator = farm.create_key(None)
    farm.add_wiki("greedy", hosts="runbook.farm.example, docs.farm.example")
    assert farm.resolve_slug(token=operator, host="runbook.farm.example") == "runbook"
    assert farm.resolve_slug(token=operator, host="docs.farm.example") == "greedy"


def test_without_a_domain_host_names_below_one_mean_nothing(tmp_path: Path) -> None:
    farm = AccessFixture(tmp_path, domain="")
    farm.add_wiki("garden", public="true")
    farm.add_wiki("runbook")
    assert get_refusal(farm, host="garden.farm.example")[0] is Unauthorized
    assert farm.resolve_slug(host="garden.farm.example", slug="garden") == "garden"
    farm.registry.close()


@pytest.mark.parametrize(
    "odd",
    [
        *("../garden", "..", "", "garden/", "gar\0den", "garden\n", " garden", "garden.", "%67arden", "garden'--"),
        *("GARDEN", "Garden", "gаrden", "ｇarden", "xn--grden-6ve", "g" * 64, "x" * 100_000, "-garden", "gar_den"),
        *("w", "api"),
    ],
    ids=lambda odd: ascii(odd)[:20],
)
def test_a_malformed_slug_is_said_to_be_one_whoever_asks(farm: AccessFixture, odd: str) -> None:
    for token in (None, farm.create_key("garden"), farm.create_key(None)):
        error, message, hint = get_refusal(farm, token=token, slug=odd, host=LOCAL_HOST, loopback=True)
        assert error is InvalidSlug
        assert len(message) + len(hint) < 1000


@pytest.mark.parametrize("host", ["gärten.farm.example", "a.b.farm.example", "www.farm.example", "-x.farm.example"])
def test_a_malformed_slug_in_a_host_is_said_to_be_one(farm: AccessFixture, host: str) -> None:
    assert get_refusal(farm, token=farm.create_key(None), host=host)[0] is InvalidSlug


@pytest.mark.parametrize("host", ["", "a b", "x/y", "::1", "[::1", "\0", "garden.example.org@evil", "h:p", "e" * 9999])
def test_a_host_that_is_none_names_nothing_and_opens_nothing(farm: AccessFixture, host: str) -> None:
    assert get_refusal(farm, host=host, slug="garden", loopback=True)[0] is Unauthorized
    assert farm.resolve_slug(token=farm.create_key("garden"), host=host) == "garden"


# ── what may be done ──


def test_a_private_wiki_and_one_that_is_not_there_are_refused_alike(farm: AccessFixture) -> None:
    farm.create_key("garden")
    expected = get_refusal(farm, slug="garden", host=LOCAL_HOST, loopback=True)
    assert expected[0] is Unauthorized
    for named in ("runbook", "absent", None):
        assert get_refusal(farm, slug=named, host=LOCAL_HOST, loopback=True) == expected
    for host in ("garden.farm.example", "absent.farm.example", "garden.example.org", "nobody.example"):
        assert get_refusal(farm, host=host) == expected


def test_a_public_wiki_may_be_read_by_anybody_and_written_by_nobody(farm: AccessFixture) -> None:
    farm.create_key("garden")
    grant = farm.authorize(slug="leaflet", host="anywhere.example")
    assert (grant.wiki.slug, grant.scope, grant.key) == ("leaflet", Scope.READ, None)
    for needed in (Scope.WRITE, Scope.ADMIN):
        assert get_refusal(farm, needed, slug="leaflet", host=LOCAL_HOST, loopback=True)[0] is Unauthorized


@pytest.mark.parametrize("own", ["", "true", "false", "yes", "TRUE"])
@pytest.mark.parametrize("general", [True, False])
def test_a_wikis_own_word_on_being_public_counts_more_than_the_general_one(
    tmp_path: Path, own: str, general: bool
) -> None:
    farm = AccessFixture(tmp_path, public=general)
    farm.add_wiki("garden", public=own)
    farm.create_key("garden")
    if own == "true" or (own == "" and general):
        assert farm.resolve_slug(slug="garden") == "garden"
    else:
        assert get_refusal(farm, slug="garden")[0] is Unauthorized
    farm.registry.close()


@pytest.mark.parametrize("scope", list(Scope))
@pytest.mark.parametrize("needed", list(Scope))
def test_a_scope_allows_itself_and_what_is_below(farm: AccessFixture, scope: Scope, needed: Scope) -> None:
    token = farm.create_key("garden", scope)
    if list(Scope).index(needed) <= list(Scope).index(scope):
        assert farm.authorize(needed, token=token).scope is scope
    else:
        assert get_refusal(farm, needed, token=token)[0] is Forbidden


def test_an_operators_key_opens_every_wiki_for_everything(farm: AccessFixture) -> None:
    token = farm.create_key(None)
    for slug in ("garden", "runbook", "leaflet"):
        grant = farm.authorize(Scope.ADMIN, token=token, slug=slug)
        assert (grant.wiki.slug, grant.scope) == (slug, Scope.ADMIN)
    assert get_refusal(farm, token=token, slug="absent")[0] is WikiNotFound


@pytest.mark.parametrize(
    "token", ["", "nonsense", "wh_" + "a" * 12 + "_" + "b" * 40, "wh_\0", "é" * 99, "x" * 1_000_000]
)
def test_a_key_that_is_not_known_opens_not_even_what_is_public(farm: AccessFixture, token: str) -> None:
    for named in ("leaflet", "garden", "absent", None):
        assert get_refusal(farm, token=token, slug=named, host=LOCAL_HOST, loopback=True)[0] is Unauthorized
    for question in (farm.access.require_operator, farm.access.list_visible):
        with pytest.raises(Unauthorized):
            question(RequestIdentity(token=token, host=LOCAL_HOST, loopback=True))


# ── before the first key ──


@pytest.mark.parametrize(
    "host", [LOCAL_HOST, "127.0.0.1", "localhost", "LOCALHOST:80", "[::1]:8765", "[::1]", OWN_HOST, f"{OWN_HOST}:1"]
)
def test_before_the_first_key_this_machine_may_read_all_and_write_nothing(farm: AccessFixture, host: str) -> None:
    assert farm.access.is_open_without_keys()
    for slug in ("garden", "runbook", "leaflet"):
        grant = farm.authorize(slug=slug, host=host, loopback=True)
        assert (grant.wiki.slug, grant.scope, grant.key) == (slug, Scope.READ, None)
    assert get_refusal(farm, Scope.WRITE, slug="garden", host=host, loopback=True)[0] is Unauthorized
    assert get_refusal(farm, slug="absent", host=host, loopback=True)[0] is WikiNotFound
    assert [wiki.slug for wiki in farm.access.list_visible(RequestIdentity(host=host, loopback=True))] == [
        "garden",
        "leaflet",
        "runbook",
    ]


@pytest.mark.parametrize(
    "host", [None, "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0", "127.0.0.2", "[::2]"]
)
def test_a_name_that_is_not_ours_opens_nothing_so_that_no_rebound_name_does(
    farm: AccessFixture, host: str | None
) -> None:
    assert get_refusal(farm, slug="garden", host=host, loopback=True)[0] is Unauthorized
    assert [wiki.slug for wiki in farm.access.list_visible(RequestIdentity(host=host, loopback=True))] == ["leaflet"]


def test_beyond_this_machine_nothing_is_open_for_want_of_keys(farm: AccessFixture) -> None:
    assert get_refusal(farm, slug="garden", host=LOCAL_HOST, loopback=False)[0] is Unauthorized


def test_the_first_key_closes_all_wikis_and_they_stay_closed(farm: AccessFixture) -> None:
    with closing(Registry(farm.path)) as elsewhere:
        key, _ = elsewhere.keys.create(elsewhere.get("runbook").id, Scope.READ)
        assert get_refusal(farm, slug="garden", host=LOCAL_HOST, loopback=True)[0] is Unauthorized
        elsewhere.keys.revoke(key.id)
    assert not farm.access.is_open_without_keys()
    assert get_refusal(farm, slug="garden", host=LOCAL_HOST, loopback=True)[0] is Unauthorized
    assert farm.resolve_slug(slug="leaflet", host=LOCAL_HOST, loopback=True) == "leaflet"


def test_removing_the_wiki_of_the_last_key_opens_no_other(farm: AccessFixture) -> None:
    farm.create_key("runbook")
    farm.registry.remove("runbook")
    assert get_refusal(farm, slug="garden", host=LOCAL_HOST, loopback=True)[0] is Unauthorized


# ── the farm as a whole ──


def test_only_an_operators_key_is_the_operators(farm: AccessFixture) -> None:
    token = farm.create_key(None)
    assert farm.access.require_operator(RequestIdentity(token=token)).wiki_id is None
    with pytest.raises(Forbidden):
        farm.access.require_operator(RequestIdentity(token=farm.create_key("garden", Scope.ADMIN)))
    with pytest.raises(Unauthorized):
        farm.access.require_operator(RequestIdentity(host=LOCAL_HOST, loopback=True))


def test_a_visitor_sees_what_is_theirs_listed(farm: AccessFixture) -> None:
    def seen(**visit: object) -> list[str]:
        return [wiki.slug for wiki in farm.access.list_visible(RequestIdentity(**visit))]  # type: ignore[arg-type]

    assert seen(token=farm.create_key("garden")) == ["garden"]
    assert seen(token=farm.create_key(None)) == ["garden", "leaflet", "runbook"]
    assert seen(host=LOCAL_HOST, loopback=True) == ["leaflet"]
    assert seen(token=farm.create_key(None), host="garden.example.org") == ["garden"]
    assert seen(slug="leaflet") == ["leaflet"]
    for hidden in ({"slug": "garden"}, {"host": "garden.example.org"}, {"slug": "absent"}):
        with pytest.raises(Unauthorized):
            seen(**hidden)


def test_a_key_whose_wiki_goes_opens_nothing_from_then_on(farm: AccessFixture) -> None:
    token = farm.create_key("garden")
    farm.registry.remove("garden")
    farm.add_wiki("garden")
    assert get_refusal(farm, token=token, slug="garden")[0] is Unauthorized


def test_a_wiki_that_is_claimed_is_the_one_that_is_named_and_odd_names_claim_none(farm: AccessFixture) -> None:
    farm.create_key(None)
    for visit in (
        RequestIdentity(slug="garden"),
        RequestIdentity(host="garden.farm.example"),
        RequestIdentity(host="plants.example.org"),
    ):
        claimed = farm.access.identify_unverified(visit)
        assert claimed is not None
        assert claimed.slug == "garden"
    for visit in (
        RequestIdentity(),
        RequestIdentity(slug="absent"),
        RequestIdentity(slug=".."),
        RequestIdentity(host="www.farm.example"),
    ):
        assert farm.access.identify_unverified(visit) is None
    assert farm.access.identify_unverified(RequestIdentity(slug="runbook", host="garden.example.org")) is None


@pytest.mark.slow
def test_threads_that_ask_while_keys_and_wikis_come_and_go_get_their_own_wiki_or_nothing(farm: AccessFixture) -> None:
    """A slug that is removed and added again is another wiki; no key of the old one may open it."""
    generations: dict[str, str] = {}
    done = threading.Event()
    wrong: list[str] = []

    def ask() -> None:
        while not done.is_set():
            for token, wiki_id in list(generations.items()):
                try:
                    grant = farm.access.authorize(RequestIdentity(token=token, slug="moving"), Scope.READ)
                except AccessDenied:
                    continue
                if grant.wiki.id != wiki_id:
                    wrong.append(token)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    with closing(Registry(farm.path)) as elsewhere:
        for _ in range(25):
            wiki = elsewhere.add("moving", "/srv/moving")
            generations[elsewhere.keys.create(wiki.id, Scope.READ)[1]] = wiki.id
            elsewhere.remove("moving")
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(generations) == 25
