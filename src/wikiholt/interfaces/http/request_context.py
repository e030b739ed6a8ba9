"""From a request to the one wiki it may see: the only way routes have to wikis.

A route is given a Visitor and asks it for what it needs. Nothing a visitor hands out can name another wiki than the
one that was granted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address
from threading import BoundedSemaphore
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from wikiholt.app.bootstrap import Application
from wikiholt.domain.git import Author
from wikiholt.domain.search import PageFilter, SearchInterface
from wikiholt.domain.wiki import Key, Scope, Wiki
from wikiholt.errors import AccessDenied, Forbidden, IndexMissing, Unauthorized, WikiholtError
from wikiholt.interfaces.http.host_grant import HOST_GRANT_KEY, CommitEvent, CommitListener, HostGrant, ignore_commit
from wikiholt.interfaces.http.middleware import ALLOWANCE_KEY, SLUG_KEY
from wikiholt.interfaces.schemas.common import STORED_PATHS, PathStyle
from wikiholt.scheduler.reindex_job import ReindexJob
from wikiholt.scheduler.scheduler import Scheduler
from wikiholt.scheduler.wiki_records import SyncState, WikiActivity
from wikiholt.wikis.access import Grant, RequestIdentity
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.registry import Registry

_FRESH_WAITERS = BoundedSemaphore(16)
"""Threads that may wait for a fresh index at once; the others are needed to answer."""


@dataclass(frozen=True, slots=True)
class WikiSession:
    """One wiki, with what was granted of it; `author` is who a host says commits are by.

    `patience` is how many seconds a write waits for the index to hold it.
    """

    grant: Grant
    handle: WikiHandle
    fresh_timeout: float
    _scheduler: Scheduler
    path_style: PathStyle = STORED_PATHS
    author: Author | None = None
    on_commit: CommitListener = ignore_commit
    index_wait_s: float = 0.0
    interface: SearchInterface = SearchInterface.HTTP

    @property
    def wiki(self) -> Wiki:
        return self.grant.wiki

    @contextmanager
    def use_handle(self) -> Iterator[WikiHandle]:
        """The wiki to ask; where it has no index, the reason why it could not get one is the error."""
        try:
            yield self.handle
        except IndexMissing as error:
            raise self.get_sync_state().error or error from None

    def wait_until_fresh(self) -> None:
        """Wait until the index has reached the HEAD of now, as long as that is worth it; the answer says if not."""
        self._wait_until_fresh(self.fresh_timeout)

    def _wait_until_fresh(self, timeout_s: float) -> None:
        if _FRESH_WAITERS.acquire(blocking=False):
            try:
                self._scheduler.wait_until_fresh(self.wiki.id, timeout_s)
            finally:
                _FRESH_WAITERS.release()

    def notify_changed(self) -> None:
        self._scheduler.notify_changed(self.wiki.id)

    def report_commit(self, commit: CommitEvent) -> None:
        """A commit was made: have the index follow, and tell the host. Who is told to be patient sees it in lists."""
        self.notify_changed()
        self.on_commit(commit)
        if self.index_wait_s:
            self._wait_until_fresh(self.index_wait_s)

    def to_git_filter(self, page_filter: PageFilter) -> PageFilter:
        """A visitor's filter, as the index has paths."""
        return (
            replace(page_filter, path_prefix=self.path_style.to_git_prefix(page_filter.path_prefix))
            if page_filter.path_prefix
            else page_filter
        )

    def start_reindex(self) -> ReindexJob:
        """Raises Busy while one is under way."""
        return self._scheduler.reindex(self.wiki.id)

    def get_reindex_job(self) -> ReindexJob:
        return self._scheduler.get_reindex_job(self.wiki.id)

    def get_activity(self) -> WikiActivity | None:
        return self._scheduler.get_activity(self.wiki.id)

    def get_sync_state(self) -> SyncState:
        return self._scheduler.get_sync_state(self.wiki.id)


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """Whom an issuer's token speaks for, and the one wiki it is for; `subject` is what requests are counted by."""

    slug: str
    scope: Scope
    subject: str
    author: Author


@dataclass(frozen=True, slots=True)
class KeyAdmin:
    """Keys, those of one wiki, or with None all there are."""

    registry: Registry
    wiki: Wiki | None


class RequestContext:
    """Who sent a request, and what it may have."""

    def __init__(self, application: Application, request: Request) -> None:
        self._application = application
        self._scope = request.scope
        self._address = request.client.host if request.client else ""
        self._identity = RequestIdentity(
            token=parse_bearer_token(request.headers.get("authorization")),
            slug=request.scope.get(SLUG_KEY),
            host=request.headers.get("host"),
            loopback=is_loopback(application.settings.serve_host),
        )

    def open_wiki(self, required_scope: Scope) -> WikiSession:
        """The wiki this request is about, if it may do that with it."""
        with self._check_access():
            grant = self._application.access.authorize(self._identity, required_scope)
        self._check_rate_limit(grant.key)
        return self._open_session(grant)

    def open_wiki_best_scope(self) -> WikiSession:
        """The wiki this request is about, if it may be read, with all that this visitor may do with it."""
        return self.open_wiki(Scope.READ)

    def open_wiki_for_token(self, verify: Callable[[str], TokenIdentity]) -> WikiSession:
        """The wiki that a token of somebody else's is for, once that has been verified; raises what `vouch` does."""
        with self._check_access():
            who = verify(self._identity.token or "")
            grant = self._application.access.grant_for_token(self._identity, who.slug, who.scope)
        self._scope[ALLOWANCE_KEY] = self._application.rate_limiter.check(who.subject, self._address)
        return replace(self._open_session(grant), author=who.author)

    def require_known_host(self) -> None:
        """Pass who has a key, or names the service as it is known; no browser does that for a page elsewhere."""
        if self._identity.token is None and not self._application.access.is_known_host(self._identity):
            self.count_request()
            raise Forbidden("This is no name of this service.", hint="The setting serve.hosts names further hosts.")

    def open_wiki_for_attachments(self) -> WikiSession:
        """The wiki this request is about, if files may be attached to its pages."""
        return self.open_wiki(Scope.WRITE)

    def _open_session(self, grant: Grant, host_grant: HostGrant | None = None) -> WikiSession:
        wiki, farm = grant.wiki, self._application
        handle = farm.service.get_handle(wiki.slug)
        if handle.wiki.id != wiki.id:  # another wiki has taken the slug at this very moment
            raise Unauthorized("This takes a key.", hint="Send it as `Authorization: Bearer KEY`.")
        farm.scheduler.touch(wiki.id)
        opened = WikiSession(grant, handle, farm.settings.search_fresh_timeout, farm.scheduler)
        if host_grant is None:
            return opened
        return replace(
            opened,
            path_style=host_grant.path_style,
            author=host_grant.author,
            on_commit=host_grant.commits.append,
            index_wait_s=host_grant.index_wait_s,
            interface=SearchInterface.OTTERWIKI,
        )

    def require_key(self) -> None:
        """Pass who has any key, before what they send is taken in: nobody fills the memory who may not write."""
        with self._check_access():
            self._application.access.require_any_key(self._identity)

    def require_operator(self) -> Application:
        """All wikis, for an operator's key."""
        with self._check_access():
            key = self._application.access.require_operator(self._identity)
        self._check_rate_limit(key)
        return self._application

    def require_metrics_access(self) -> None:
        """Pass who may see the service's figures: an operator, or anybody on this machine while there is no key."""
        if self._identity.token is None and self._application.access.is_open_access(self._identity):
            self._check_rate_limit(None)
        else:
            self.require_operator()

    def count_request(self) -> None:
        """Pass anybody, as often as an address may ask."""
        self._check_rate_limit(None)

    def list_visible_wikis(self) -> tuple[list[Wiki], bool]:
        """The wikis this visitor may see listed, and whether they are the farm's operator."""
        with self._check_access():
            found = self._application.access.list_visible(self._identity)
            key = (
                self._application.service.registry.keys.find_by_token(self._identity.token)
                if self._identity.token
                else None
            )
        self._check_rate_limit(key)
        return found, key is not None and key.wiki_id is None

    def get_key_admin(self) -> "KeyAdmin":
        """The keys this visitor may manage: one wiki's, or all where an operator names no wiki in the path."""
        with self._check_access():
            try:
                key = self._application.access.require_operator(self._identity)
                wiki = (
                    self._application.access.authorize(self._identity, Scope.ADMIN).wiki
                    if self._identity.slug is not None
                    else None
                )
            except Forbidden:
                grant = self._application.access.authorize(self._identity, Scope.ADMIN)
                assert grant.key is not None
                key, wiki = grant.key, grant.wiki
        self._check_rate_limit(key)
        return KeyAdmin(self._application.service.registry, wiki)

    def identify_unverified(self) -> Wiki | None:
        """The wiki that a webhook says it is about; nothing is proved by that."""
        self._application.rate_limiter.check_failures(self._address)
        return self._application.access.identify_unverified(self._identity)

    def notify_by_webhook(self, wiki: Wiki | None, *, verified: bool) -> bool:
        """Wake the wiki if its webhook was signed with its secret."""
        if not verified or wiki is None:
            self._application.rate_limiter.record_failure(self._address)
            return False
        self._check_rate_limit(None)
        self._application.scheduler.notify_changed(wiki.id)
        return True

    @contextmanager
    def _check_access(self) -> Iterator[None]:
        """Ask for access, at the pace an address may: refusals count, and keys that are not known count for more.

        A key that is known passes however many wrong ones have come before it.
        """
        try:
            yield
        except WikiholtError as error:
            if isinstance(error, Unauthorized) and self._identity.token is not None:
                self._application.rate_limiter.refuse_key(self._address, self._identity.token)
            else:
                self._check_rate_limit(None)
            raise

    def _check_rate_limit(self, key: Key | None) -> None:
        self._scope[ALLOWANCE_KEY] = self._application.rate_limiter.check(key.id if key else None, self._address)


def get_request_context(request: Request) -> RequestContext:
    """Who sent this request, to the service or to a host it runs inside of."""
    made: RequestContext = request.app.state.context_class(request.app.state.application, request)
    return made


async def _get_request_context(request: Request) -> RequestContext:
    return get_request_context(request)


RequestContextDep = Annotated[RequestContext, Depends(_get_request_context)]


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine alone."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def parse_bearer_token(header: str | None) -> str | None:
    """The token; another scheme is no key, an empty one is a wrong one."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


# Visitors whom the host we run inside of has let in: they have what it has decided, and nothing else.


class HostContext(RequestContext):
    """Who sent a request to a host, and what it may have. Keys and addresses were looked at by the host."""

    def __init__(self, application: Application, request: Request) -> None:
        super().__init__(application, request)
        admission = request.scope.get(HOST_GRANT_KEY)
        if not isinstance(admission, HostGrant):
            raise Unauthorized("This takes a key.", hint="Nobody has said whose request this is.")
        self._host_grant = admission

    def open_wiki(self, required_scope: Scope) -> WikiSession:
        return self._open_granted(required_scope, allowed=required_scope in self._host_grant.scopes)

    def open_wiki_best_scope(self) -> WikiSession:
        reads, writes = (scope in self._host_grant.scopes for scope in (Scope.READ, Scope.WRITE))
        return self.open_wiki(Scope.WRITE if reads and writes else Scope.READ)

    def require_known_host(self) -> None:
        """Pass anybody: which name is whose is the host's to know."""

    def open_wiki_for_attachments(self) -> WikiSession:
        return self._open_granted(Scope.WRITE, allowed=self._host_grant.can_attach)

    def require_key(self) -> None:
        """Pass who may change anything, before what they send is taken in."""
        if not self._host_grant.can_write:
            raise self._build_denied_error()

    def count_request(self) -> None:
        """Pass anybody: the host counts, or a proxy before it."""

    def get_key_admin(self) -> KeyAdmin:
        wiki = self.open_wiki(Scope.ADMIN).wiki
        if not self._host_grant.can_manage_keys:
            raise Forbidden("This key does not manage keys.", hint="Sign in as an administrator of the wiki.")
        return KeyAdmin(self._application.service.registry, wiki)

    def require_operator(self) -> Application:
        raise Forbidden("This is about all wikis.", hint="Ask on the machine: wikiholt list")

    def list_visible_wikis(self) -> tuple[list[Wiki], bool]:
        return [self.open_wiki(Scope.READ).wiki], False

    def identify_unverified(self) -> Wiki | None:
        return None

    def _open_granted(self, required_scope: Scope, *, allowed: bool) -> WikiSession:
        given = self._host_grant
        if not allowed:
            raise self._build_denied_error()
        return self._open_session(Grant(given.wiki, required_scope, given.key), given)

    def _build_denied_error(self) -> AccessDenied:
        if self._host_grant.is_signed_in:
            return Forbidden("You may not do this in this wiki.", hint="Ask its administrator for the permission.")
        return Unauthorized("This takes a key, or signing in.", hint="Send a key as `Authorization: Bearer KEY`.")
