"""Access control: turns the identity of a request into a grant for exactly one wiki, or denies it.

The wiki is named by the path (/w/SLUG), by the host, or by the key. If there is only one wiki, it need not be named.
The client has a key, or is a person whose groups have permissions.
A denial is the same whether the wiki exists or not, so that requests cannot detect other people's wikis.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

from wikiholt.domain.slugs import LOOPBACK_HOSTS, parse_host_header, validate_slug
from wikiholt.domain.wiki import Key, Person, Scope, Wiki
from wikiholt.errors import AccessDenied, Forbidden, InvalidInput, Unauthorized, WikiNotFound
from wikiholt.wikis.people import GroupRules
from wikiholt.wikis.registry import Registry

MAX_KEYS_PER_REQUEST = 50
"""The most keys, and so wikis, of one search with a list of keys."""


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """What a request says about itself. `loopback` is whether the service listens only on the loopback interface.

    `signed_in` is the authenticated client of a request without a token: a valid key, or a person.
    """

    token: str | None = None
    slug: str | None = None
    host: str | None = None
    loopback: bool = False
    signed_in: Key | Person | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """One wiki and the permitted scope, for a key, a person, or everyone."""

    wiki: Wiki
    scope: Scope
    key: Key | None
    person: Person | None = None

    @property
    def client(self) -> Key | Person | None:
        """The client whose requests are counted together; None if no key was needed."""
        return self.key or self.person


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
        rules: GroupRules | None = None,
        requires_sign_in: bool = False,
    ) -> None:
        """`is_replaced` tells whether a wiki's path now has another repository; its keys are then rejected.

        With `requires_sign_in` no wiki is open on this machine, even before the first key.
        """
        self._registry = registry
        self._is_replaced = is_replaced
        self._rules = rules or GroupRules()
        self._requires_sign_in = requires_sign_in
        self._domain_suffix = f".{domain}" if domain else ""
        self._public_by_default = public
        self._own_hosts = LOOPBACK_HOSTS | {host.lower().removesuffix(".") for host in own_hosts}

    def authorize(self, identity: RequestIdentity, required_scope: Scope) -> Grant:
        """The grant for the requested wiki. Raises Unauthorized, Forbidden, InvalidSlug or WikiNotFound."""
        key, person = self._authenticate(identity), _get_person(identity)
        slug = self._resolve_slug(identity, self._resolve_host_slug(identity), key or person)
        if person is not None:
            return self._authorize_person(person, slug, required_scope)
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
        keys, person = self._authenticate_all(identity), _get_person(identity)
        if person is not None and not self._names_wiki(identity):
            granted = [self._authorize_person(person, wiki.slug, Scope.READ) for wiki in self.list_visible(identity)]
        elif any(key.wiki_id is None for key in keys):
            granted = [Grant(wiki, Scope.ADMIN, keys[0]) for wiki in self._registry.list_wikis()]
        elif keys:
            granted = [self._authorize_with_key(key, key.wiki_id, None, Scope.READ) for key in keys if key.wiki_id]
        elif len(names) > 1 and identity.token is None and identity.signed_in is None:
            granted = [Grant(wiki, Scope.READ, None) for wiki in self.list_visible(identity)]
        else:
            granted = [self.authorize(identity, Scope.READ)]
        by_slug = {grant.wiki.slug: grant for grant in granted}
        if not by_slug.keys() >= set(names):
            is_client = identity.token is not None or identity.signed_in is not None
            raise _build_forbidden_error() if is_client else _build_unauthorized_error()
        wanted = [by_slug[name] for name in names] if names else list(by_slug.values())
        return wanted or [self.authorize(identity, Scope.READ)]

    def _authenticate_all(self, identity: RequestIdentity) -> list[Key]:
        """The keys of a request that may cover several wikis; empty if its path or host names one.

        Raises Unauthorized if a key is unknown, or if there are too many.
        """
        if self._names_wiki(identity):
            return []
        if identity.token is None:
            return [identity.signed_in] if isinstance(identity.signed_in, Key) else []
        tokens = dict.fromkeys(token.strip() for token in identity.token.split(","))
        if len(tokens) > MAX_KEYS_PER_REQUEST:
            raise _make_unknown_key_error()
        found = (self._authenticate(replace(identity, token=token)) for token in tokens)
        return [key for key in found if key is not None]

    def require_any_key(self, identity: RequestIdentity) -> None:
        """Accept any valid key, of any wiki, and any person. Raises Unauthorized."""
        if self.get_client(identity) is None:
            raise _build_unauthorized_error()

    def require_operator(self, identity: RequestIdentity) -> Key | Person:
        """The operator of the request. Raises Unauthorized without a client and Forbidden for any other client."""
        client = self.get_client(identity)
        if client is None:
            raise _build_unauthorized_error()
        if self.is_operator(client):
            return client
        if isinstance(client, Person):
            raise Forbidden("You are not an operator.", hint="Ask the administrator for the permission.")
        raise Forbidden(
            "This key is for one wiki; an operator key is required.",
            hint="Ask the operator of the service for one.",
        )

    def get_client(self, identity: RequestIdentity) -> Key | Person | None:
        """The key or person of the request. Raises Unauthorized for an unknown key."""
        return self._authenticate(identity) or _get_person(identity)

    def is_operator(self, client: Key | Person | None) -> bool:
        """Whether the client may use and manage all wikis."""
        if isinstance(client, Person):
            return self._rules.is_operator(client)
        return client is not None and client.wiki_id is None

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
        key, person = self._authenticate(identity), _get_person(identity)
        if self._names_wiki(identity) or (key and key.wiki_id is not None):
            return [self.authorize(identity, Scope.READ).wiki]
        wikis = self._registry.list_wikis()
        if key is not None or self.is_open_access(identity):
            return wikis
        if person is not None:
            return [wiki for wiki in wikis if self._get_person_scope(person, wiki) is not None]
        return [wiki for wiki in wikis if self._is_public(wiki)]

    def is_open_without_keys(self) -> bool:
        """Whether wikis can be read without a key on this machine, which is so until the first key is created."""
        return not self._requires_sign_in and not self._registry.keys.has_ever_had_any()

    def _authenticate(self, identity: RequestIdentity) -> Key | None:
        if identity.token is None:
            return identity.signed_in if isinstance(identity.signed_in, Key) else None
        key = self._registry.keys.find_by_token(identity.token)
        if key is None:
            raise _make_unknown_key_error()
        return key

    def _names_wiki(self, identity: RequestIdentity) -> bool:
        """Whether the path or the host names a wiki."""
        return identity.slug is not None or self._resolve_host_slug(identity) is not None

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

    def _resolve_slug(
        self, identity: RequestIdentity, host_slug: _HostSlug | None, client: Key | Person | None
    ) -> str | None:
        requested = validate_slug(identity.slug) if identity.slug is not None else None
        if host_slug is None or requested is None or host_slug.slug == requested:
            return requested or (host_slug.slug if host_slug else None)
        if client is None and not host_slug.is_public and not self._is_readable(identity, host_slug.slug):
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

    def _authorize_person(self, person: Person, slug: str | None, required_scope: Scope) -> Grant:
        if self._rules.is_operator(person):
            return Grant(self._get_wiki_or_only(slug), Scope.ADMIN, None, person)
        if slug is not None:
            wiki = self._find_wiki(slug)
        else:
            visible = [wiki for wiki in self._registry.list_wikis() if self._get_person_scope(person, wiki)]
            if len(visible) > 1:
                raise _make_unnamed_error()
            wiki = visible[0] if visible else None
        scope = self._get_person_scope(person, wiki) if wiki is not None else None
        if wiki is None or scope is None:
            raise Forbidden(
                "You are signed in, but none of your groups has access to this wiki.",
                hint="Ask the administrator to add you to a group, then sign in again.",
            )
        if not scope.allows(required_scope):
            raise Forbidden(
                f"This requires the scope {required_scope}; your groups have {scope}.",
                hint="Ask the administrator for the permission.",
            )
        return Grant(wiki, scope, None, person)

    def _get_person_scope(self, person: Person, wiki: Wiki) -> Scope | None:
        if self._rules.is_operator(person):
            return Scope.ADMIN
        scope = self._rules.get_scope(person, wiki.slug)
        if scope is None or self._is_replaced(wiki):
            return Scope.READ if self._is_public(wiki) else None
        return scope

    def _get_wiki_or_only(self, slug: str | None) -> Wiki:
        """The wiki with this slug, or the only one. For callers that may know of every wiki."""
        wiki = self._registry.get(slug) if slug is not None else self._registry.get_only()
        if wiki is None:
            raise _make_unnamed_error()
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


def _get_person(identity: RequestIdentity) -> Person | None:
    if identity.token is None and isinstance(identity.signed_in, Person):
        return identity.signed_in
    return None


def _make_unnamed_error() -> WikiNotFound:
    return WikiNotFound("No wiki was named.", hint="Name it in the path: /w/SLUG")


def _build_unauthorized_error() -> Unauthorized:
    return Unauthorized(
        "A key is required.", hint="Send it as `Authorization: Bearer KEY`; ask the administrator for one."
    )


def _make_unknown_key_error() -> Unauthorized:
    return Unauthorized("This key is unknown; it may have expired or been revoked.", hint="Ask for another key.")


def _build_forbidden_error() -> Forbidden:
    return Forbidden("This request is for another wiki.", hint="A key is for one wiki; name that one, or none.")
