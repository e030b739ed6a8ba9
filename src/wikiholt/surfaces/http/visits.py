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

from wikiholt.access import Grant, Visit
from wikiholt.errors import Forbidden, IndexMissing, Unauthorized, WikiholtError
from wikiholt.handle import WikiHandle
from wikiholt.keeper import Activity, Job, Keeper, Standing
from wikiholt.model import Author, Filter, Key, Scope, Surface, Wiki
from wikiholt.registry import Registry
from wikiholt.surfaces.documents.names import AS_STORED, Names
from wikiholt.surfaces.http.admission import Admission, Tell, Wrote, to_nobody
from wikiholt.surfaces.http.edge import ALLOWANCE, NAMED
from wikiholt.wiring import Farm

_WAITING = BoundedSemaphore(16)
"""Threads that may wait for a fresh index at once; the others are needed to answer."""


@dataclass(frozen=True, slots=True)
class OpenWiki:
    """One wiki, with what was granted of it; `author` is who a host says commits are by.

    `patience` is how many seconds a write waits for the index to hold it.
    """

    grant: Grant
    handle: WikiHandle
    fresh_timeout: float
    _keeper: Keeper
    names: Names = AS_STORED
    author: Author | None = None
    tell: Tell = to_nobody
    patience: float = 0.0
    surface: Surface = Surface.HTTP

    @property
    def wiki(self) -> Wiki:
        return self.grant.wiki

    @contextmanager
    def answering(self) -> Iterator[WikiHandle]:
        """The wiki to ask; where it has no index, the reason why it could not get one is the error."""
        try:
            yield self.handle
        except IndexMissing as error:
            raise self.standing().error or error from None

    def freshen(self) -> None:
        """Wait until the index has reached the HEAD of now, as long as that is worth it; the answer says if not."""
        self._freshen(self.fresh_timeout)

    def _freshen(self, seconds: float) -> None:
        if _WAITING.acquire(blocking=False):
            try:
                self._keeper.fresh(self.wiki.id, seconds)
            finally:
                _WAITING.release()

    def wake(self) -> None:
        self._keeper.wake(self.wiki.id)

    def wrote(self, commit: Wrote) -> None:
        """A commit was made: have the index follow, and tell the host. Who is told to be patient sees it in lists."""
        self.wake()
        self.tell(commit)
        if self.patience:
            self._freshen(self.patience)

    def narrowed(self, where: Filter) -> Filter:
        """A visitor's filter, as the index has paths."""
        return replace(where, path_prefix=self.names.prefix(where.path_prefix)) if where.path_prefix else where

    def reindex(self) -> Job:
        """Raises Busy while one is under way."""
        return self._keeper.reindex(self.wiki.id)

    def job(self) -> Job:
        return self._keeper.job(self.wiki.id)

    def activity(self) -> Activity | None:
        return self._keeper.activity(self.wiki.id)

    def standing(self) -> Standing:
        return self._keeper.standing(self.wiki.id)


@dataclass(frozen=True, slots=True)
class Vouched:
    """Whom an issuer's token speaks for, and the one wiki it is for; `subject` is what requests are counted by."""

    slug: str
    scope: Scope
    subject: str
    author: Author


@dataclass(frozen=True, slots=True)
class Keyring:
    """Keys, those of one wiki, or with None all there are."""

    registry: Registry
    wiki: Wiki | None


class Visitor:
    """Who sent a request, and what it may have."""

    def __init__(self, farm: Farm, request: Request) -> None:
        self._farm = farm
        self._scope = request.scope
        self._address = request.client.host if request.client else ""
        self._visit = Visit(
            token=bearer(request.headers.get("authorization")),
            named=request.scope.get(NAMED),
            host=request.headers.get("host"),
            loopback=is_loopback(farm.settings.serve_host),
        )

    def wiki(self, needed: Scope) -> OpenWiki:
        """The wiki this request is about, if it may do that with it."""
        with self._asking():
            grant = self._farm.access.wiki(self._visit, needed)
        self._count(grant.key)
        return self._open(grant)

    def as_allowed(self) -> OpenWiki:
        """The wiki this request is about, if it may be read, with all that this visitor may do with it."""
        return self.wiki(Scope.READ)

    def vouched(self, vouch: Callable[[str], Vouched]) -> OpenWiki:
        """The wiki that a token of somebody else's is for, once that has been verified; raises what `vouch` does."""
        with self._asking():
            who = vouch(self._visit.token or "")
            grant = self._farm.access.vouched(self._visit, who.slug, who.scope)
        self._scope[ALLOWANCE] = self._farm.limits.check(who.subject, self._address)
        return replace(self._open(grant), author=who.author)

    def under_known_host(self) -> None:
        """Pass who has a key, or names the service as it is known; no browser does that for a page elsewhere."""
        if self._visit.token is None and not self._farm.access.knows_host(self._visit):
            self.counted()
            raise Forbidden("This is no name of this service.", hint="The setting serve.hosts names further hosts.")

    def attaching(self) -> OpenWiki:
        """The wiki this request is about, if files may be attached to its pages."""
        return self.wiki(Scope.WRITE)

    def _open(self, grant: Grant, admission: Admission | None = None) -> OpenWiki:
        wiki, farm = grant.wiki, self._farm
        handle = farm.service.wiki(wiki.slug)
        if handle.wiki.id != wiki.id:  # another wiki has taken the slug at this very moment
            raise Unauthorized("This takes a key.", hint="Send it as `Authorization: Bearer KEY`.")
        farm.keeper.asked(wiki.id)
        opened = OpenWiki(grant, handle, farm.settings.search_fresh_timeout, farm.keeper)
        if admission is None:
            return opened
        return replace(
            opened,
            names=admission.names,
            author=admission.author,
            tell=admission.commits.append,
            patience=admission.patience,
            surface=Surface.OTTERWIKI,
        )

    def enters(self) -> None:
        """Pass who has any key, before what they send is taken in: nobody fills the memory who may not write."""
        with self._asking():
            self._farm.access.keyed(self._visit)

    def farm(self) -> Farm:
        """All wikis, for an operator's key."""
        with self._asking():
            key = self._farm.access.operator(self._visit)
        self._count(key)
        return self._farm

    def watches(self) -> None:
        """Pass who may see the service's figures: an operator, or anybody on this machine while there is no key."""
        if self._visit.token is None and self._farm.access.open_to(self._visit):
            self._count(None)
        else:
            self.farm()

    def counted(self) -> None:
        """Pass anybody, as often as an address may ask."""
        self._count(None)

    def visible(self) -> tuple[list[Wiki], bool]:
        """The wikis this visitor may see listed, and whether they are the farm's operator."""
        with self._asking():
            found = self._farm.access.visible(self._visit)
            key = self._farm.service.registry.keys.check(self._visit.token) if self._visit.token else None
        self._count(key)
        return found, key is not None and key.wiki_id is None

    def keyring(self) -> "Keyring":
        """The keys this visitor may manage: one wiki's, or all where an operator names no wiki in the path."""
        with self._asking():
            try:
                key = self._farm.access.operator(self._visit)
                wiki = self._farm.access.wiki(self._visit, Scope.ADMIN).wiki if self._visit.named is not None else None
            except Forbidden:
                grant = self._farm.access.wiki(self._visit, Scope.ADMIN)
                assert grant.key is not None
                key, wiki = grant.key, grant.wiki
        self._count(key)
        return Keyring(self._farm.service.registry, wiki)

    def claimed(self) -> Wiki | None:
        """The wiki that a webhook says it is about; nothing is proved by that."""
        self._farm.limits.guard(self._address)
        return self._farm.access.claimed(self._visit)

    def wake_by_webhook(self, claimed: Wiki | None, *, proved: bool) -> bool:
        """Wake the wiki if its webhook was signed with its secret."""
        if not proved or claimed is None:
            self._farm.limits.failed(self._address)
            return False
        self._count(None)
        self._farm.keeper.wake(claimed.id)
        return True

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Ask for access, at the pace an address may: refusals count, and keys that are not known count for more.

        A key that is known passes however many wrong ones have come before it.
        """
        try:
            yield
        except WikiholtError as error:
            if isinstance(error, Unauthorized) and self._visit.token is not None:
                self._farm.limits.refuse_key(self._address, self._visit.token)
            else:
                self._count(None)
            raise

    def _count(self, key: Key | None) -> None:
        self._scope[ALLOWANCE] = self._farm.limits.check(key.id if key else None, self._address)


def visitor(request: Request) -> Visitor:
    """Who sent this request, to the service or to a host it runs inside of."""
    made: Visitor = request.app.state.visitor(request.app.state.farm, request)
    return made


async def _visitor(request: Request) -> Visitor:
    return visitor(request)


Who = Annotated[Visitor, Depends(_visitor)]


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine alone."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def bearer(header: str | None) -> str | None:
    """The token; another scheme is no key, an empty one is a wrong one."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
