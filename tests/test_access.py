"""Access: whatever a visit says of itself, it is granted the one wiki the rules allow, or nothing."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from access_ground import HERE, OWN, Farm

from wikiholt.access import Visit
from wikiholt.errors import Forbidden, InvalidSlug, Refused, Unauthorized, WikiholtError, WikiNotFound
from wikiholt.model import Scope
from wikiholt.registry import Registry


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    made = Farm(tmp_path)
    made.add("garden", hosts="garden.example.org, plants.example.org")
    made.add("runbook")
    made.add("leaflet", public="true")
    yield made
    made.registry.close()


def refusal(farm: Farm, needed: Scope = Scope.READ, **visit: object) -> tuple[type, str, str]:
    with pytest.raises(WikiholtError) as caught:
        farm.grant(needed, **visit)
    return type(caught.value), caught.value.message, caught.value.hint


# ── which wiki ──


def test_a_key_opens_its_wiki_however_that_is_named(farm: Farm) -> None:
    token = farm.key("garden")
    for host in (None, HERE, OWN, "garden.farm.example", "garden.example.org:443", "PLANTS.example.org.", "[::1]:1"):
        assert farm.slug(token=token, host=host) == "garden"
        assert farm.slug(token=token, host=host, named="garden") == "garden"


@pytest.mark.parametrize("named", ["runbook", "leaflet", "absent"])
def test_a_key_with_another_wiki_named_is_refused_alike(farm: Farm, named: str) -> None:
    token = farm.key("garden", Scope.ADMIN)
    expected = refusal(farm, token=token, named="no-such-wiki")
    assert expected[0] is Forbidden
    assert refusal(farm, token=token, named=named) == expected
    assert refusal(farm, token=token, host=f"{named}.farm.example") == expected
    assert refusal(farm, Scope.ADMIN, token=token, named=named) == expected


def test_a_key_on_the_host_of_another_wiki_is_refused(farm: Farm) -> None:
    token = farm.key("runbook")
    assert refusal(farm, token=token, host="garden.example.org") == refusal(farm, token=token, named="no-such-wiki")


@pytest.mark.parametrize("token_of", ["garden", "runbook", None])
def test_path_and_host_that_name_different_wikis_are_refused_to_everybody(farm: Farm, token_of: str | None) -> None:
    token = farm.key(token_of)
    for host in ("garden.farm.example", "garden.example.org", "absent.farm.example"):
        assert refusal(farm, token=token, host=host, named="runbook")[0] is Forbidden
    assert refusal(farm, host="leaflet.farm.example", named="garden")[0] is Forbidden


def test_whose_host_it_is_cannot_be_found_out_by_trying_slugs(farm: Farm) -> None:
    farm.key(None)
    told = {refusal(farm, host="garden.example.org", named=slug) for slug in ("garden", "runbook", "absent", "leaflet")}
    assert told == {refusal(farm, named="absent")}


def test_the_only_wiki_need_not_be_named(tmp_path: Path) -> None:
    farm = Farm(tmp_path)
    farm.add("garden")
    assert farm.slug(host=HERE, loopback=True) == "garden"
    operator = farm.key(None)
    assert farm.slug(token=operator) == "garden"
    assert refusal(farm, host=HERE, loopback=True)[0] is Unauthorized
    farm.add("other")
    assert refusal(farm, token=operator)[0] is WikiNotFound
    farm.registry.close()


def test_a_slug_that_is_there_keeps_its_host_under_the_domain(farm: Farm) -> None:
    operator = farm.key(None)
    farm.add("greedy", hosts="runbook.farm.example, docs.farm.example")
    assert farm.slug(token=operator, host="runbook.farm.example") == "runbook"
    assert farm.slug(token=operator, host="docs.farm.example") == "greedy"


def test_without_a_domain_host_names_below_one_mean_nothing(tmp_path: Path) -> None:
    farm = Farm(tmp_path, domain="")
    farm.add("garden", public="true")
    farm.add("runbook")
    assert refusal(farm, host="garden.farm.example")[0] is Unauthorized
    assert farm.slug(host="garden.farm.example", named="garden") == "garden"
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
def test_a_malformed_slug_is_said_to_be_one_whoever_asks(farm: Farm, odd: str) -> None:
    for token in (None, farm.key("garden"), farm.key(None)):
        error, message, hint = refusal(farm, token=token, named=odd, host=HERE, loopback=True)
        assert error is InvalidSlug
        assert len(message) + len(hint) < 1000


@pytest.mark.parametrize("host", ["gärten.farm.example", "a.b.farm.example", "www.farm.example", "-x.farm.example"])
def test_a_malformed_slug_in_a_host_is_said_to_be_one(farm: Farm, host: str) -> None:
    assert refusal(farm, token=farm.key(None), host=host)[0] is InvalidSlug


@pytest.mark.parametrize("host", ["", "a b", "x/y", "::1", "[::1", "\0", "garden.example.org@evil", "h:p", "e" * 9999])
def test_a_host_that_is_none_names_nothing_and_opens_nothing(farm: Farm, host: str) -> None:
    assert refusal(farm, host=host, named="garden", loopback=True)[0] is Unauthorized
    assert farm.slug(token=farm.key("garden"), host=host) == "garden"


# ── what may be done ──


def test_a_private_wiki_and_one_that_is_not_there_are_refused_alike(farm: Farm) -> None:
    farm.key("garden")
    expected = refusal(farm, named="garden", host=HERE, loopback=True)
    assert expected[0] is Unauthorized
    for named in ("runbook", "absent", None):
        assert refusal(farm, named=named, host=HERE, loopback=True) == expected
    for host in ("garden.farm.example", "absent.farm.example", "garden.example.org", "nobody.example"):
        assert refusal(farm, host=host) == expected


def test_a_public_wiki_may_be_read_by_anybody_and_written_by_nobody(farm: Farm) -> None:
    farm.key("garden")
    grant = farm.grant(named="leaflet", host="anywhere.example")
    assert (grant.wiki.slug, grant.scope, grant.key) == ("leaflet", Scope.READ, None)
    for needed in (Scope.WRITE, Scope.ADMIN):
        assert refusal(farm, needed, named="leaflet", host=HERE, loopback=True)[0] is Unauthorized


@pytest.mark.parametrize("own", ["", "true", "false", "yes", "TRUE"])
@pytest.mark.parametrize("general", [True, False])
def test_a_wikis_own_word_on_being_public_counts_more_than_the_general_one(
    tmp_path: Path, own: str, general: bool
) -> None:
    farm = Farm(tmp_path, public=general)
    farm.add("garden", public=own)
    farm.key("garden")
    if own == "true" or (own == "" and general):
        assert farm.slug(named="garden") == "garden"
    else:
        assert refusal(farm, named="garden")[0] is Unauthorized
    farm.registry.close()


@pytest.mark.parametrize("scope", list(Scope))
@pytest.mark.parametrize("needed", list(Scope))
def test_a_scope_allows_itself_and_what_is_below(farm: Farm, scope: Scope, needed: Scope) -> None:
    token = farm.key("garden", scope)
    if list(Scope).index(needed) <= list(Scope).index(scope):
        assert farm.grant(needed, token=token).scope is scope
    else:
        assert refusal(farm, needed, token=token)[0] is Forbidden


def test_an_operators_key_opens_every_wiki_for_everything(farm: Farm) -> None:
    token = farm.key(None)
    for slug in ("garden", "runbook", "leaflet"):
        grant = farm.grant(Scope.ADMIN, token=token, named=slug)
        assert (grant.wiki.slug, grant.scope) == (slug, Scope.ADMIN)
    assert refusal(farm, token=token, named="absent")[0] is WikiNotFound


@pytest.mark.parametrize(
    "token", ["", "nonsense", "wh_" + "a" * 12 + "_" + "b" * 40, "wh_\0", "é" * 99, "x" * 1_000_000]
)
def test_a_key_that_is_not_known_opens_not_even_what_is_public(farm: Farm, token: str) -> None:
    for named in ("leaflet", "garden", "absent", None):
        assert refusal(farm, token=token, named=named, host=HERE, loopback=True)[0] is Unauthorized
    for question in (farm.access.operator, farm.access.visible):
        with pytest.raises(Unauthorized):
            question(Visit(token=token, host=HERE, loopback=True))


# ── before the first key ──


@pytest.mark.parametrize(
    "host", [HERE, "127.0.0.1", "localhost", "LOCALHOST:80", "[::1]:8765", "[::1]", OWN, f"{OWN}:1"]
)
def test_before_the_first_key_this_machine_may_read_all_and_write_nothing(farm: Farm, host: str) -> None:
    assert farm.access.open_without_keys()
    for slug in ("garden", "runbook", "leaflet"):
        grant = farm.grant(named=slug, host=host, loopback=True)
        assert (grant.wiki.slug, grant.scope, grant.key) == (slug, Scope.READ, None)
    assert refusal(farm, Scope.WRITE, named="garden", host=host, loopback=True)[0] is Unauthorized
    assert refusal(farm, named="absent", host=host, loopback=True)[0] is WikiNotFound
    assert [wiki.slug for wiki in farm.access.visible(Visit(host=host, loopback=True))] == [
        "garden",
        "leaflet",
        "runbook",
    ]


@pytest.mark.parametrize(
    "host", [None, "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0", "127.0.0.2", "[::2]"]
)
def test_a_name_that_is_not_ours_opens_nothing_so_that_no_rebound_name_does(farm: Farm, host: str | None) -> None:
    assert refusal(farm, named="garden", host=host, loopback=True)[0] is Unauthorized
    assert [wiki.slug for wiki in farm.access.visible(Visit(host=host, loopback=True))] == ["leaflet"]


def test_beyond_this_machine_nothing_is_open_for_want_of_keys(farm: Farm) -> None:
    assert refusal(farm, named="garden", host=HERE, loopback=False)[0] is Unauthorized


def test_the_first_key_closes_all_wikis_and_they_stay_closed(farm: Farm) -> None:
    with closing(Registry(farm.path)) as elsewhere:
        key, _ = elsewhere.keys.create(elsewhere.get("runbook").id, Scope.READ)
        assert refusal(farm, named="garden", host=HERE, loopback=True)[0] is Unauthorized
        elsewhere.keys.revoke(key.id)
    assert not farm.access.open_without_keys()
    assert refusal(farm, named="garden", host=HERE, loopback=True)[0] is Unauthorized
    assert farm.slug(named="leaflet", host=HERE, loopback=True) == "leaflet"


def test_removing_the_wiki_of_the_last_key_opens_no_other(farm: Farm) -> None:
    farm.key("runbook")
    farm.registry.remove("runbook")
    assert refusal(farm, named="garden", host=HERE, loopback=True)[0] is Unauthorized


# ── the farm as a whole ──


def test_only_an_operators_key_is_the_operators(farm: Farm) -> None:
    token = farm.key(None)
    assert farm.access.operator(Visit(token=token)).wiki_id is None
    with pytest.raises(Forbidden):
        farm.access.operator(Visit(token=farm.key("garden", Scope.ADMIN)))
    with pytest.raises(Unauthorized):
        farm.access.operator(Visit(host=HERE, loopback=True))


def test_a_visitor_sees_what_is_theirs_listed(farm: Farm) -> None:
    def seen(**visit: object) -> list[str]:
        return [wiki.slug for wiki in farm.access.visible(Visit(**visit))]  # type: ignore[arg-type]

    assert seen(token=farm.key("garden")) == ["garden"]
    assert seen(token=farm.key(None)) == ["garden", "leaflet", "runbook"]
    assert seen(host=HERE, loopback=True) == ["leaflet"]
    assert seen(token=farm.key(None), host="garden.example.org") == ["garden"]
    assert seen(named="leaflet") == ["leaflet"]
    for hidden in ({"named": "garden"}, {"host": "garden.example.org"}, {"named": "absent"}):
        with pytest.raises(Unauthorized):
            seen(**hidden)


def test_a_key_whose_wiki_goes_opens_nothing_from_then_on(farm: Farm) -> None:
    token = farm.key("garden")
    farm.registry.remove("garden")
    farm.add("garden")
    assert refusal(farm, token=token, named="garden")[0] is Unauthorized


def test_a_wiki_that_is_claimed_is_the_one_that_is_named_and_odd_names_claim_none(farm: Farm) -> None:
    farm.key(None)
    for visit in (Visit(named="garden"), Visit(host="garden.farm.example"), Visit(host="plants.example.org")):
        claimed = farm.access.claimed(visit)
        assert claimed is not None
        assert claimed.slug == "garden"
    for visit in (Visit(), Visit(named="absent"), Visit(named=".."), Visit(host="www.farm.example")):
        assert farm.access.claimed(visit) is None
    assert farm.access.claimed(Visit(named="runbook", host="garden.example.org")) is None


def test_threads_that_ask_while_keys_and_wikis_come_and_go_get_their_own_wiki_or_nothing(farm: Farm) -> None:
    """A slug that is removed and added again is another wiki; no key of the old one may open it."""
    generations: dict[str, str] = {}
    done = threading.Event()
    wrong: list[str] = []

    def ask() -> None:
        while not done.is_set():
            for token, wiki_id in list(generations.items()):
                try:
                    grant = farm.access.wiki(Visit(token=token, named="moving"), Scope.READ)
                except Refused:
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
