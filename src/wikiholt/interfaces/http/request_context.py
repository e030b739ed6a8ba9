"""From a request to the one wiki that it may use: the only way in which routes reach wikis.

A route receives a RequestContext and asks it for what it needs. Nothing that a context returns can name another wiki
than the granted one.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from ipaddress import ip_address
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from wikiholt.api.bootstrap import Application
from wikiholt.api.operations.index import IndexControl
from wikiholt.api.operations.keys import KeyAdmin
from wikiholt.api.operations.operation import Operation
from wikiholt.api.operations.wikis import VisibleWikis
from wikiholt.domain.git import Author
from wikiholt.domain.search import SearchInterface
from wikiholt.domain.wiki import Key, Person, Scope, Wiki
from wikiholt.errors import AccessDenied, Forbidden, InvalidQuery, Unauthorized, WikiholtError
from wikiholt.interfaces.http.local_owner import INTERFACE_HEADER, OWNER, is_owner
from wikiholt.interfaces.http.middleware import ALLOWANCE_KEY, SLUG_KEY
from wikiholt.interfaces.http.sign_in import (
    SAFE_METHODS,
    SignedIn,
    SignInMethod,
    find_signed_in,
    require_same_origin,
)
from wikiholt.wikis.access import Grant, RequestIdentity
from wikiholt.wikis.multi_search import MAX_WIKIS_PER_SEARCH, OpenedWikis
from wikiholt.wikis.session import STORED_PATHS, CommitEvent, PathStyle, WikiSession

HOST_GRANT_KEY = "wikiholt.host_grant"
"""The key of the grant in the ASGI scope."""


@dataclass(frozen=True, slots=True)
class HostGrant:
    """The decision of a host application about one request. A host may grant each right independently.

    The grant travels in the ASGI scope. Only code that calls the application in process can set it; no request header
    ends up there. An application created for a host refuses every request without a grant.

    Commits use `author`; a request with a key may name another author. A write waits up to `index_wait_s` seconds for
    the index. `commits` collects the commits that the request makes.
    """

    wiki: Wiki
    scopes: frozenset[Scope]
    author: Author
    can_attach: bool = False
    is_signed_in: bool = False
    key: Key | None = None
    can_manage_keys: bool = False
    path_style: PathStyle = STORED_PATHS
    index_wait_s: float = 0.0
    commits: list[CommitEvent] = field(default_factory=list)

    @property
    def can_write(self) -> bool:
        """Whether the grant allows anything but reading."""
        return self.can_attach or bool(self.scopes - {Scope.READ, Scope.PAST})


# The context of a request


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """The wiki, scope and author that a verified token of another issuer names.

    `subject` identifies the client for the rate limit.
    """

    slug: str
    scope: Scope
    subject: str
    author: Author


class RequestContext:
    """The client of one request and what it may use."""

    def __init__(self, application: Application, request: Request) -> None:
        self._application = application
        self.has_local_search = application.has_local_search
        self.workers = application.settings.serve_workers
        self.search_load = application.service.search_load
        self._request = request
        self._scope = request.scope
        self._address = request.client.host if request.client else ""
        self._unverified_identity = RequestIdentity(
            token=parse_bearer_token(request.headers.get("authorization")),
            slug=request.scope.get(SLUG_KEY),
            host=request.headers.get("host"),
            loopback=is_loopback(application.settings.serve_host),
        )

    @cached_property
    def signed_in(self) -> SignedIn | None:
        """The client that a cookie or a trusted proxy names; None without one, or if the request has a key."""
        if self._unverified_identity.token is not None:
            return None
        if is_owner(self._request, self._application.settings):
            return SignedIn(OWNER, SignInMethod.KEY)
        return find_signed_in(self._application, self._request)

    @cached_property
    def _identity(self) -> RequestIdentity:
        """The identity with the signed-in client. Raises Forbidden if another site started a change."""
        if self.signed_in is None:
            return self._unverified_identity
        if self._request.method not in SAFE_METHODS:
            require_same_origin(self._request)
        return replace(self._unverified_identity, signed_in=self.signed_in.client)

    def describe_client(self) -> tuple[Key | Person | None, SignInMethod, Grant | None, bool]:
        """Who sends the request and how, what they may do in the wiki that it names, and whether they are operators.

        Raises Forbidden for a key of another wiki.
        """
        access = self._application.access
        with self._check_access():
            client, grant = access.get_client(self._identity), None
            try:
                grant = access.authorize(self._identity, Scope.READ)
            except WikiholtError:
                if isinstance(client, Key) and client.wiki_id is not None:
                    raise
        self._check_rate_limit(client)
        if self.signed_in is not None:
            method = self.signed_in.method
        else:
            method = SignInMethod.NONE if client is None else SignInMethod.KEY
        return client, method, grant, access.is_operator(client)

    def check_key(self, token: str) -> Key:
        """The key of a sign-in form. Raises Unauthorized, or TooManyRequests after many unknown keys."""
        key = self._application.service.registry.keys.find_by_token(token)
        if key is None:
            self._application.rate_limiter.refuse_key(self._address, token)
            raise Unauthorized("This key is unknown; it may have expired or been revoked.", hint="Ask for another key.")
        self._check_rate_limit(key)
        return key

    def open_wiki(self, required_scope: Scope) -> WikiSession:
        """Open the wiki of this request. Raises AccessDenied without the required scope."""
        with self._check_access():
            grant = self._application.access.authorize(self._identity, required_scope)
        self._check_rate_limit(grant.client)
        return self._open_session(grant)

    def open_wikis(self, slugs: Sequence[str]) -> OpenedWikis:
        """Open the wikis of a search: that of this request, or several with an operator key or the key of each."""
        with self._check_access():
            grants = self._application.access.authorize_search(self._identity, slugs)
        for client in dict.fromkeys(grant.client for grant in grants):
            self._check_rate_limit(client)
        if len(grants) == 1:
            return OpenedWikis([self._open_session(grants[0])], {})
        if len(grants) > MAX_WIKIS_PER_SEARCH:
            raise InvalidQuery(
                f"This search would cover {len(grants)} wikis.",
                hint=f"Name up to {MAX_WIKIS_PER_SEARCH} of them: wiki=SLUG&wiki=SLUG",
            )
        opened = OpenedWikis([], {})
        for grant in grants:
            try:
                opened.sessions.append(self._open_session(grant))
            except WikiholtError as error:
                opened.failures[grant.wiki.slug] = error
        return opened

    def open_wikis_best_scope(self) -> OpenedWikis:
        """Open the wikis that the client's keys name, each with the highest scope the client has."""
        return self.open_wikis(())

    def open_wiki_for_token(self, verify: Callable[[str], TokenIdentity]) -> WikiSession:
        """Open the wiki that a token of another issuer names. Raises what `verify` raises."""
        with self._check_access():
            identity = verify(self._identity.token or "")
            grant = self._application.access.grant_for_token(self._identity, identity.slug, identity.scope)
        self._scope[ALLOWANCE_KEY] = self._application.rate_limiter.check(identity.subject, self._address)
        return replace(self._open_session(grant), author=identity.author)

    def open_wiki_for_attachments(self) -> WikiSession:
        """Open the wiki of this request. Raises AccessDenied if the client may not attach files."""
        return self.open_wiki(Scope.WRITE)

    def open_subject(self, operation: Operation) -> object:
        """Open what an operation is about. Raises AccessDenied without the required scope."""
        subject = operation.subject
        if subject is KeyAdmin:
            return self.open_keys()
        if subject is VisibleWikis:
            return self.list_visible_wikis()
        if subject is Application:
            return self.require_operator()
        wiki = self.open_wiki_for_attachments() if operation.attaches else self.open_wiki(operation.scope)
        return IndexControl(wiki, self._application.scheduler) if subject is IndexControl else wiki

    def require_known_host(self) -> None:
        """Raise Forbidden without a key if the Host header names no known host (protects against DNS rebinding)."""
        identity = self._unverified_identity
        if identity.token is None and not self._application.access.is_known_host(identity):
            self.count_request()
            raise Forbidden("Unknown host name.", hint="Add the host name to the setting serve.hosts.")

    def _open_session(self, grant: Grant) -> WikiSession:
        session = self._application.open_session(grant)
        if grant.client is OWNER:
            is_mcp = self._request.headers.get(INTERFACE_HEADER) == SearchInterface.MCP
            return replace(session, interface=SearchInterface.MCP if is_mcp else SearchInterface.CLI)
        return replace(session, author=grant.person.to_author()) if grant.person is not None else session

    def require_key(self) -> None:
        """Raise Unauthorized without a known key. Called before a body is read, so that strangers use no memory."""
        with self._check_access():
            self._application.access.require_any_key(self._identity)

    def require_operator(self) -> Application:
        """The application, which reaches all wikis. Raises AccessDenied without an operator key."""
        with self._check_access():
            client = self._application.access.require_operator(self._identity)
        self._check_rate_limit(client)
        return self._application

    def require_metrics_access(self) -> None:
        """Allow operators, and local clients while no key exists. Raises AccessDenied otherwise."""
        identity = self._unverified_identity
        if identity.token is None and self._application.access.is_open_access(identity):
            self._check_rate_limit(None)
        else:
            self.require_operator()

    def count_request(self) -> None:
        """Count the request against the rate limit of its address. Raises TooManyRequests."""
        self._check_rate_limit(None)

    def list_visible_wikis(self) -> VisibleWikis:
        with self._check_access():
            wikis = self._application.access.list_visible(self._identity)
            client = self._application.access.get_client(self._identity)
        self._check_rate_limit(client)
        return VisibleWikis(wikis, self._application.access.is_operator(client))

    def open_keys(self) -> KeyAdmin:
        """The keys that the client may manage: of a wiki, or all, if an operator names no wiki in the path."""
        access = self._application.access
        with self._check_access():
            identity = self._identity
            try:
                client = access.require_operator(identity)
                wiki = access.authorize(identity, Scope.ADMIN).wiki if identity.slug is not None else None
            except Forbidden:
                grant = access.authorize(identity, Scope.ADMIN)
                assert grant.client is not None
                client, wiki = grant.client, grant.wiki
        self._check_rate_limit(client)
        return KeyAdmin(self._application.service.registry, wiki)

    def identify_unverified(self) -> Wiki | None:
        """The wiki that a webhook names. The caller must verify the signature."""
        self._application.rate_limiter.check_failures(self._address)
        return self._application.access.identify_unverified(self._unverified_identity)

    def notify_by_webhook(self, wiki: Wiki | None, *, verified: bool) -> bool:
        """Schedule a sync of the wiki if its webhook was verified, and return whether it was."""
        if not verified or wiki is None:
            self._application.rate_limiter.record_failure(self._address)
            return False
        self._check_rate_limit(None)
        self._application.scheduler.notify_changed(wiki.id)
        return True

    @contextmanager
    def _check_access(self) -> Iterator[None]:
        """Count refused requests against the rate limit of the address; unknown keys count for more.

        A known key passes, however many wrong keys the address has sent before.
        """
        try:
            yield
        except WikiholtError as error:
            token = self._unverified_identity.token
            if isinstance(error, Unauthorized) and token is not None:
                self._application.rate_limiter.refuse_key(self._address, token)
            else:
                self._check_rate_limit(None)
            raise

    def _check_rate_limit(self, client: Key | Person | None) -> None:
        if client is OWNER:
            return
        self._scope[ALLOWANCE_KEY] = self._application.rate_limiter.check(client.id if client else None, self._address)


class HostContext(RequestContext):
    """The client of a request that a host application passes on.

    The host has checked keys and addresses; the client has exactly the rights of its HostGrant.
    """

    def __init__(self, application: Application, request: Request) -> None:
        super().__init__(application, request)
        host_grant = request.scope.get(HOST_GRANT_KEY)
        if not isinstance(host_grant, HostGrant):
            raise Unauthorized("A key is required.", hint="The host application passed no grant.")
        self._host_grant = host_grant

    @property
    def signed_in(self) -> None:
        """Nobody: the host application authenticates its users."""
        return None

    def open_wiki(self, required_scope: Scope) -> WikiSession:
        return self._open_granted(required_scope, allowed=required_scope in self._host_grant.scopes)

    def open_wikis(self, slugs: Sequence[str]) -> OpenedWikis:
        session = self.open_wiki(Scope.READ)
        if set(slugs) - {session.wiki.slug}:
            raise Forbidden("This request is for another wiki.", hint="The host application serves one wiki.")
        return OpenedWikis([session], {})

    def open_wikis_best_scope(self) -> OpenedWikis:
        best = max(self._host_grant.scopes & {Scope.PAST, Scope.WRITE}, key=tuple(Scope).index, default=Scope.READ)
        return OpenedWikis([self.open_wiki(best if Scope.READ in self._host_grant.scopes else Scope.READ)], {})

    def require_known_host(self) -> None:
        """Allow every host name; the host application checks them."""

    def open_wiki_for_attachments(self) -> WikiSession:
        return self._open_granted(Scope.WRITE, allowed=self._host_grant.can_attach)

    def require_key(self) -> None:
        """Raise AccessDenied before a body is read if the client may not write anything."""
        if not self._host_grant.can_write:
            raise self._build_denied_error()

    def count_request(self) -> None:
        """Do nothing: the host application, or a proxy in front of it, limits requests."""

    def open_keys(self) -> KeyAdmin:
        wiki = self.open_wiki(Scope.ADMIN).wiki
        if not self._host_grant.can_manage_keys:
            raise Forbidden("This key cannot manage keys.", hint="Sign in as an administrator of the wiki.")
        return KeyAdmin(self._application.service.registry, wiki)

    def require_operator(self) -> Application:
        raise Forbidden("This operation covers all wikis.", hint="It is not available here.")

    def list_visible_wikis(self) -> VisibleWikis:
        return VisibleWikis([self.open_wiki(Scope.READ).wiki], to_operator=False)

    def identify_unverified(self) -> Wiki | None:
        return None

    def _open_granted(self, required_scope: Scope, *, allowed: bool) -> WikiSession:
        grant = self._host_grant
        if not allowed:
            raise self._build_denied_error()
        return replace(
            self._application.open_session(Grant(grant.wiki, required_scope, grant.key)),
            path_style=grant.path_style,
            author=grant.author,
            on_commit=grant.commits.append,
            index_wait_s=grant.index_wait_s,
            interface=SearchInterface.OTTERWIKI,
        )

    def _build_denied_error(self) -> AccessDenied:
        if self._host_grant.is_signed_in:
            return Forbidden(
                "You do not have permission to do this in this wiki.", hint="Ask its administrator for the permission."
            )
        return Unauthorized("A key or a login is required.", hint="Send a key as `Authorization: Bearer KEY`.")


def get_request_context(request: Request) -> RequestContext:
    """Create the context of a request, of the class that its application was created with."""
    context: RequestContext = request.app.state.context_class(request.app.state.application, request)
    return context


async def _get_request_context(request: Request) -> RequestContext:
    return get_request_context(request)


RequestContextDep = Annotated[RequestContext, Depends(_get_request_context)]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the listen address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def parse_bearer_token(header: str | None) -> str | None:
    """The bearer token: None for another scheme, an empty string (an invalid key) for an empty token."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
