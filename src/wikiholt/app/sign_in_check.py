"""Checks of the sign-in settings for `wikiholt doctor`."""

import importlib.util
from collections.abc import Collection, Iterator

from wikiholt.app.settings.definitions import Settings
from wikiholt.errors import make_extra_hint
from wikiholt.wikis.people import EVERYONE, GroupRules

_DOCS = "see docs/people.md"


def find_sign_in_problems(settings: Settings, slugs: Collection[str]) -> Iterator[tuple[str, str]]:
    """What is incomplete in the sign-in settings, each with advice."""
    has_proxy, has_oidc = bool(settings.people_proxy_user_header), bool(settings.people_oidc_issuer)
    rules = GroupRules(settings.people_groups).rules
    if has_proxy:
        yield from _find_proxy_problems(settings)
    if has_oidc:
        yield from _find_oidc_problems(settings)
    elif settings.people_oidc_client_id or settings.people_oidc_client_secret:
        yield "people.oidc_issuer is empty, so nobody can sign in with OpenID Connect", "set the issuer of the provider"
    if (has_proxy or has_oidc) and not rules:
        yield "people.groups is empty, so persons may read public wikis only", f"map groups to wikis; {_DOCS}"
    if rules and not (has_proxy or has_oidc):
        yield "people.groups has no effect without a proxy or OpenID Connect", f"set up one of them; {_DOCS}"
    for rule in rules:
        if rule.slug not in (EVERYONE, *slugs):
            yield f"people.groups names the wiki {rule.slug}, which does not exist", "`wikiholt list` shows all wikis"


def _find_proxy_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    if not settings.serve_trusted_proxies:
        yield "serve.trusted_proxies is empty, so the headers of every proxy are ignored", "list the proxy's address"
    if EVERYONE in settings.serve_trusted_proxies:
        detail = "serve.trusted_proxies contains *, which is not trusted for the names of persons"
        yield detail, "list the proxy's own address"
    groups = {rule.group for rule in GroupRules(settings.people_groups).rules} - {EVERYONE}
    if groups and not settings.people_proxy_groups_header:
        yield "people.proxy_groups_header is empty, so persons have no groups", "name the header, such as Remote-Groups"


def _find_oidc_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    if not settings.people_oidc_client_id:
        yield "people.oidc_client_id is empty", "register this service at the provider and set its id"
    if importlib.util.find_spec("authlib") is None or importlib.util.find_spec("httpx2") is None:
        yield "the extra oidc is not installed", make_extra_hint("oidc")
