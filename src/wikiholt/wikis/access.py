"""Access control: turns the identity of a request into a grant for exactly one wiki, or denies it.

The wiki is named by the path (/w/SLUG), by the host, or by the key. If there is only one wiki, it need not be named.
A denial is the same whether the wiki exists or not, so that requests cannot detect other people's wikis.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

from wikiholt.domain.wiki import Key, Scope, Wiki
from wikiholt.errors import AccessDenied, Forbidden, InvalidInput, Unauthorized, WikiNotFound
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.slugs import LOOPBACK_HOSTS, parse_host_header, validate_slug

MAX_KEYS_PER_REQUEST = 50
"""The most keys, and so wikis, of one search with a list of keys."""


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """What a request says about itself. `loopback` is whether the service listens only on the loopback interface."""

    token: str | None = None
    slug: str | None = None
    host: str | None = None
    loopback: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """One wiki and the permitted scope. `key` is None if no key was needed."""

    wiki: Wiki
    scope: Scope
    key: Key | None


@dataclass(frozen=True, slots=True)
class _HostSlug:
    """The slug of a host. It is public unless only the registry maps the host to it."""

    slug: str
    is_public: bool = True


class AccessPolicy:
    """The access rules. Every decision uses the current registry. Safe to use from many threads."""

    def __init__(
        self,
        registry: Registry,
        *,
        domain: str,
        public: bool,
        own_hosts: Iterable[str],
        is_replaced: Callable[[Wiki], bool] = lambda _: False,
    ) -> None:
        """`is_replaced` tells whether a wiki's path now has another repository; its keys are then rejected."""
        self._registry = registry
        self._is_replaced = is_replaced
        self._domain_suffix = f".{domain}" if domain else ""
        self._public_by_default = public
        self._own_hosts = LOOPBACK_HOSTS | {host.lower().removesuffix(".") for host in own_hosts}

    def authorize(self, identity: RequestIdentity, required_scope: Scope) -> Grant:
        """The grant for the requested wiki. Raises Unauthorized, Forbidden, InvalidSlug or WikiNotFound."""
        key = self._authenticate(identity)
        slug = self._resolve_slug(identity, self._resolve_host_slug(identity), key)
        if key is None:
            return self._authorize_without_key(identity, slug, required_scope)
        if key.wiki_id is None:
            return Grant(self._get_wiki_or_only(slug), Scope.ADMIN, key)
        return self._authorize_with_key(key, key.wiki_id, slug, required_scope)

    def authorize_search(self, identity: RequestIdentity, slugs: Sequence[str]) -> list[Grant]:
        """The grants of a search: for the wiki of the request, or for several wikis.

        Several wikis need the key of each, separated by commas, or an operator key, which opens all wikis. `slugs`
        names some of them. Without a key it must name the wikis, and all of them must be readable without one.
        Raises what `authorize` raises; Forbidden for a wiki without a key, also if it does not exist.
        """
        names = list(dict.fromkeys(map(validate_slug, slugs)))
        keys = self._authenticate_all(identity)
        if any(key.wiki_id is None for key in keys):
            granted = [Grant(wiki, Scope.ADMIN, keys[0]) for wiki in self._registry.list_wikis()]
        elif len(keys) > 1:
            granted = [self._authorize_with_key(key, key.wiki_id, None, Scope.READ) for key in keys if key.wiki_id]
        elif len(names) > 1 and identity.token is None:
            granted = [Grant(wiki, Scope.READ, None) for wiki in self.list_visible(identity)]
        else:
            granted = [self.authorize(identity, Scope.READ)]
        by_slug = {grant.wiki.slug: grant for grant in granted}
        if not by_slug.keys() >= set(names):
            raise _build_forbidden_error() if identity.token is not None else _build_unauthorized_error()
        wanted = [by_slug[name] for name in names] if names else list(by_slug.values())
        return wanted or [self.authorize(identity, Scope.READ)]

    def _authenticate_all(self, identity: RequestIdentity) -> list[Key]:
        """The keys of a request that may cover several wikis; empty if its path or host names one.

        Raises Unauthorized if a key is unknown, or if there are too many.
        """
        if identity.token is None or identity.slug is not None or self._resolve_host_slug(identity) is not None:
            return []
        tokens = dict.fromkeys(token.strip() for token in identity.token.split(","))
        if len(tokens) > MAX_KEYS_PER_REQUEST:
            raise _make_unknown_key_error()
        found = (self._authenticate(replace(identity, token=token)) for token in tokens)
        return [key for key in found if key is not None]

    def require_any_key(self, identity: RequestIdentity) -> None:
        """Accept any valid key, of any wiki. Raises Unauthorized."""
        if self._authenticate(identity) is None:
            raise _build_unauthorized_error()

    def require_operator(self, identity: RequestIdentity) -> Key:
        """The operator key of the request. Raises Unauthorized without a key and Forbidden for a wiki's key."""
        key = self._authenticate(identity)
        if key is None:
            raise _build_unauthorized_error()
        if key.wiki_id is not None:
            raise Forbidden(
                "This key is for one wiki; an operator key is required.",
                hint="Create one: wikiholt key create --operator",
            )
        return key

    def identify_unverified(self, identity: RequestIdentity) -> Wiki | None:
        """The wiki named by the request, without checking permissions. For requests that are signed."""
        try:
            slug = self._resolve_slug(identity, self._resolve_host_slug(identity), None)
        except (AccessDenied, InvalidInput):
            return None
        return self._find_wiki(slug) if slug is not None else self._registry.get_only()

    def grant_for_token(self, identity: RequestIdentity, slug: str, scope: Scope) -> Grant:
        """The grant for an issuer's token, unless the request names another wiki. Raises Forbidden."""
        requested = self._resolve_slug(identity, self._resolve_host_slug(identity), None)
        wiki = self._find_wiki(slug)
        if wiki is None or requested not in (None, wiki.slug):
            raise _build_forbidden_error()
        return Grant(wiki, scope, None)

    def is_known_host(self, identity: RequestIdentity) -> bool:
        """Whether the host is one of the service's own names, a wiki's host, or an IP address.

        Other names are rejected: a web page elsewhere could use them to reach a service that trusts its network (DNS
        rebinding).
        """
        host = parse_host_header(identity.host) if identity.host else None
        if host is None:
            return False
        is_subdomain = bool(self._domain_suffix) and host.endswith(self._domain_suffix)
        if host in self._own_hosts or is_subdomain or self._registry.find_by_host(host):
            return True
        try:
            return bool(ip_address(host.strip("[]")))
        except ValueError:
            return False

    def list_visible(self, identity: RequestIdentity) -> list[Wiki]:
        """The wikis that this request may list. If the path or host names one, at most that one."""
        key = self._authenticate(identity)
        if (
            identity.slug is not None
            or self._resolve_host_slug(identity) is not None
            or (key and key.wiki_id is not None)
        ):
            return [self.authorize(identity, Scope.READ).wiki]
        wikis = self._registry.list_wikis()
        if key is not None or self.is_open_access(identity):
            return wikis
        return [wiki for wiki in wikis if self._is_public(wiki)]

    def is_open_without_keys(self) -> bool:
        """Whether wikis can be read without a key on this machine, which is so until the first key is created."""
        return not self._registry.keys.has_ever_had_any()

    def _authenticate(self, identity: RequestIdentity) -> Key | None:
        if identity.token is None:
            return None
        key = self._registry.keys.find_by_token(identity.token)
        if key is None:
            raise _make_unknown_key_error()
        return key

    def _resolve_host_slug(self, identity: RequestIdentity) -> _HostSlug | None:
        """The slug named by the host: a subdomain of the service's domain, or a wiki's own host."""
        host = parse_host_header(identity.host) if identity.host else None
        if host is None or host in self._own_hosts:
            return None
        subdomain = None
        if self._domain_suffix and host.endswith(self._domain_suffix):
            subdomain = host.removesuffix(self._domain_suffix)
        wiki = self._registry.find_by_host(host)
        # A registered host must not take the place of another wiki's slug.
        if wiki is not None and not (subdomain and self._find_wiki(subdomain)):
            return _HostSlug(wiki.slug, is_public=False)
        return _HostSlug(validate_slug(subdomain)) if subdomain is not None else None

    def _resolve_slug(self, identity: RequestIdentity, host_slug: _HostSlug | None, key: Key | None) -> str | None:
        requested = validate_slug(identity.slug) if identity.slug is not None else None
        if host_slug is None or requested is None or host_slug.slug == requested:
            return requested or (host_slug.slug if host_slug else None)
        if key is None and not host_slug.is_public and not self._is_readable(identity, host_slug.slug):
            # Trying slugs on a host must not reveal whose host it is.
            raise _build_unauthorized_error()
        raise _build_forbidden_error()

    def _authorize_without_key(self, identity: RequestIdentity, slug: str | None, required_scope: Scope) -> Grant:
        if required_scope is not Scope.READ:
            raise _build_unauthorized_error()
        if self.is_open_access(identity):
            return Grant(self._get_wiki_or_only(slug), Scope.READ, None)
        wiki = self._find_wiki(slug) if slug is not None else self._registry.get_only()
        if wiki is None or not self._is_public(wiki):
            raise _build_unauthorized_error()
        return Grant(wiki, Scope.READ, None)

    def _authorize_with_key(self, key: Key, wiki_id: str, slug: str | None, required_scope: Scope) -> Grant:
        try:
            wiki = self._registry.get_by_id(wiki_id)
        except WikiNotFound:  # removed just now, together with the key
            raise _build_unauthorized_error() from None
        if slug not in (None, wiki.slug):
            raise _build_forbidden_error()
        if self._is_replaced(wiki):
            raise _make_unknown_key_error()
        if not key.scope.allows(required_scope):
            raise Forbidden(
                f"This requires a key with scope {required_scope}; this key has {key.scope}.",
                hint="Use a key with that scope.",
            )
        return Grant(wiki, key.scope, key)

    def _get_wiki_or_only(self, slug: str | None) -> Wiki:
        """The wiki with this slug, or the only one. For callers that may know of every wiki."""
        wiki = self._registry.get(slug) if slug is not None else self._registry.get_only()
        if wiki is None:
            raise WikiNotFound("No wiki was named.", hint="Name it in the path: /w/SLUG")
        return wiki

    def is_open_access(self, identity: RequestIdentity) -> bool:
        """Whether this request may read all wikis because no key has been created.

        Only the service's own host names count: a web page elsewhere could make a browser on this machine send
        requests under another name (DNS rebinding).
        """
        host = parse_host_header(identity.host) if identity.host else None
        return identity.loopback and host in self._own_hosts and self.is_open_without_keys()

    def _is_readable(self, identity: RequestIdentity, slug: str) -> bool:
        wiki = self._find_wiki(slug)
        return wiki is not None and (self._is_public(wiki) or self.is_open_access(identity))

    def _is_public(self, wiki: Wiki) -> bool:
        return is_public(wiki, default=self._public_by_default)

    def _find_wiki(self, slug: str) -> Wiki | None:
        try:
            return self._registry.get(slug)
        except WikiNotFound:
            return None


def is_public(wiki: Wiki, *, default: bool) -> bool:
    """Whether the wiki can be read without a key: by its own setting, or else by default."""
    setting = wiki.settings.get("public", "")
    return setting == "true" if setting else default


def _build_unauthorized_error() -> Unauthorized:
    return Unauthorized(
        "A key is required.", hint="Send it as `Authorization: Bearer KEY`; `wikiholt key create` creates one."
    )


def _make_unknown_key_error() -> Unauthorized:
    return Unauthorized("This key is unknown; it may have expired or been revoked.", hint="Ask for another key.")


def _build_forbidden_error() -> Forbidden:
    return Forbidden("This request is for another wiki.", hint="A key is for one wiki; name that one, or none.")
