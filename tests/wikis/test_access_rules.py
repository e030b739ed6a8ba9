"""For any wikis and any request, access control grants what a second implementation of the rules says."""

import tempfile
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tiers import limit_examples
from tests.wikis.access_fixtures import DOMAIN, LOCAL_HOST, OWN_HOST, AccessFixture
from wikiholt.domain.wiki import Scope
from wikiholt.errors import AccessDenied, Forbidden, InvalidSlug, Unauthorized, WikiholtError, WikiNotFound
from wikiholt.wikis.access import RequestIdentity

SLUGS = ("ash", "birch", "cedar")


ABSENT = ("dogwood",)


MALFORMED = ("..", "ASH", "аsh", "a\0sh", "", "x" * 64, "api")


@dataclass(frozen=True)
class AccessPlan:
    """A test case: wikis with settings, keys, and general settings."""

    wikis: dict[str, tuple[str, str | None]]
    keys: tuple[tuple[str | None, Scope, bool], ...]
    public: bool


@st.composite
def plans(draw: st.DrawFn) -> AccessPlan:
    slugs = draw(st.lists(st.sampled_from(SLUGS), unique=True))
    wikis = {
        slug: (draw(st.sampled_from(["", "true", "false"])), draw(st.sampled_from([None, f"{slug}.host.example"])))
        for slug in slugs
    }
    owners = st.sampled_from([None, *slugs])
    keys = draw(st.just([]) | st.lists(st.tuples(owners, st.sampled_from(Scope), st.booleans()), max_size=3))
    operators_are_admins = ((owner, scope if owner else Scope.ADMIN, revoked) for owner, scope, revoked in keys)
    return AccessPlan(wikis, tuple(operators_are_admins), draw(st.booleans()))


SLUG_CHOICES = (None, *SLUGS, *ABSENT, *MALFORMED)


HOSTS = (
    *(None, LOCAL_HOST, "localhost", "[::1]:80", OWN_HOST, "evil.example", "no host", f"api.{DOMAIN}", DOMAIN),
    *(f"{slug}.{DOMAIN}:8080" for slug in SLUGS + ABSENT),
    *(f"{slug.upper()}.Host.example" for slug in SLUGS),
)


TOKENS = (None, 0, 1, 2, -1)


REQUESTS = tuple(product(TOKENS, SLUG_CHOICES, HOSTS, (True, False), Scope))


@dataclass(frozen=True)
class AccessOutcome:
    """The result of a request: a grant of this wiki with this scope, or this error."""

    slug: str = ""
    scope: Scope = Scope.READ
    error: type[WikiholtError] | None = None


def get_slug_from_host(plan: AccessPlan, host: str | None) -> str | None:
    """The slug of a host, by the rules of the manual."""
    bare = (host or "").lower().removesuffix(":8080")
    if bare.endswith(f".{DOMAIN}"):
        return bare[: -len(DOMAIN) - 1]
    owners = [slug for slug, (_, own) in plan.wikis.items() if own == bare]
    return owners[0] if owners else None


def compute_expected(
    plan: AccessPlan, token: int | None, slug: str | None, host: str | None, loopback: bool, required_scope: Scope
) -> AccessOutcome:
    """The rules as a list of cases over the plan, without a registry."""
    valid = token is None or (0 <= token < len(plan.keys) and not plan.keys[token][2])
    if not valid:
        return AccessOutcome(error=Unauthorized)
    said = {name for name in (slug, get_slug_from_host(plan, host)) if name is not None}
    if any(name in MALFORMED for name in said):
        return AccessOutcome(error=InvalidSlug)
    if len(said) == 2:
        return AccessOutcome(error=_get_conflict_error(plan, token, host))
    everyone = said or set(plan.wikis)
    about = next(iter(everyone)) if len(everyone) == 1 else None
    there = about if about in plan.wikis else None
    if token is not None:
        owner, scope, _ = plan.keys[token]
        if owner is None:
            return AccessOutcome(there, Scope.ADMIN) if there else AccessOutcome(error=WikiNotFound)
        if said and about != owner:
            return AccessOutcome(error=Forbidden)
        enough = list(Scope).index(scope) >= list(Scope).index(required_scope)
        return AccessOutcome(owner, scope) if enough else AccessOutcome(error=Forbidden)
    if required_scope is not Scope.READ:
        return AccessOutcome(error=Unauthorized)
    ours = host in (LOCAL_HOST, "localhost", "[::1]:80", OWN_HOST)
    if not plan.keys and loopback and ours:
        return AccessOutcome(there) if there else AccessOutcome(error=WikiNotFound)
    return AccessOutcome(there) if there and is_public(plan, there) else AccessOutcome(error=Unauthorized)


def is_public(plan: AccessPlan, slug: str) -> bool:
    own = plan.wikis[slug][0]
    return plan.public if own == "" else own == "true"


def _get_conflict_error(plan: AccessPlan, token: int | None, host: str | None) -> type[WikiholtError]:
    """The error if path and host disagree. Without a key it must not reveal that a host is a private wiki's."""
    slug = get_slug_from_host(plan, host)
    secret = slug in plan.wikis and "host.example" in (host or "").lower() and not is_public(plan, slug or "")
    return Unauthorized if token is None and secret else Forbidden


def get_outcome(fixture: AccessFixture, identity: RequestIdentity, required_scope: Scope) -> AccessOutcome:
    try:
        grant = fixture.access.authorize(identity, required_scope)
    except WikiholtError as error:
        if isinstance(error, AccessDenied) and any(slug in f"{error.message} {error.hint}" for slug in SLUGS):
            pytest.fail(f"a refusal names a wiki: {error}")
        return AccessOutcome(error=type(error))
    return AccessOutcome(grant.wiki.slug, grant.scope)


def build_fixture(plan: AccessPlan, directory: Path) -> tuple[AccessFixture, list[str]]:
    fixture = AccessFixture(directory, public=plan.public)
    for slug, (public, host) in plan.wikis.items():
        fixture.add_wiki(slug, **({"public": public} if public else {}), **({"hosts": host} if host else {}))
    tokens = []
    for owner, scope, revoked in plan.keys:
        tokens.append(fixture.create_key(owner, scope))
        if revoked:
            fixture.registry.keys.revoke(tokens[-1].split("_")[1])
    return fixture, tokens


@settings(max_examples=limit_examples(40), deadline=None)
@given(plan=plans(), chance=st.integers(0, 2**32))
def test_any_request_gets_what_the_rules_say_and_no_more(plan: AccessPlan, chance: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        fixture, tokens = build_fixture(plan, Path(directory))
        with closing(fixture.registry):
            for token, named, host, loopback, needed in Random(chance).sample(REQUESTS, 600):
                known = token is not None and 0 <= token < len(tokens)
                sent = None if token is None else tokens[token] if known else f"wh_{'a' * 12}_{'a' * 40}"
                expected = compute_expected(plan, token, named, host, loopback, needed)
                got = get_outcome(fixture, RequestIdentity(sent, named, host, loopback), needed)
                assert got == expected, (token, named, host, loopback, needed)
