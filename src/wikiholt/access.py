"""Who asks, and for which wiki: a visit goes in, a grant for exactly one wiki comes out, or a refusal.

The wiki is named by the path (/w/SLUG), by the host, by the key, or, where there is exactly one, by nothing. A refusal
is the same whether the wiki exists or not: nobody learns of a wiki that is not theirs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from wikiholt.errors import BadInput, Forbidden, Refused, Unauthorized, WikiNotFound
from wikiholt.model import Key, Scope, Wiki
from wikiholt.registry import LOOPBACK, Registry, host_named, validate_slug


@dataclass(frozen=True, slots=True)
class Visit:
    """What a request says of itself. `loopback`: whether the service listens to this machine alone."""

    token: str | None = None
    named: str | None = None
    host: str | None = None
    loopback: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """One wiki, and what may be done with it. `key` is None where no key was needed."""

    wiki: Wiki
    scope: Scope
    key: Key | None


@dataclass(frozen=True, slots=True)
class _Named:
    """The slug that a host stands for; `told` unless only the registry knows it."""

    slug: str
    told: bool = True


class Access:
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
        self._suffix = f".{domain}" if domain else ""
        self._public = public
        self._own = LOOPBACK | {host.lower().removesuffix(".") for host in own_hosts}

    def wiki(self, visit: Visit, needed: Scope) -> Grant:
        """The grant for the wiki this visit is about; raises Unauthorized, Forbidden, InvalidSlug or WikiNotFound."""
        key = self._key(visit)
        slug = self._agreed(visit, self._hosted(visit), key)
        if key is None:
            return self._without_key(visit, slug, needed)
        if key.wiki_id is None:
            return Grant(self._named_or_only(slug), Scope.ADMIN, key)
        return self._with_key(key, key.wiki_id, slug, needed)

    def keyed(self, visit: Visit) -> None:
        """Pass whoever has a key that is known, whatever it opens; raises Unauthorized."""
        if self._key(visit) is None:
            raise _unauthorized()

    def operator(self, visit: Visit) -> Key:
        """The operator's key of this visit; raises Unauthorized without a key and Forbidden with a wiki's."""
        key = self._key(visit)
        if key is None:
            raise _unauthorized()
        if key.wiki_id is not None:
            raise Forbidden(
                "This key opens one wiki, and this is about all of them.",
                hint="It takes an operator's key: wikiholt key create --operator",
            )
        return key

    def claimed(self, visit: Visit) -> Wiki | None:
        """The wiki a visit says it is about, whoever asks: for those who prove themselves otherwise, by a signature."""
        try:
            slug = self._agreed(visit, self._hosted(visit), None)
        except (Refused, BadInput):
            return None
        return self._find(slug) if slug is not None else self._registry.only()

    def vouched(self, visit: Visit, slug: str, scope: Scope) -> Grant:
        """The grant for the wiki that an issuer's token is for, unless the visit is about another; raises Forbidden."""
        named = self._agreed(visit, self._hosted(visit), None)
        wiki = self._find(slug)
        if wiki is None or named not in (None, wiki.slug):
            raise _forbidden()
        return Grant(wiki, scope, None)

    def knows_host(self, visit: Visit) -> bool:
        """Whether the host is a name of ours or of a wiki, or an address: a name that leads here by nobody's leave is
        how web pages elsewhere reach a service that trusts its network (DNS rebinding)."""
        host = host_named(visit.host) if visit.host else None
        if host is None:
            return False
        if host in self._own or (self._suffix and host.endswith(self._suffix)) or self._registry.by_host(host):
            return True
        try:
            return bool(ip_address(host.strip("[]")))
        except ValueError:
            return False

    def visible(self, visit: Visit) -> list[Wiki]:
        """The wikis this visitor may see listed: where path or host names one, that one at most."""
        key = self._key(visit)
        if visit.named is not None or self._hosted(visit) is not None or (key and key.wiki_id is not None):
            return [self.wiki(visit, Scope.READ).wiki]
        wikis = self._registry.list()
        if key is not None or self.open_to(visit):
            return wikis
        return [wiki for wiki in wikis if self._is_public(wiki)]

    def open_without_keys(self) -> bool:
        """Whether wikis may be read without a key on this machine: as long as none was ever made."""
        return not self._registry.keys.ever()

    def _key(self, visit: Visit) -> Key | None:
        if visit.token is None:
            return None
        key = self._registry.keys.check(visit.token)
        if key is None:
            raise _unknown_key()
        return key

    def _hosted(self, visit: Visit) -> _Named | None:
        """What the host names: the slug before our domain, a wiki that has the host for its own, or nothing."""
        host = host_named(visit.host) if visit.host else None
        if host is None or host in self._own:
            return None
        under = host.removesuffix(self._suffix) if self._suffix and host.endswith(self._suffix) else None
        wiki = self._registry.by_host(host)
        if wiki is not None and not (under and self._find(under)):  # nobody takes the place of a slug that is there
            return _Named(wiki.slug, told=False)
        return _Named(validate_slug(under)) if under is not None else None

    def _agreed(self, visit: Visit, hosted: _Named | None, key: Key | None) -> str | None:
        named = validate_slug(visit.named) if visit.named is not None else None
        if hosted is None or named is None or hosted.slug == named:
            return named or (hosted.slug if hosted else None)
        if key is None and not hosted.told and not self._readable(visit, hosted.slug):
            # Whose host this is must not be found out by trying slugs on it.
            raise _unauthorized()
        raise _forbidden()

    def _without_key(self, visit: Visit, slug: str | None, needed: Scope) -> Grant:
        if needed is not Scope.READ:
            raise _unauthorized()
        if self.open_to(visit):
            return Grant(self._named_or_only(slug), Scope.READ, None)
        wiki = self._find(slug) if slug is not None else self._registry.only()
        if wiki is None or not self._is_public(wiki):
            raise _unauthorized()
        return Grant(wiki, Scope.READ, None)

    def _with_key(self, key: Key, wiki_id: str, slug: str | None, needed: Scope) -> Grant:
        try:
            wiki = self._registry.by_id(wiki_id)
        except WikiNotFound:  # removed at this very moment, and the key with it
            raise _unauthorized() from None
        if slug not in (None, wiki.slug):
            raise _forbidden()
        if self._is_replaced(wiki):
            raise _unknown_key()
        if not key.scope.allows(needed):
            raise Forbidden(
                f"This takes a key of scope {needed}; this one has {key.scope}.", hint="Use a key that may."
            )
        return Grant(wiki, key.scope, key)

    def _named_or_only(self, slug: str | None) -> Wiki:
        """For those who may know of every wiki."""
        wiki = self._registry.get(slug) if slug is not None else self._registry.only()
        if wiki is None:
            raise WikiNotFound("Which wiki is not said.", hint="Name it in the path: /w/SLUG")
        return wiki

    def open_to(self, visit: Visit) -> bool:
        """Whether this visit may read all wikis for want of keys.

        A web page elsewhere can make a browser on this machine ask us under a name of its own (DNS rebinding): only
        names that are ours count.
        """
        host = host_named(visit.host) if visit.host else None
        return visit.loopback and host in self._own and self.open_without_keys()

    def _readable(self, visit: Visit, slug: str) -> bool:
        wiki = self._find(slug)
        return wiki is not None and (self._is_public(wiki) or self.open_to(visit))

    def _is_public(self, wiki: Wiki) -> bool:
        own = wiki.settings.get("public", "")
        return own == "true" if own else self._public

    def _find(self, slug: str) -> Wiki | None:
        try:
            return self._registry.get(slug)
        except WikiNotFound:
            return None


def _unauthorized() -> Unauthorized:
    return Unauthorized(
        "This takes a key.", hint="Send it as `Authorization: Bearer KEY`; `wikiholt key create` makes one."
    )


def _unknown_key() -> Unauthorized:
    return Unauthorized("This key is not known here; it may have expired or been revoked.", hint="Ask for another key.")


def _forbidden() -> Forbidden:
    return Forbidden("This is about another wiki.", hint="A key opens one wiki; name that one, or none.")
