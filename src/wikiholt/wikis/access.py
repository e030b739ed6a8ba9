"""Who asks, and for which wiki: a visit goes in, a grant for exactly one wiki comes out, or a refusal.

The wiki is named by the path (/w/SLUG), by the host, by the key, or, where there is exactly one, by nothing. A refusal
is the same whether the wiki exists or not: nobody learns of a wiki that is not theirs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from wikiholt.domain.wiki import Key, Scope, Wiki
from wikiholt.errors import AccessDenied, Forbidden, InvalidInput, Unauthorized, WikiNotFound
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.slugs import LOOPBACK_HOSTS, parse_host_header, validate_slug


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """What a request says of itself. `loopback`: whether the service listens to this machine alone."""

    token: str | None = None
    slug: str | None = None
    host: str | None = None
    loopback: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """One wiki, and what may be done with it. `key` is None where no key was needed."""

    wiki: Wiki
    scope: Scope
    key: Key | None


@dataclass(frozen=True, slots=True)
class _HostSlug:
    """The slug that a host stands for; `told` unless only the registry knows it."""

    slug: str
    is_public: bool = True


class AccessPolicy:
    """The rules. Every question is answered from the registry as it is now; safe to use from many threads."""

    def __init__(
        self,
        registry: Registry,
        *,
        domain: str,
        public: bool,
        own_hosts: Iterable[str],
        is_replaced: Callable[[Wiki], bool] = lambda _: False,
    ) -> None:
        """`is_replaced` says whether another repository lies where a wiki's was: its keys open nothing then."""
        self._registry = registry
        self._is_replaced = is_replaced
        self._domain_suffix = f".{domain}" if domain else ""
        self._public_by_default = public
        self._own_hosts = LOOPBACK_HOSTS | {host.lower().removesuffix(".") for host in own_hosts}

    def authorize(self, identity: RequestIdentity, required_scope: Scope) -> Grant:
        """The grant for the wiki this visit is about; raises Unauthorized, Forbidden, InvalidSlug or WikiNotFound."""
        key = self._authenticate(identity)
        slug = self._resolve_slug(identity, self._resolve_host_slug(identity), key)
        if key is None:
            return self._authorize_without_key(identity, slug, required_scope)
        if key.wiki_id is None:
            return Grant(self._get_wiki_or_only(slug), Scope.ADMIN, key)
        return self._authorize_with_key(key, key.wiki_id, slug, required_scope)

    def require_any_key(self, identity: RequestIdentity) -> None:
        """Pass whoever has a key that is known, whatever it opens; raises Unauthorized."""
        if self._authenticate(identity) is None:
            raise _build_unauthorized_error()

    def require_operator(self, identity: RequestIdentity) -> Key:
        """The operator's key of this visit; raises Unauthorized without a key and Forbidden with a wiki's."""
        key = self._authenticate(identity)
        if key is None:
            raise _build_unauthorized_error()
        if key.wiki_id is not None:
            raise Forbidden(
                "This key opens one wiki, and this is about all of them.",
                hint="It takes an operator's key: wikiholt key create --operator",
            )
        return key

    def identify_unverified(self, identity: RequestIdentity) -> Wiki | None:
        """The wiki a visit says it is about, whoever asks: for those who prove themselves otherwise, by a signature."""
        try:
            slug = self._resolve_slug(identity, self._resolve_host_slug(identity), None)
        except (AccessDenied, InvalidInput):
            return None
        return self._find_wiki(slug) if slug is not None else self._registry.get_only()

    def grant_for_token(self, identity: RequestIdentity, slug: str, scope: Scope) -> Grant:
        """The grant for the wiki that an issuer's token is for, unless the visit is about another; raises Forbidden."""
        named = self._resolve_slug(identity, self._resolve_host_slug(identity), None)
        wiki = self._find_wiki(slug)
        if wiki is None or named not in (None, wiki.slug):
            raise _build_forbidden_error()
        return Grant(wiki, scope, None)

    def is_known_host(self, identity: RequestIdentity) -> bool:
        """Whether the host is a name of ours or of a wiki, or an address: a name that leads here by nobody's leave is
        how web pages elsewhere reach a service that trusts its network (DNS rebinding)."""
        host = parse_host_header(identity.host) if identity.host else None
        if host is None:
            return False
        if (
            host in self._own_hosts
            or (self._domain_suffix and host.endswith(self._domain_suffix))
            or self._registry.find_by_host(host)
        ):
            return True
        try:
            return bool(ip_address(host.strip("[]")))
        except ValueError:
            return False

    def list_visible(self, identity: RequestIdentity) -> list[Wiki]:
        """The wikis this visitor may see listed: where path or host names one, that one at most."""
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
        """Whether wikis may be read without a key on this machine: as long as none was ever made."""
        return not self._registry.keys.has_ever_had_any()

    def _authenticate(self, identity: RequestIdentity) -> Key | None:
        if identity.token is None:
            return None
        key = self._registry.keys.find_by_token(identity.token)
        if key is None:
            raise _make_unknown_key_error()
        return key

    def _resolve_host_slug(self, identity: RequestIdentity) -> _HostSlug | None:
        """What the host names: the slug before our domain, a wiki that has the host for its own, or nothing."""
        host = parse_host_header(identity.host) if identity.host else None
        if host is None or host in self._own_hosts:
            return None
        under = (
            host.removesuffix(self._domain_suffix)
            if self._domain_suffix and host.endswith(self._domain_suffix)
            else None
        )
        wiki = self._registry.find_by_host(host)
        if wiki is not None and not (
            under and self._find_wiki(under)
        ):  # nobody takes the place of a slug that is there
            return _HostSlug(wiki.slug, is_public=False)
        return _HostSlug(validate_slug(under)) if under is not None else None

    def _resolve_slug(self, identity: RequestIdentity, host_slug: _HostSlug | None, key: Key | None) -> str | None:
        named = validate_slug(identity.slug) if identity.slug is not None else None
        if host_slug is None or named is None or host_slug.slug == named:
            return named or (host_slug.slug if host_slug else None)
        if key is None and not host_slug.is_public and not self._is_readable(identity, host_slug.slug):
            # Whose host this is must not be found out by trying slugs on it.
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
        except WikiNotFound:  # removed at this very moment, and the key with it
            raise _build_unauthorized_error() from None
        if slug not in (None, wiki.slug):
            raise _build_forbidden_error()
        if self._is_replaced(wiki):
            raise _make_unknown_key_error()
        if not key.scope.allows(required_scope):
            raise Forbidden(
                f"This takes a key of scope {required_scope}; this one has {key.scope}.", hint="Use a key that may."
            )
        return Grant(wiki, key.scope, key)

    def _get_wiki_or_only(self, slug: str | None) -> Wiki:
        """For those who may know of every wiki."""
        wiki = self._registry.get(slug) if slug is not None else self._registry.get_only()
        if wiki is None:
            raise WikiNotFound("Which wiki is not said.", hint="Name it in the path: /w/SLUG")
        return wiki

    def is_open_access(self, identity: RequestIdentity) -> bool:
        """Whether this visit may read all wikis for want of keys.

        A web page elsewhere can make a browser on this machine ask us under a name of its own (DNS rebinding): only
        names that are ours count.
        """
        host = parse_host_header(identity.host) if identity.host else None
        return identity.loopback and host in self._own_hosts and self.is_open_without_keys()

    def _is_readable(self, identity: RequestIdentity, slug: str) -> bool:
        wiki = self._find_wiki(slug)
        return wiki is not None and (self._is_public(wiki) or self.is_open_access(identity))

    def _is_public(self, wiki: Wiki) -> bool:
        own = wiki.settings.get("public", "")
        return own == "true" if own else self._public_by_default

    def _find_wiki(self, slug: str) -> Wiki | None:
        try:
            return self._registry.get(slug)
        except WikiNotFound:
            return None


def _build_unauthorized_error() -> Unauthorized:
    return Unauthorized(
        "This takes a key.", hint="Send it as `Authorization: Bearer KEY`; `wikiholt key create` makes one."
    )


def _make_unknown_key_error() -> Unauthorized:
    return Unauthorized("This key is not known here; it may have expired or been revoked.", hint="Ask for another key.")


def _build_forbidden_error() -> Forbidden:
    return Forbidden("This is about another wiki.", hint="A key opens one wiki; name that one, or none.")
